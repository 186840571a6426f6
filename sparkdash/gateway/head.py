"""Head: what a request says before its body, in the form in which the gateway asks it.

A client that keeps its connection says the same again and again; then it is the same object for all of its requests, and what
follows from it alone is found out once. Must not hold what follows from anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from sparkdash.gateway.headers import to_engine
from sparkdash.wire import Line

Scope = MutableMapping[str, Any]
LENGTH = b"content-length"
_NOTHING: Mapping[str, str] = {}


class Head:
    """See the module. `headers` and `given` have all of the client's headers but the body's length, `given` as they came."""

    __slots__ = ("_for_engine", "given", "headers", "is_let_in", "method", "query", "raw_path")

    def __init__(self, scope: Scope) -> None:
        self.method: str = scope["method"]
        self.given: list[tuple[bytes, bytes]] = [pair for pair in scope["headers"] if pair[0] != LENGTH]
        self.headers: Mapping[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in self.given
        }
        self.raw_path: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        self.query: str = scope["query_string"].decode("latin-1")
        self.is_let_in = False
        """Did the guard find nothing against it?"""
        self._for_engine: tuple[tuple[bytes, bytes], ...] | None = None

    @classmethod
    def of(cls, scope: Scope, line: Line | None) -> Head:
        """The head of this request; `line` is its client's connection, if that is one of ours."""
        if line is None:
            return cls(scope)
        head: Head | None = line.memo.get(cls)
        if head is None:
            head = line.memo[cls] = cls(scope)
        return head

    def for_engine(self, own: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
        """What an engine gets of it, with the lease's `own` headers in place of the client's."""
        if own:
            return tuple(to_engine(self.given, own))
        if self._for_engine is None:
            self._for_engine = tuple(to_engine(self.given, _NOTHING))
        return self._for_engine

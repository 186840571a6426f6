"""Tool calls joined from the pieces of a stream.

Owns: which piece belongs to which call. Must not know: when a piece came, whether a call is valid.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkdash.bench.judge.tool_calls import ToolCall


class CallParts:
    """Pieces of the tool calls of one answer. Pieces of any other shape are left out."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._arguments: dict[int, str] = {}

    def add(self, pieces: Any) -> None:
        """Add the `tool_calls` of one event."""
        for piece in pieces if isinstance(pieces, list) else ():
            function = piece.get("function") if isinstance(piece, Mapping) else None
            if isinstance(function, Mapping):
                index = piece.get("index")
                self._join(index if isinstance(index, int) else len(self._names), function)

    def _join(self, index: int, function: Mapping[str, Any]) -> None:
        for name, parts in (("name", self._names), ("arguments", self._arguments)):
            text = function.get(name)
            parts[index] = parts.get(index, "") + (text if isinstance(text, str) else "")

    def joined(self) -> tuple[ToolCall, ...]:
        """Return the calls, in the order in which they began."""
        return tuple(ToolCall(name=name, arguments=self._arguments[index]) for index, name in self._names.items())

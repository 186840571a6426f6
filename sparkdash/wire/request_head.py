"""Head: what a request says before its body, and at which door it says it.

Owns: that who says the same words again is handed the same object. Must not know what is served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote
from weakref import ref

import httptools

Fields = list[tuple[bytes, bytes]]
"""Headers as they came, but for the case of their names."""
Address = tuple[str, int | None] | None
"""A host and a port; (path, None) for a unix socket."""
Door = tuple[Address, str]
"""A server's own address and the scheme."""
Words = tuple[Door, str, bytes, bytes, Fields]
"""The door, the version, the method, the URL and the headers."""


class RequestHead:
    """A request's first line and its headers, but for the body's length. Clients say the same again and again, on one connection or
    on many: that is one object then, and what was found out about it is kept in `memo`. `headers`: their names in lower case; `named`: by
    name.
    """

    __slots__ = (
        "__weakref__", "door", "expects", "headers", "is_old", "keeps", "memo", "method", "named", "path", "query", "raw_path",
        "version", "words",
    )  # fmt: skip

    def __init__(self, words: Words, *, keeps: bool) -> None:
        """Read a request's headers. `keeps`: they do not ask that the connection be closed.

        Raises httptools.HttpParserError or ValueError: the URL is invalid, or a request of HTTP/1.1 has not exactly one
        Host (RFC 9112 section 3.2).
        """
        self.words = words
        self.door, self.version, method, url, self.headers = words
        self.named = by_name(self.headers)
        if self.version == "1.1" and b"," in self.named.get(b"host", b","):
            raise ValueError("not one Host")
        self.method = method.decode("ascii")
        self.raw_path, self.query = _parted(url)
        path = self.raw_path.decode("ascii")
        self.path = unquote(path) if "%" in path else path
        self.is_old = self.version == "1.0"
        """Is it of HTTP/1.0, which knows neither chunks nor connections that are kept?"""
        self.keeps = keeps and not self.is_old
        """Is the connection for further requests?"""
        self.expects = self.named.get(b"expect", b"").lower() == b"100-continue"
        """Does the client wait with its body until it is told to go on?"""
        self.memo: Any = None
        """For the application: what follows from the head alone."""


class RequestHeadCache:
    """How the connection of a server began that was opened last, as clients open many in a burst, and say the same on each. It is
    not held here: a head, and any key in it, goes with the last connection that said it."""

    def __init__(self) -> None:
        self._last: Callable[[], RequestHead | None] = _nobodys

    def first(self, words: Words, *, keeps: bool) -> RequestHead:
        """The head of a connection's first request. `keeps`: see Head. Raises as Head does."""
        head = self._last()
        if head is None or head.words != words:
            head = RequestHead(words, keeps=keeps)
            self._last = ref(head)
        return head


def _nobodys() -> None:
    """Nobody has said anything."""


def by_name(headers: Fields) -> dict[bytes, bytes]:
    """What comes more than once is one list (RFC 9110 section 5.3)."""
    named = dict(headers)
    if len(named) == len(headers):
        return named
    said: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        said.setdefault(name, []).append(value)
    return {name: b", ".join(values) for name, values in said.items()}


def _parted(url: bytes) -> tuple[bytes, bytes]:
    parsed = httptools.parse_url(url)
    if parsed.path is None:
        raise ValueError("an address without a path")
    return parsed.path, parsed.query or b""

"""Head: what a request says before its body, and at which door it says it.

Owns: that the same words are one object, for as long as a connection is open that said them last. Must not know what is served.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote
from weakref import WeakValueDictionary

import httptools

Fields = list[tuple[bytes, bytes]]
Words = tuple[bytes, bytes, Fields]
"""The method, the URL and the headers, as they came."""
Address = tuple[str, int | None] | None
"""A host and a port; (path, None) for a unix socket."""
Door = tuple[Address, str]
"""A server's own address and the scheme."""


class Head:
    """A request's first line and its headers, but for the body's length. Clients say the same again and again, on one connection or
    on many: that is one object then, and what was found out about it is kept in `memo`. `headers`: their names in lower case.
    """

    __slots__ = (
        "__weakref__", "door", "expects", "headers", "is_old", "keeps", "memo", "method", "path", "query", "raw_path", "version",
        "words",
    )  # fmt: skip

    def __init__(self, door: Door, version: str, words: Words, *, keeps: bool) -> None:
        """Raises httptools.HttpParserError or ValueError: the URL is none."""
        self.words = words
        self.door = door
        method, url, fields = words
        self.method = method.decode("ascii")
        self.raw_path, self.query = _parted(url)
        path = self.raw_path.decode("ascii")
        self.path = unquote(path) if "%" in path else path
        self.version = version
        self.headers: Fields = [(name.lower(), value) for name, value in fields]
        self.is_old = version == "1.0"
        """Is it of HTTP/1.0, which knows neither chunks nor connections that are kept?"""
        self.keeps = keeps and not self.is_old
        """Is the connection for further requests?"""
        self.expects = b"100-continue" in [value.lower() for name, value in self.headers if name == b"expect"]
        """Does the client wait with its body until it is told to go on?"""
        self.memo: Any = None
        """For the application: what follows from the head alone."""


class Heads:
    """What the connections of one server say. Nothing is held here: a head, and any key in it, goes with the last connection that
    said it."""

    def __init__(self) -> None:
        self._said: WeakValueDictionary[object, Head] = WeakValueDictionary()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._said)

    def of(self, door: Door, version: str, words: Words, *, keeps: bool) -> Head:
        """The head of these words. `keeps`: they do not ask that the connection be closed. Raises as `Head` does."""
        method, url, fields = words
        said = (door, version, method, url, *fields)
        head = self._said.get(said)
        if head is None:
            head = self._said[said] = Head(door, version, words, keeps=keeps)
        return head


def _parted(url: bytes) -> tuple[bytes, bytes]:
    parsed = httptools.parse_url(url)
    if parsed.path is None:
        raise ValueError("an address without a path")
    return parsed.path, parsed.query or b""

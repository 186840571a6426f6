"""Told: what an answer says before its body, but for its status. Pure."""

from __future__ import annotations

from collections.abc import Iterable

LENGTH = b"content-length"


class ResponseHeaders:
    """An answer's headers, in the form in which they are written; who answers the same again and again makes it once.

    `headers`: all but the body's length, their names in lower case; `length`: of the body, in bytes, if they tell it; `lines`: how they
    are written; `closes`: they say that the connection ends.
    """

    __slots__ = ("closes", "headers", "length", "lines")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises ValueError: a header has a line break in it, and would be another."""
        self.length: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.closes = False
        for header in headers:
            name, value = header
            if name == LENGTH:
                self.length = int(value)
                continue
            self.headers.append(header)
            if name == b"connection" and b"close" in value.lower():
                self.closes = True
        written = [b": ".join(header) for header in self.headers]
        all_of_them = b"".join(written)
        if all_of_them.find(b"\n") >= 0 or all_of_them.find(b"\r") >= 0:
            raise ValueError("a header of the answer has a line break in it")
        self.lines = b"\r\n".join([*written, b""])

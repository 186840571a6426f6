"""ResponseHeaders: headers of an answer in the form in which they are written.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

LENGTH = b"content-length"


class ResponseHeaders:
    """Headers of an answer as they are written. Make equal headers once, and use them for many answers.

    `headers`: all but the Content-Length, with names in lower case; `length`: bytes of the body, where the headers say;
    `lines`: the bytes to write; `closes`: whether the headers announce the end of the connection.
    """

    __slots__ = ("closes", "headers", "length", "lines")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises ValueError: a header contains a line break, and would be written as two."""
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

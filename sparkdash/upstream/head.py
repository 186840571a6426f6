"""Head: what an engine says before a body, but for the body's length. Pure."""

from __future__ import annotations

from typing import Any

Header = tuple[bytes, bytes]

UNTOLD = "application/octet-stream"
"""What a body is of which the answer says nothing."""


class Head:
    """The headers of an answer. On one connection an engine says the same again and again (its date changes once a second): that is
    one object then, and what was found out about it is kept in `memo`.
    """

    __slots__ = ("content_type", "headers", "is_chunked", "memo", "words")

    def __init__(self, words: list[Header]) -> None:
        self.words = words
        """As they came."""
        self.headers = [(name.lower(), value) for name, value in words]
        self.content_type = UNTOLD
        """Media type without parameters, in lower case."""
        self.is_chunked = False
        for name, value in self.headers:
            if name == b"content-type":
                self.content_type = value.partition(b";")[0].strip().lower().decode("latin-1")
            elif name == b"transfer-encoding" and b"chunked" in value.lower():
                self.is_chunked = True
        self.memo: Any = None
        """For whoever asks the engine: what follows from the headers alone."""

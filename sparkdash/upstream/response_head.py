"""Head: what an engine says before a body, but for the body's length, and the lines of what it is told before one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparkdash.errors import UpstreamError

Header = tuple[bytes, bytes]

UNTOLD = "application/octet-stream"
"""What a body is of which the answer says nothing."""


class ResponseHead:
    """The headers of an answer. On one connection an engine says the same again and again (its date changes once a second): that is
    one object then, and what was found out about it is kept in `memo`. `headers`: their names in lower case.
    """

    __slots__ = ("content_type", "headers", "is_chunked", "memo")

    def __init__(self, headers: list[Header]) -> None:
        self.headers = headers
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


def encode_headers(headers: Iterable[Header]) -> bytes:
    """Headers in the form in which they are written; who sends the same again and again makes it once.

    Raises:
        UpstreamError: code `engine_unreachable`: one of them has a line break in it, and would be another.
    """
    written = [b": ".join(header) for header in headers]
    all_of_them = b"".join(written)
    if all_of_them.find(b"\n") >= 0 or all_of_them.find(b"\r") >= 0:
        raise UpstreamError(
            "A header of the request to the engine has a line break in it.",
            code="engine_unreachable",
            hint="Look at the engine's key in its profile and in the environment.",
        )
    return b"\r\n".join([*written, b""])

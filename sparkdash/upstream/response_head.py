"""ResponseHead: headers of an engine's answer; and the headers of a request as they are written.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparkdash.errors import UpstreamError

Header = tuple[bytes, bytes]

UNNAMED_TYPE = "application/octet-stream"
"""Media type of a body for which the answer names none."""


class ResponseHead:
    """Headers of an answer, but for its length.

    An engine sends the same headers again and again on one connection (the date changes once a second): they are one
    object, and what was found out about them is kept in `memo`. `headers`: with names in lower case.
    """

    __slots__ = ("content_type", "headers", "is_chunked", "memo")

    def __init__(self, headers: list[Header]) -> None:
        self.headers = headers
        self.content_type = UNNAMED_TYPE
        """Media type without parameters, in lower case."""
        self.is_chunked = False
        for name, value in self.headers:
            if name == b"content-type":
                self.content_type = value.partition(b";")[0].strip().lower().decode("latin-1")
            elif name == b"transfer-encoding" and b"chunked" in value.lower():
                self.is_chunked = True
        self.memo: object = None
        """The caller's: what follows from the headers alone."""


def encode_headers(headers: Iterable[Header]) -> bytes:
    """Return headers as they are written. Encode equal headers once, and use them for many requests.

    Raises:
        UpstreamError: code `engine_unreachable`: a header contains a line break, and would be written as two.
    """
    written = [b": ".join(header) for header in headers]
    all_of_them = b"".join(written)
    if all_of_them.find(b"\n") >= 0 or all_of_them.find(b"\r") >= 0:
        raise UpstreamError(
            "A header of the request to the engine contains a line break.",
            code="engine_unreachable",
            hint="Check the engine's key in its profile and in the environment.",
        )
    return b"\r\n".join([*written, b""])

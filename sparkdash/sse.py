"""Server-sent events: their lines, frames and fields out of raw bytes.

Rule: lines end at \\n, \\r or \\r\\n only (HTML standard, section 9.2.5). `str.splitlines` (and httpx's `iter_lines`)
also cut at U+2028, U+0085 and form feeds, which a log line inside JSON may well hold. Pure.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
"""A \\r at the very end may be half of \\r\\n: it waits for the next chunk."""
BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
"""End of a frame: two line ends, of one kind or of two."""
_ENDS_FRAME = re.compile(BLANK_LINE.pattern + rb"\Z")


def ends_frame(data: bytes) -> bool:
    return _ENDS_FRAME.search(data[-4:]) is not None


def whole_frames(data: bytes) -> int:
    """Length of the whole frames at the beginning of `data`; 0 without any.

    A \\r after a \\n counts as half of a \\r\\n until more comes: no server was seen to mix them otherwise.
    """
    lf, cr, crlf = data.rfind(b"\n\n"), data.rfind(b"\r\r"), data.rfind(b"\n\r\n")
    return max(lf + 2 if lf >= 0 else 0, cr + 2 if cr >= 0 else 0, crlf + 3 if crlf >= 0 else 0)


def data_of(line: str) -> str | None:
    """Return the data of a line of a stream; None for a line without any.

    llama-server before September 2025 wrote `error: {…}` in place of `data: {"error": {…}}`, and it is read as that.
    """
    key, _, value = line.partition(":")
    value = value.removeprefix(" ")
    if key == "error":
        return f'{{"error": {value}}}'
    return value if key == "data" else None


class Frame(NamedTuple):
    """Event of a stream; `name` is "message" when the server gave none."""

    name: str
    data: str


class Lines:
    """Bytes in, whole lines out."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the lines that `chunk` completes, without their ends."""
        *whole, self._rest = _END.split(self._rest + chunk)
        for line in whole:
            yield line.decode("utf-8", "replace")

    def end(self) -> Iterator[str]:
        """Yield what is left when the stream ends."""
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        if rest:
            yield rest.decode("utf-8", "replace")


class Frames:
    """Bytes in, events out; comments, ids and retry hints are passed over."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield the events that `chunk` completes. An event that the end of the stream cuts off is dropped."""
        for line in self._lines.feed(chunk):
            if line:
                self._field(line)
            elif frame := self._dispatch():
                yield frame

    def _field(self, line: str) -> None:
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if key == "event":
            self._name = value
        elif (data := data_of(line)) is not None:
            self._data.append(data)

    def _dispatch(self) -> Frame | None:
        name, data = self._name or "message", self._data
        self._name, self._data = "", []
        return Frame(name, "\n".join(data)) if data else None

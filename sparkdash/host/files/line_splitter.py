"""Splitter of an engine's output bytes into lines.

Owns: the end of a line (newline or carriage return, so that progress bars count) and its longest length. Must not know
where the bytes come from.
"""

from __future__ import annotations

import re

LINE_LIMIT = 8192
"""Bytes of a line that are kept; a cut is marked. An engine's longest useful line is its config, 3-5 kB."""

_BREAK = re.compile(rb"([\r\n])")


class LineSplitter:
    """Turns chunks into whole lines. Bytes that are not UTF-8 become U+FFFD; empty progress lines are dropped."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._line = bytearray()
        self._after_return = False

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines that `chunk` completes."""
        parts = _BREAK.split(chunk)
        lines = []
        for text, end in zip(parts[::2], [*parts[1::2], b""], strict=True):
            self._keep(text)
            if end and (line := self._end(end)) is not None:
                lines.append(line)
        return lines

    def rest(self) -> list[str]:
        """Return the unfinished line at the end of the stream, if any."""
        return [self._take()] if self._line else []

    def _keep(self, text: bytes) -> None:
        room = self._limit + 1 - len(self._line)
        self._line += text[: max(room, 0)]
        self._after_return = self._after_return and not text

    def _end(self, end: bytes) -> str | None:
        empty = not self._line
        noise = empty and (end == b"\r" or self._after_return)
        self._after_return = end == b"\r"
        return None if noise else self._take()

    def _take(self) -> str:
        kept, cut = self._line[: self._limit], len(self._line) > self._limit
        self._line = bytearray()
        return kept.decode("utf-8", "replace") + ("…" if cut else "")

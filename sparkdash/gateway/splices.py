"""Splices: the few bytes of an answer's stream that must differ for its client.

Owns: what is taken out of an engine's stream or changed in it. Pure: bytes in, bytes out. Must not know why.
Rule 1: a stream that needs no splice never comes here; one that does pays for one search per chunk.
Rule 2: streams may be cut anywhere. Only whole frames are judged, so a frame's first half waits for the rest of it; no
client can read half a frame. Every other byte leaves as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

FRAME_LIMIT = 64 * 1024
"""Of a frame longer than this nothing is held back: what is spliced is short."""
_COUNTS_ONLY = re.compile(rb'"choices": ?\[ ?\]')
_COUNTS = re.compile(rb'"usage": ?\{')
_RESPONSE_ID = re.compile(rb'"response": ?\{"id": ?"([^"]+)"')
_BLANK_LINE = re.compile(rb"\n\r?\n")


class Splice(Protocol):
    """One stream's. What `feed` and `end` give, one after the other, is what the client gets."""

    def feed(self, chunk: bytes) -> bytes:
        """What may leave now; empty while a frame is not whole."""
        ...

    def end(self) -> bytes:
        """What is left once the engine has ended."""
        ...


class Frames:
    """Cuts a stream into whole frames, and gives those that hold anything worth a look to `_spliced`."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """See Splice."""
        data = self._rest + chunk if self._rest else chunk
        end = _after_blank_line(data)
        if len(data) - end > FRAME_LIMIT:
            end = len(data)
        self._rest = data[end:]
        whole = data if end == len(data) else data[:end]
        return self._spliced(whole) if self._matters(whole) else whole

    def end(self) -> bytes:
        """See Splice."""
        rest, self._rest = self._rest, b""
        return rest

    def _matters(self, frames: bytes) -> bool:
        raise NotImplementedError

    def _spliced(self, frames: bytes) -> bytes:
        return b"".join(map(self._frame, _each(frames)))

    def _frame(self, frame: bytes) -> bytes:
        raise NotImplementedError


class WithoutUsage(Frames):
    """Takes the chunk out that `stream_options.include_usage` brings: no choices, only counts."""

    def _matters(self, frames: bytes) -> bool:
        return _COUNTS_ONLY.search(frames) is not None

    def _frame(self, frame: bytes) -> bytes:
        begins = frame.lstrip(b"\r\n")
        told = begins.startswith(b"data:") and _COUNTS_ONLY.search(frame) and _COUNTS.search(frame)
        return frame[: len(frame) - len(begins)] if told else frame


class UnderOurId(Frames):
    """An engine's /v1/responses stream under the id that the client was given while it waited.

    The SDKs refuse a lifecycle whose id changes.
    """

    def __init__(self, ours: str) -> None:
        super().__init__()
        self._ours = ours.encode()
        self._theirs = b""

    def _matters(self, frames: bytes) -> bool:
        return not self._theirs or self._theirs in frames

    def _spliced(self, frames: bytes) -> bytes:
        if not self._theirs and (found := _RESPONSE_ID.search(frames)):
            self._theirs = found[1]
        return frames.replace(self._theirs, self._ours) if self._theirs else frames


def _after_blank_line(data: bytes) -> int:
    """Where the last whole frame ends; 0 when there is none."""
    plain, crlf = data.rfind(b"\n\n"), data.rfind(b"\n\r\n")
    return max(plain + 2 if plain >= 0 else 0, crlf + 3 if crlf >= 0 else 0)


def _each(frames: bytes) -> Iterator[bytes]:
    """Frame by frame, each with its blank line; the last may lack it."""
    start = 0
    for blank in _BLANK_LINE.finditer(frames):
        yield frames[start : blank.end()]
        start = blank.end()
    if start < len(frames):
        yield frames[start:]

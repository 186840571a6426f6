"""Splices: the few bytes of an answer's stream that must differ for its client.

Owns: what is removed from an engine's stream or changed in it. Must not know why.
Rule 1: a stream that needs no splice never comes here. Others cost one search per chunk, by `find`: `in` tries its left
side as a number first, which raises and drops an error and costs many times the search.
Rule 2: streams may be cut anywhere. Only whole frames are judged, so the first half of a frame waits for the rest; no
client can read half a frame. Every other byte is unchanged.

Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Protocol

from sparkdash.sse import BLANK_LINE, ends_frame, whole_frames

FRAME_LIMIT = 64 * 1024
"""Bytes; a longer frame is not held back, as changed frames are short."""
_COUNTS_ONLY = re.compile(rb'"choices": ?\[\]')
_COUNTS = re.compile(rb'"usage": ?\{')
_RESPONSE_ID = re.compile(rb'"response": ?\{"id": ?"([^"]+)"')
_OPENS_RESPONSE = re.compile(rb"(?:^|[\r\n])event: ?response\.(?:created|queued|in_progress)[\r\n]")
_SEQUENCE = re.compile(rb'("sequence_number": ?)(\d+)')
_MESSAGE_EVENT = re.compile(rb"(?:^|[\r\n])event: ?(\w+)")
DATA = re.compile(rb"(?:^|[\r\n])data: ?(?=\{)")
"""Prefix of a frame, before its JSON object."""
_DECODER = json.JSONDecoder()
_INDEX = re.compile(rb'("index": ?)(\d+)')
_END_OF_THINKING = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'


class Splice(Protocol):
    """Changes one stream: the client gets what `feed` and `end` return, in order."""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; return what may go out now, nothing while a frame is incomplete."""
        ...

    def end(self) -> bytes:
        """Return the rest, once the engine has ended."""
        ...


class FrameSplice:
    """Cuts a stream into whole frames, and passes those that contain `_mark` to `_frame`."""

    _mark = b""
    """Bytes in every frame that may change."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; return the whole frames, changed where needed."""
        if not self._rest and chunk.endswith(b"\n\n"):  # nearly every chunk
            return self._spliced(chunk) if chunk.find(self._mark) >= 0 else chunk
        data = self._rest + chunk if self._rest else chunk
        end = whole_frames(data)
        if len(data) - end > FRAME_LIMIT:
            end = len(data)
        self._rest = data[end:]
        whole = data[:end]
        return self._spliced(whole) if whole.find(self._mark) >= 0 else whole

    def end(self) -> bytes:
        """Return the rest."""
        rest, self._rest = self._rest, b""
        return self._spliced(rest) if ends_frame(rest) else rest

    def _spliced(self, frames: bytes) -> bytes:
        return b"".join(map(self._frame, _each(frames)))

    def _frame(self, frame: bytes) -> bytes:
        raise NotImplementedError


class WithoutUsage(FrameSplice):
    """Removes the chunk that `stream_options.include_usage` adds: no choices, only counts."""

    _mark = b"[]"

    def _spliced(self, frames: bytes) -> bytes:
        return super()._spliced(frames) if _COUNTS_ONLY.search(frames) else frames

    def _frame(self, frame: bytes) -> bytes:
        is_usage = DATA.search(frame) and _COUNTS_ONLY.search(frame) and _COUNTS.search(frame)
        return frame[: len(frame) - len(frame.lstrip(b"\r\n"))] if is_usage else frame


class ContinuedResponse(FrameSplice):
    """Continues our own /v1/responses stream, which began while the client waited, with the engine's.

    `events_sent`: number of our events. The engine's opening events are removed, its id becomes ours (the SDKs refuse a
    change of id) and its numbers continue ours.
    """

    def __init__(self, own_id: str, events_sent: int) -> None:
        super().__init__()
        self._own_id = own_id.encode()
        self._engine_id = b""
        self._offset = events_sent
        """Offset from the engine's numbers to the client's."""
        self.number = events_sent - 1
        """Number of the last event that the client got."""

    def _frame(self, frame: bytes) -> bytes:
        if not self._engine_id and (found := _RESPONSE_ID.search(frame)):
            self._engine_id = found[1]
        if _OPENS_RESPONSE.search(frame):
            self._offset -= 1
            return b""
        if self._engine_id:
            frame = frame.replace(self._engine_id, self._own_id)
        return _SEQUENCE.sub(self._numbered, frame, count=1)

    def _numbered(self, found: re.Match[bytes]) -> bytes:
        self.number = int(found[2]) + self._offset
        return found[1] + b"%d" % self.number


class ContinuedMessage(FrameSplice):
    """Continues a /v1/messages stream after our own thinking block.

    The block is closed and the engine's blocks are numbered after it. The engine's message_start is removed; its counts
    go out with the last ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, Any] = {}

    def _frame(self, frame: bytes) -> bytes:
        found = _MESSAGE_EVENT.search(frame)
        kind = found[1] if found else b""
        if kind == b"message_start":
            self._counts = _object(frame)[0].get("message", {}).get("usage") or {}
            return _END_OF_THINKING
        if kind == b"message_delta" and self._counts:
            body, start, end = _object(frame)
            counts = {key: value for key, value in (body.get("usage") or {}).items() if value is not None}
            return frame[:start] + _json(body | {"usage": self._counts | counts}) + frame[end:] if body else frame
        if kind.startswith(b"content_block"):
            return _INDEX.sub(lambda index: index[1] + b"%d" % (int(index[2]) + 1), frame, count=1)
        return frame


def _object(frame: bytes) -> tuple[dict[str, Any], int, int]:
    """Parse the JSON object of one frame; return it with its start and end, or empty without one."""
    found = DATA.search(frame)
    if found is None:
        return {}, 0, 0
    start = found.end()
    try:
        text = frame[start:].decode()
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return {}, 0, 0
    return value, start, start + len(text[:end].encode())


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _each(frames: bytes) -> Iterator[bytes]:
    """Yield frame by frame, each with its blank line; the last may lack it."""
    start = 0
    for blank in BLANK_LINE.finditer(frames):
        yield frames[start : blank.end()]
        start = blank.end()
    if start < len(frames):
        yield frames[start:]

"""Splices: the few bytes of an answer's stream that must differ for its client.

Rule 1: a stream that needs no splice never comes here. Others cost one search per chunk, by `find`: `in` tries its
left side as a number first, which raises and drops an error and costs many times the search.
Rule 2: streams may be cut anywhere. Only whole frames are judged, so the first half of a frame waits for the rest; no
client can read half a frame. Every other frame is unchanged. Pure.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

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


WHOLE_LIMIT = 1024 * 1024
"""Bytes; a longer answer that is no stream is left unchanged, as reading it would delay all other requests."""
_SAID = "reasoning"
_ALSO = "reasoning_content"
_MARK = b'"reasoning"'


def mirror_splice(*, stream: bool, before: Splice | None) -> Splice:
    if not stream:
        return _Whole(WHOLE_LIMIT, _mirrored_whole)
    return _Chunks() if before is None else _Both(before, _Chunks())


class _Both:
    """Two splices in sequence."""

    def __init__(self, first: Splice, second: Splice) -> None:
        self._first = first
        self._second = second

    def feed(self, chunk: bytes) -> bytes:
        return self._second.feed(self._first.feed(chunk))

    def end(self) -> bytes:
        return self._second.feed(self._first.end()) + self._second.end()


class _Chunks(FrameSplice):
    _mark = _MARK

    def _frame(self, frame: bytes) -> bytes:
        body, start, end = _object(frame) if frame.find(_MARK) >= 0 else ({}, 0, 0)
        return frame[:start] + _json(body) + frame[end:] if _mirror(body, "delta") else frame


class _Whole:
    """Splice of an answer that is no stream: held back until it has ended, then changed; beyond `limit` it passes."""

    def __init__(self, limit: int, change: Callable[[bytes], bytes]) -> None:
        self._limit = limit
        self._change = change
        self._held: bytearray | None = bytearray()
        """Answer so far; None once it is too long, and passes as it is."""

    def feed(self, chunk: bytes) -> bytes:
        if self._held is None:
            return chunk
        self._held += chunk
        if len(self._held) <= self._limit:
            return b""
        whole, self._held = bytes(self._held), None
        return whole

    def end(self) -> bytes:
        return b"" if self._held is None else self._change(bytes(self._held))


def _mirrored_whole(body: bytes) -> bytes:
    try:
        answer: Any = json.loads(body) if body.find(_MARK) >= 0 else {}
    except (ValueError, RecursionError):
        return body
    return _json(answer) if _mirror(answer, "message") else body


def _mirror(answer: Any, message: str) -> bool:
    """Repeat the reasoning of each choice's `message` under its other name; whether any had but the first."""
    try:
        said = [choice[message] for choice in answer["choices"] if message in choice]
        alone = [each for each in said if isinstance(each.get(_SAID), str) and _ALSO not in each]
    except (LookupError, TypeError, AttributeError):  # no chat's answer
        return False
    for each in alone:
        each[_ALSO] = each[_SAID]
    return bool(alone)


RERANK_PATHS = ("/v1/rerank", "/v2/rerank", "/rerank")
_OWN_KEYS = ("raw_scores", "truncate", "truncation_direction")
"""Keys of the server that a request may have too."""
ANSWER_LIMIT = 16 * 1024**2
"""Bytes; a longer answer passes as it is."""


class Ranking(NamedTuple):
    """Facts of a request that its answer needs. `most`: number of results asked for; None means all."""

    model: str
    most: int | None
    with_documents: bool


def as_texts(body: bytes, model: str) -> tuple[bytes, Ranking | None]:
    """Rewrite a request with `documents`; return it with what its answer needs. Raises ValueError: no JSON."""
    asked: Any = json.loads(body)
    documents = asked.get("documents") if isinstance(asked, dict) else None
    if not isinstance(documents, list) or "texts" in asked:
        return body, None
    texts = [one.get("text") if isinstance(one, dict) else one for one in documents]
    with_documents, most = bool(asked.get("return_documents")), asked.get("top_n")
    sent = {"query": asked.get("query"), "texts": texts, "return_text": with_documents}
    sent |= {key: asked[key] for key in _OWN_KEYS if key in asked}
    ranking = Ranking(model, most if isinstance(most, int) and most >= 0 else None, with_documents)
    return json.dumps(sent, ensure_ascii=False).encode(), ranking


def as_results(body: bytes, ranking: Ranking) -> bytes:
    """Return an answer as `/v1/rerank` has it, best first; another one, such as an error, unchanged."""
    try:
        rows: Any = json.loads(body)
        best = sorted(rows, key=lambda row: -row["score"])[: ranking.most]
        results = [_result(row, with_document=ranking.with_documents) for row in best]
    except (ValueError, RecursionError, TypeError, KeyError):
        return body
    return json.dumps({"model": ranking.model, "results": results}, ensure_ascii=False).encode()


def _result(row: dict[str, Any], *, with_document: bool) -> dict[str, Any]:
    found = {"index": row["index"], "relevance_score": row["score"]}
    return found | {"document": {"text": row["text"]}} if with_document and "text" in row else found


def rank_splice(ranking: Ranking) -> Splice:
    return _Whole(ANSWER_LIMIT, lambda body: as_results(body, ranking))

"""Mirror: a chat's reasoning under both of the names that clients read.

Owns: finding `reasoning` in an answer's own message, and adding the same text as `reasoning_content`. vLLM since 0.16
writes the first only; aider and Zed's llama.cpp provider read the second only. Must not know who asked for it.
Rule: only `choices[].delta` and `choices[].message` count, found by reading the JSON, as the word may stand anywhere
else in an answer. The text is copied as it is written, and every other byte is unchanged.

Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from sparkdash.gateway.protocol.splices import DATA, FrameSplice, Splice

WHOLE_LIMIT = 1024 * 1024
"""Bytes; a longer answer that is no stream is left unchanged, as reading it would delay all other requests."""
_SAID = "reasoning"
_ALSO = "reasoning_content"
_MARK = b'"reasoning"'
_GAP = re.compile(r"[\s,:]*")
_DECODER = json.JSONDecoder()


def mirror_splice(*, stream: bool, before: Splice | None) -> Splice:
    """Return the splice that mirrors reasoning, after the splice `before`."""
    if not stream:
        return _Whole()
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
        found = DATA.search(frame)
        return frame if found is None else frame[: found.end()] + _doubled(frame[found.end() :], "delta")


class _Whole:
    """Splice of an answer that is no stream; holds it back until it has ended."""

    def __init__(self) -> None:
        self._held: list[bytes] | None = []
        self._size = 0

    def feed(self, chunk: bytes) -> bytes:
        if self._held is None:
            return chunk
        self._held.append(chunk)
        self._size += len(chunk)
        if self._size <= WHOLE_LIMIT:
            return b""
        held, self._held = self._held, None
        return b"".join(held)

    def end(self) -> bytes:
        return _doubled(b"".join(self._held or ()), "message")


def _doubled(body: bytes, message: str) -> bytes:
    """Mirror the reasoning in a JSON object. `message`: key of a choice's message."""
    if body.find(_MARK) < 0:
        return body
    try:
        text = body.decode()
        return "".join(_pieces(text, message)).encode()
    except (ValueError, IndexError, RecursionError):  # unreadable JSON
        return body


def _pieces(text: str, message: str) -> Iterator[str]:
    done = 0
    for place in _places(text, text.find("{"), ("choices", None, message)):
        members = {key: (start, end) for key, start, end in _members(text, place)}
        if _SAID not in members or _ALSO in members:
            continue
        start, end = members[_SAID]
        if text[start] == '"':  # it may be null
            yield f'{text[done:end]},"{_ALSO}":{text[start:end]}'
            done = end
    yield text[done:]


def _places(text: str, at: int, path: tuple[str | None, ...]) -> Iterator[int]:
    """Yield the positions of the values at the end of `path`, from `at` on; None stands for each item of an array."""
    if not path:
        yield at
        return
    for key, start, _ in _members(text, at):
        if key == path[0]:
            yield from _places(text, start, path[1:])


def _members(text: str, at: int) -> Iterator[tuple[str | None, int, int]]:
    """Yield each member of the object or array at `at`: key (None in an array), begin and end of its value."""
    if text[at] not in "{[":
        return
    keyed = text[at] == "{"
    at = _beyond_gap(text, at + 1)
    while text[at] not in "}]":
        key = None
        if keyed:
            key, at = _DECODER.raw_decode(text, at)
            at = _beyond_gap(text, at)
        _, end = _DECODER.raw_decode(text, at)
        yield key, at, end
        at = _beyond_gap(text, end)


def _beyond_gap(text: str, at: int) -> int:
    found = _GAP.match(text, at)
    return found.end() if found else at

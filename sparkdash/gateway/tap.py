"""Tap: what an answer tells while it passes by.

Owns: time to first token, time of the last one, and the engine's own token counts. Pure but for the clock it is handed.
Rule 1: once text has begun a chunk is put down with its time, and nothing is searched: when the last text came, and the counts,
are looked for once, at the end, in the tail. What is kept is little, so that a chunk's memory is soon the next one's.
Rule 2: a chunk is neither a frame nor a token. Frames may be split anywhere; one chunk may hold many tokens.
Rule 3: tokens are counted by the engine (usage, or llama.cpp's timings), never by us; without them there is no rate.

Searching bytes is sound: inside a JSON string every quote is escaped, so `"key":"` cannot occur in a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from sparkdash.gateway.route import Dialect

TAIL = 8 * 1024
"""Kept of a stream's end, at least: the last text, the reason and the counts are in its last few events."""
LONG_TAIL = 64 * 1024
"""The same of /v1/responses, whose last event echoes the tools before the counts, and of an answer that is no stream."""
HEAD = 8 * 1024
"""Kept of the beginning."""
CARRY = 64
"""Longer than any pattern below: what is carried over when a chunk ends in the middle of a line."""
_TOOL = rb'"tool_calls": ?\[ ?\{'
_TEXT = {
    Dialect.CHAT: re.compile(rb'"(?:content|reasoning|reasoning_content|refusal|arguments)": ?"[^"]|' + _TOOL),
    Dialect.COMPLETIONS: re.compile(rb'"(?:text|content)": ?"[^"]'),
    Dialect.RESPONSES: re.compile(rb'"delta": ?"[^"]'),
    Dialect.MESSAGES: re.compile(rb'"(?:text|thinking|partial_json)": ?"[^"]|"type": ?"tool_use"'),
    Dialect.OTHER: re.compile(rb'"(?:text|content|delta)": ?"[^"]'),
}
_USAGE = b'"usage":'
_FIRST_USAGE = re.compile(_USAGE + rb" ?(\{)")
_TIMINGS = b'"timings":'
_ERROR = re.compile(rb'\n(?:data: ?\{"error"|event: ?(?:error|response\.failed))')
_FINISH = b'"finish_reason":'
_STOP = b'"stop_reason":'
"""The same in /v1/messages; in a chat vLLM has both, and there it is the word that was met."""
_WORD = re.compile(rb' ?"(\w+)"')
_OPENS = re.compile(rb" ?(\{)")
_DECODER = json.JSONDecoder()
_LAST = {
    Dialect.CHAT: re.compile(rb"data: ?\[DONE\]\s*$"),
    Dialect.COMPLETIONS: re.compile(rb"data: ?\[DONE\]\s*$"),
    Dialect.RESPONSES: re.compile(rb"\nevent: ?response\.(?:completed|failed|incomplete)\r?\n"),
    Dialect.MESSAGES: re.compile(rb"\nevent: ?message_stop\r?\n"),
}
"""What ends a stream for its clients, who then need not wait for the connection to end."""
_CHAT = ("prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details")
_RESPONSES = ("input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details")
"""How the two protocols of OpenAI's call the same counts."""
_RESPONSE_ID = re.compile(rb'"id": ?"(resp_[^"]+)"')
_SEQUENCE = re.compile(rb'"sequence_number": ?(\d+)')


class Usage(NamedTuple):
    """The engine's own counts, in tokens; None is not told. `prompt` includes the cached ones."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    reasoning: int | None = None
    """Part of `completion`."""


class Tap:
    """One answer's. Feed it every chunk; ask it afterwards. `on_first` is called once, at the first text.

    `stream`: is it an event stream? Of any other answer only the counts are known, not when its text was made.
    """

    def __init__(self, dialect: Dialect, *, stream: bool = True, on_first: Callable[[], None] | None = None) -> None:
        self._dialect = dialect
        self._stream = stream
        self._text = _TEXT[dialect]
        self._on_first = on_first
        self._chunks: list[bytes] = []
        self._times: list[float] = []
        """When each of them came."""
        self._kept = TAIL if stream and dialect is not Dialect.RESPONSES else LONG_TAIL
        self._full_at = 2 * self._kept
        """The size at which what is too old is dropped."""
        self._dropped = 0
        """Bytes that are no longer kept."""
        self._begun_with = b""
        """The head, once something was dropped."""
        self._last_dropped: float | None = None
        """When the last text came, as far as it is no longer kept."""
        self._joined = (0, b"")
        """The tail, and what size it was the tail of."""
        self.size = 0
        """Bytes so far."""
        self.first: float | None = None
        """When the first event with text, reasoning or a tool call came; the caller's clock."""

    def feed(self, chunk: bytes, now: float) -> None:
        """Take note of a chunk that came at `now`."""
        self._chunks.append(chunk)
        self._times.append(now)
        self.size = size = self.size + len(chunk)
        if self.first is None:
            self._look_for_text(now)
        if size > self._full_at:
            self._drop()

    def _look_for_text(self, now: float) -> None:
        if self._stream and self._bears_text(len(self._chunks) - 1):
            self.first = now
            if self._on_first is not None:
                self._on_first()

    def _bears_text(self, place: int) -> bool:
        """Does a text begin in this chunk, its line perhaps in those before?"""
        chunk, carry = self._chunks[place], b""
        while place and len(carry) < CARRY and not self._chunks[place - 1].endswith(b"\n"):
            place -= 1
            carry = self._chunks[place] + carry
        if not carry:
            return self._text.search(chunk) is not None
        carry = carry[-CARRY:]
        return any(found.end() > len(carry) for found in self._text.finditer(carry + chunk))

    @property
    def last(self) -> float | None:
        """When the last of those events came."""
        if self.first is None:
            return None
        backwards = range(len(self._chunks) - 1, -1, -1)
        found = next((place for place in backwards if self._bears_text(place)), None)
        return self._last_dropped if found is None else self._times[found]

    def _drop(self) -> None:
        """Keep the tail only."""
        if not self._dropped:
            self._begun_with = self._head()
        self._last_dropped = self.last
        old = 0
        while self.size - self._dropped - len(self._chunks[old]) >= self._kept:
            self._dropped += len(self._chunks[old])
            old += 1
        del self._chunks[:old], self._times[:old]
        self._full_at = self._dropped + 2 * self._kept

    def tail(self) -> bytes:
        """At least what is to be kept of the end, or all there was."""
        if self._joined[0] != self.size:
            self._joined = self.size, b"".join(self._chunks)
        return self._joined[1]

    def _head(self) -> bytes:
        """Of the beginning, where the prompt's tokens are told in /v1/messages, and the id in /v1/responses."""
        return self._begun_with if self._dropped else self.tail()[:HEAD]

    def _lines(self) -> bytes:
        """The tail, with what a line begins after before its first one, too."""
        return b"\n" + self.tail()

    def usage(self) -> Usage:
        """The engine's final counts."""
        tail = self.tail()
        counts = _last_object(_USAGE, tail)
        if counts and self._dialect is Dialect.MESSAGES:
            begun = _first_object(_FIRST_USAGE, self._head())
            found = _anthropic(begun | {key: value for key, value in counts.items() if value is not None})
            # the first event counts the answer too, at 0 or 1: no count of what has come since
            left = self._stream and counts == begun and not self.complete
            return found._replace(completion=None) if left else found
        if counts:
            return _openai(counts)
        return _llamacpp(_last_object(_TIMINGS, tail))

    def decode_tok_s(self, completion: int | None) -> float | None:
        """(completion tokens - 1) / (last - first text-bearing event); None when either is not known."""
        if completion is None or completion < 2 or self.first is None:
            return None
        last = self.last
        return None if last is None or last <= self.first else (completion - 1) / (last - self.first)

    @property
    def complete(self) -> bool:
        """Has the event come that ends the stream for its client?"""
        last = _LAST.get(self._dialect)
        return self._stream and last is not None and last.search(self._lines()) is not None

    @property
    def lacks_its_end(self) -> bool:
        """Is it a stream of a dialect that says when it is over, and did not: no last event, no reason, no error?"""
        says_so = self._stream and self._dialect in _LAST
        return says_so and not (self.complete or self.failed or self.finish_reason is not None)

    @property
    def failed(self) -> bool:
        """Did the engine tell of a failure inside a stream that began well?"""
        if not self._stream:
            return False
        tail = self.tail()
        return (b'{"error"' in tail or b"event:" in tail) and _ERROR.search(self._lines()) is not None

    @property
    def finish_reason(self) -> str | None:
        """The engine's word for why it stopped."""
        found = _last(_STOP if self._dialect is Dialect.MESSAGES else _FINISH, _WORD, self.tail())
        return found[1].decode() if found else None

    @property
    def between_frames(self) -> bool:
        """Is the stream at the end of a frame (or before the first), where another may begin?"""
        return self.size == 0 or self.tail().endswith((b"\n\n", b"\r\n\r\n"))

    @property
    def response_id(self) -> str | None:
        """The id that /v1/responses gave this answer."""
        found = _RESPONSE_ID.search(self._head())
        return found[1].decode() if found else None

    @property
    def sequence(self) -> int:
        """The last sequence number of /v1/responses; -1 before the first."""
        found = _SEQUENCE.findall(self.tail())
        return int(found[-1]) if found else -1


def error_code(body: bytes) -> str | None:
    """The word that an engine's error body has for the failure: its `code`, or its `type` where the code is the status."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(error, dict):
        return None
    words = (error.get("code"), error.get("type"))
    return next((word.encode("utf-8", "replace").decode() for word in words if isinstance(word, str)), None)


def _first_object(pattern: re.Pattern[bytes], data: bytes) -> dict[str, Any]:
    found = pattern.search(data)
    return _object_at(data, found.start(1)) if found else {}


def _last_object(key: bytes, data: bytes) -> dict[str, Any]:
    found = _last(key, _OPENS, data)
    return _object_at(data, found.start(1)) if found else {}


def _last(key: bytes, value: re.Pattern[bytes], data: bytes) -> re.Match[bytes] | None:
    """From the end backwards: the first that has such a value, as a stream may have the key with `null` in every chunk."""
    at = data.rfind(key)
    while at >= 0:
        if found := value.match(data, at + len(key)):
            return found
        at = data.rfind(key, 0, at)
    return None


def _object_at(data: bytes, start: int) -> dict[str, Any]:
    try:
        value, _ = _DECODER.raw_decode(data[start : start + HEAD].decode("utf-8", "replace"))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _count(counts: dict[str, Any], key: str) -> int | None:
    value = counts.get(key)
    return value if type(value) is int else None  # a bool is none


def _openai(counts: dict[str, Any]) -> Usage:
    if "prompt_tokens" in counts or "completion_tokens" in counts:
        prompt, completion, of_prompt, of_answer = _CHAT
    else:
        prompt, completion, of_prompt, of_answer = _RESPONSES
    reasoning = _detail(counts, of_answer, "reasoning_tokens")
    return Usage(
        _count(counts, prompt),
        _detail(counts, of_prompt, "cached_tokens"),
        _count(counts, completion),
        # SGLang tells it beside the others
        _count(counts, "reasoning_tokens") if reasoning is None else reasoning,
    )


def _detail(counts: dict[str, Any], group: str, key: str) -> int | None:
    details = counts.get(group)
    return _count(details, key) if isinstance(details, dict) else None


def _anthropic(counts: dict[str, Any]) -> Usage:
    """Here `input_tokens` leaves out what was read from or written to the cache."""
    cached, written = _count(counts, "cache_read_input_tokens"), _count(counts, "cache_creation_input_tokens")
    computed = _count(counts, "input_tokens")
    return Usage(
        prompt=None if computed is None else computed + (cached or 0) + (written or 0),
        cached=cached,
        completion=_count(counts, "output_tokens"),
    )


def _llamacpp(timings: dict[str, Any]) -> Usage:
    """`prompt_n` counts the computed ones only; builds before 2026 do not tell the cached ones."""
    cached, computed = _count(timings, "cache_n"), _count(timings, "prompt_n")
    known = cached is not None and computed is not None
    return Usage(
        prompt=(cached or 0) + (computed or 0) if known else None,
        cached=cached,
        completion=_count(timings, "predicted_n"),
    )

"""Tap: what an answer tells while it passes by.

Owns: time to first token, time of the last one, and the engine's own token counts. Pure but for the clock it is handed.
Rule 1: per chunk there is one search and one append; no JSON. Counts come once, at the end, from the tail.
Rule 2: a chunk is neither a frame nor a token. Frames may be split anywhere; one chunk may hold many tokens.
Rule 3: tokens are counted by the engine (usage, or llama.cpp's timings), never by us; without them there is no rate.

Searching bytes is sound: inside a JSON string every quote is escaped, so `"key":"` cannot occur in a text.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from sparkdash.gateway.route import Dialect

TAIL = 64 * 1024
"""Kept of the end: holds the final usage even where it follows the tools echoed by /v1/responses."""
HEAD = 8 * 1024
"""Kept of the beginning, where something is told there: the prompt's tokens in /v1/messages, the id in /v1/responses."""
_HEADED = frozenset({Dialect.MESSAGES, Dialect.RESPONSES})
CARRY = 64
"""Longer than any pattern below: what is carried over when a chunk ends in the middle of a line."""
EMPTY = (b'"', b"")
"""What follows a key's opening quote when there is no text, or not yet."""
NEVER = b"\0"
"""Occurs in no event stream."""

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
_FINISH = re.compile(rb'"finish_reason": ?"(\w+)"')
_STOP = re.compile(rb'"stop_reason": ?"(\w+)"')
"""The same in /v1/messages; in a chat vLLM has both, and there it is the word that was met."""
NEAR = 4 * 1024
"""Of the end: holds the reason of nearly every stream, so that the rest need not be searched."""
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
        self._bears_text = _TEXT[dialect].search
        self._on_first = on_first
        self._likely = NEVER
        self._carry = b""
        self._tail: deque[bytes] = deque()
        self._dropped = 0
        """Bytes that the tail no longer has."""
        self._head = b""
        self._head_limit = HEAD if dialect in _HEADED else 0
        self.size = 0
        """Bytes so far."""
        self.first: float | None = None
        """When the first event with text, reasoning or a tool call came; the caller's clock."""
        self.last: float | None = None
        """When the last of them came."""

    def feed(self, chunk: bytes, now: float) -> None:
        """Take note of a chunk that came at `now`."""
        size = self.size
        if size < self._head_limit:
            self._head += chunk[: HEAD - size]
        self.size = size = size + len(chunk)
        self._tail.append(chunk)
        if size - self._dropped > 4 * TAIL:
            self._trim()
        if not self._stream:
            return
        text = self._carry + chunk if self._carry else chunk
        self._carry = b"" if chunk.endswith(b"\n") else text[-CARRY:]
        # what bore text last time is looked for first: that is seven times as quick as the pattern
        at = text.find(self._likely)
        if (at >= 0 and text[at + len(self._likely) : at + len(self._likely) + 1] not in EMPTY) or self._bears(text):
            self.last = now
            if self.first is None:
                self._begins(now)

    def _bears(self, text: bytes) -> bool:
        found = self._bears_text(text)
        if found is not None and found[0][-2:-1] == b'"':
            self._likely = found[0][:-1]
        return found is not None

    def _begins(self, now: float) -> None:
        self.first = now
        if self._on_first is not None:
            self._on_first()

    def _trim(self) -> None:
        while self.size - self._dropped - len(self._tail[0]) >= TAIL:
            self._dropped += len(self._tail.popleft())

    def tail(self) -> bytes:
        """At least the last 64 KiB, or all there was."""
        if len(self._tail) > 1:
            self._trim()
            self._tail = deque((b"".join(self._tail),))
        return self._tail[0] if self._tail else b""

    def _lines(self) -> bytes:
        """The tail, with what a line begins after before its first one, too."""
        return b"\n" + self.tail()

    def usage(self) -> Usage:
        """The engine's final counts."""
        tail = self.tail()
        counts = _last_object(_USAGE, tail)
        if counts and self._dialect is Dialect.MESSAGES:
            begun = _first_object(_FIRST_USAGE, self._head)
            found = _anthropic(begun | {key: value for key, value in counts.items() if value is not None})
            # the first event counts the answer too, at 0 or 1: no count of what has come since
            left = self._stream and counts == begun and not self.complete
            return found._replace(completion=None) if left else found
        if counts:
            return _openai(counts)
        return _llamacpp(_last_object(_TIMINGS, tail))

    def decode_tok_s(self, completion: int | None) -> float | None:
        """(completion tokens - 1) / (last - first text-bearing event); None when either is not known."""
        if completion is None or completion < 2 or self.first is None or self.last is None or self.last <= self.first:
            return None
        return (completion - 1) / (self.last - self.first)

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
        reason, tail = _STOP if self._dialect is Dialect.MESSAGES else _FINISH, self.tail()
        words = reason.findall(tail[-NEAR:]) or reason.findall(tail)
        return words[-1].decode() if words else None

    @property
    def between_frames(self) -> bool:
        """Is the stream at the end of a frame (or before the first), where another may begin?"""
        return self.size == 0 or self.tail().endswith((b"\n\n", b"\r\n\r\n"))

    @property
    def response_id(self) -> str | None:
        """The id that /v1/responses gave this answer."""
        found = _RESPONSE_ID.search(self._head)
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
    """From the end backwards: the first that is one, as a stream may have the key with `null` in every chunk."""
    at = data.rfind(key)
    while at >= 0:
        if found := _OPENS.match(data, at + len(key)):
            return _object_at(data, found.start(1))
        at = data.rfind(key, 0, at)
    return {}


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

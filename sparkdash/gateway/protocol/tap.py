"""Tap: reads an answer while it passes by.

Times are passed in.
Rule 1: once text has begun, a chunk is stored with its time and nothing is searched. The time of the last text and
the counts are found once, at the end, in the tail. The tail is short, so that a chunk's memory is soon reused.
Rule 2: a chunk is neither a frame nor a token. Frames may be split anywhere; one chunk may hold many tokens.
Rule 3: without the engine's own counts there is no rate.

Searching bytes is sound: inside a JSON string every quote and every line end is escaped. So neither `"key":"` nor
`event: name` with a line end behind it can occur in a text. Patterns begin with a plain word: a line end there took
five times as long. Pure.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparkdash.gateway.protocol.problems import is_error
from sparkdash.gateway.protocol.route import Dialect
from sparkdash.sse import ends_frame

LIMIT = 8 * 1024
"""Bytes of one object of counts."""
IMPLAUSIBLE = 100_000_000
"""Tokens that no request has, ten times the longest context: such a count (one told 1e26) would spoil every sum."""
FINISH = b'"finish_reason":'
"""Key of the stop reason in OpenAI's protocols."""
STOP = b'"stop_reason":'
"""Key of the stop reason in /v1/messages. In a chat vLLM has both, and this one is the stop word that was met."""
_USAGE = b'"usage":'
_FIRST_USAGE = re.compile(_USAGE + rb" ?(\{)")
_TIMINGS = b'"timings":'
_WORD = re.compile(rb' ?"(\w+)"')
_OPENS = re.compile(rb" ?(\{)")
_DECODER = json.JSONDecoder()
_CHAT = ("prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details")
_RESPONSES = ("input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details")
"""Names of the same counts in OpenAI's two protocols."""


class TokenUsage(NamedTuple):
    """Token counts of the engine; None: not reported. `prompt` includes the cached tokens."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    reasoning: int | None = None
    """Tokens of reasoning; part of `completion`."""


_UNTOLD = TokenUsage()


def parse_usage(tail: bytes) -> TokenUsage:
    if counts := _last_object(_USAGE, tail):
        return _openai(counts)
    timings = _last_object(_TIMINGS, tail)
    return _llamacpp(timings) if timings else _UNTOLD


def parse_message_usage(head: bytes, tail: bytes) -> tuple[TokenUsage, bool]:
    """Read the counts of /v1/messages, and whether the end reported new ones.

    The prompt's counts are at the beginning, with a first count of the answer (0 or 1); the final count is at the end.
    """
    counts = _last_object(_USAGE, tail)
    if not counts:
        return parse_usage(tail), True
    first = _FIRST_USAGE.search(head)
    begun = _object_at(head, first.start(1)) if first else {}
    return _anthropic(begun | {key: value for key, value in counts.items() if value is not None}), counts != begun


def stop_reason(key: bytes, tail: bytes) -> str | None:
    """Read why the engine stopped. `key`: FINISH or STOP."""
    found = _last(key, _WORD, tail)
    return found[1].decode() if found else None


def error_code(body: bytes) -> str | None:
    """Read the code of an engine's error body: its `code`, or its `type` where the code is the status."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    if not isinstance(error, dict):
        return None
    words = (error.get("code"), error.get("type"))
    return next((word.encode("utf-8", "replace").decode() for word in words if isinstance(word, str)), None)


def _last_object(key: bytes, data: bytes) -> dict[str, Any]:
    found = _last(key, _OPENS, data)
    return _object_at(data, found.start(1)) if found else {}


def _last(key: bytes, value: re.Pattern[bytes], data: bytes) -> re.Match[bytes] | None:
    """Find the last occurrence with a value; a stream may have the key with `null` in every chunk."""
    at = data.rfind(key)
    while at >= 0:
        if found := value.match(data, at + len(key)):
            return found
        at = data.rfind(key, 0, at)
    return None


def _object_at(data: bytes, start: int) -> dict[str, Any]:
    try:
        value, _ = _DECODER.raw_decode(data[start : start + LIMIT].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _count(told: object, key: str) -> int | None:
    """Return the member of an object that can be a count; a bool is an int to isinstance."""
    value = told.get(key) if type(told) is dict else None
    return value if type(value) is int and 0 <= value < IMPLAUSIBLE else None


def _openai(told: dict[str, Any]) -> TokenUsage:
    if "prompt_tokens" in told or "completion_tokens" in told:
        prompt, completion, of_prompt, of_answer = _CHAT
    else:
        prompt, completion, of_prompt, of_answer = _RESPONSES
    cached = _count(told[of_prompt], "cached_tokens") if of_prompt in told else None
    reasoning = _count(told[of_answer], "reasoning_tokens") if of_answer in told else None
    if reasoning is None and "reasoning_tokens" in told:  # SGLang has it at the top level
        reasoning = _count(told, "reasoning_tokens")
    return TokenUsage(_count(told, prompt), cached, _count(told, completion), reasoning)


def _anthropic(told: dict[str, Any]) -> TokenUsage:
    """Read Anthropic's counts; `input_tokens` leaves out tokens read from or written to the cache."""
    cached, computed = _count(told, "cache_read_input_tokens"), _count(told, "input_tokens")
    written = _count(told, "cache_creation_input_tokens")
    return TokenUsage(
        prompt=None if computed is None else computed + (cached or 0) + (written or 0),
        cached=cached,
        completion=_count(told, "output_tokens"),
    )


def _llamacpp(told: dict[str, Any]) -> TokenUsage:
    """Read llama.cpp's timings; `prompt_n` counts computed tokens only, and builds before 2026 omit the cached ones."""
    cached, computed = _count(told, "cache_n"), _count(told, "prompt_n")
    prompt = None if cached is None or computed is None else cached + computed
    return TokenUsage(prompt=prompt, cached=cached, completion=_count(told, "predicted_n"))


TAIL = 8 * 1024
"""Bytes kept of a stream's end, at least: its last events hold the last text, the reason and the counts."""
LONG_TAIL = 64 * 1024
"""Bytes kept of /v1/responses, whose last event repeats the tools before the counts, and of whole answers."""
HEAD = 8 * 1024
"""Bytes kept of the beginning."""
CARRY = 64
"""Bytes carried over when a chunk ends in the middle of a line; longer than any pattern below."""
_TOOL = rb'"tool_calls": ?\[ ?\{'
_ERROR_DATA = re.compile(rb'data: ?\{"error"')
_ERROR_FIELD = re.compile(rb"(?<=[\r\n])error: ?\{")
"""As `sse.data_of` reads it; at the very begin of an answer it has no line end before it."""
_ERROR_EVENT = re.compile(rb"event: ?(?:error|response\.failed)[\r\n]")
_RESPONSE_ID = re.compile(rb'"id": ?"(resp_[^"]+)"')
_SEQUENCE = re.compile(rb'"sequence_number": ?(\d+)')
_DONE = re.compile(rb"data: ?\[DONE\](?:[\r\n]|$)")
_KEEP_ALIVES = re.compile(rb'(?:(?::[^\r\n]*|event: ?ping|data: ?\{"type": ?"ping"\})?[\r\n])+')
"""Comments and pings only. llama-server sends a comment every 30 s, also while its engine stands still."""


_EVENT = b"\ndata:"
_COUNTED = re.compile(rb'(?:completion_tokens|output_tokens|predicted_n)":')


@dataclass(frozen=True, slots=True)
class _Words:
    """Patterns of one protocol."""

    text: re.Pattern[bytes]
    """Begin of a text, of reasoning or of a tool call that is not empty."""
    last: re.Pattern[bytes] | None = None
    """End of a stream for its clients, who need not wait for the connection to close."""
    stop: bytes = FINISH
    tail: int = TAIL
    """Bytes to be kept of a stream's end."""
    counts_first: bool = False
    """Whether the prompt's counts are at the beginning."""
    work: re.Pattern[bytes] | None = None
    """Sign of an engine at work, in protocols whose engines send something before that."""


_WORDS = {
    Dialect.CHAT: _Words(
        re.compile(rb'"(?:content|reasoning|reasoning_content|refusal|arguments)": ?"[^"]|' + _TOOL), _DONE
    ),
    Dialect.COMPLETIONS: _Words(re.compile(rb'"(?:text|content)": ?"[^"]'), _DONE),
    Dialect.RESPONSES: _Words(
        re.compile(rb'"delta": ?"[^"]'),
        re.compile(rb"event: ?response\.(?:completed|failed|incomplete)[\r\n]"),
        tail=LONG_TAIL,
        work=re.compile(rb"event: ?response\.(?!(?:created|in_progress|queued)[\r\n])"),
    ),
    Dialect.MESSAGES: _Words(
        re.compile(rb'"(?:text|thinking|partial_json)": ?"[^"]|"type": ?"tool_use"'),
        re.compile(rb"event: ?message_stop[\r\n]"),
        stop=STOP,
        counts_first=True,
        work=re.compile(rb"event: ?(?!(?:message_start|content_block_start|ping)[\r\n])[a-z]"),
    ),
    Dialect.OTHER: _Words(re.compile(rb'"(?:text|content|delta)": ?"[^"]')),
}


class Tap:
    """Reads one answer: feed it every chunk, ask it afterwards. `on_first` is called once, at the first text.

    `stream`: whether the answer is an event stream; any other answer only tells counts, not times.
    """

    __slots__ = (
        "_begun_with", "_chunks", "_dropped", "_dropped_events", "_events_before", "_full_at", "_heard_dropped",
        "_joined", "_kept", "_last_dropped", "_on_first", "_stream", "_times", "_words", "first", "size",
    )  # fmt: skip

    def __init__(self, dialect: Dialect, *, stream: bool = True, on_first: Callable[[], None] | None = None) -> None:
        self._words = words = _WORDS[dialect]
        self._stream = stream
        self._on_first = on_first
        self._chunks: list[bytes] = []
        self._times: list[float] = []
        self._kept = words.tail if stream else LONG_TAIL
        self._full_at = 2 * self._kept
        """Size at which old chunks are dropped."""
        self._dropped = 0
        self._dropped_events = 0
        self._events_before = 0
        """Events before the first with text."""
        self._begun_with = b""
        """Begin of the answer, once something was dropped."""
        self._last_dropped: float | None = None
        """Time of the last text in dropped chunks."""
        self._heard_dropped: float | None = None
        """Time of the last dropped chunk that was no keep-alive."""
        self._joined = (0, b"")
        """Cache: size of the answer, and the tail at that size."""
        self.size = 0
        self.first: float | None = None
        """Time of the first event with text, reasoning or a tool call, by the caller's clock."""

    def feed(self, chunk: bytes, now: float) -> None:
        self._chunks.append(chunk)
        self._times.append(now)
        self.size = size = self.size + len(chunk)
        if self.first is None and self._stream:
            self._look_for_text(now)
        if size > self._full_at:
            self._drop()

    def _look_for_text(self, now: float) -> None:
        if self._bears_text(len(self._chunks) - 1):
            self.first = now
            found = self._words.text.search(self._chunks[-1])
            before = self._chunks[-1][: found.start()] if found else self._chunks[-1]
            self._events_before = max(0, _count_events([*self._chunks[:-1], before]) - 1)  # not that of the text
            if self._on_first is not None:
                self._on_first()
                self._on_first = None  # it knows the row, which knows this tap: they are to go without the collector

    def _bears_text(self, place: int) -> bool:
        """Whether a text begins in this chunk; its line may begin in earlier ones."""
        chunk, carry = self._chunks[place], b""
        while place and len(carry) < CARRY and not self._chunks[place - 1].endswith(b"\n"):
            place -= 1
            carry = self._chunks[place] + carry
        if not carry:
            return self._words.text.search(chunk) is not None
        carry = carry[-CARRY:]
        return any(found.end() > len(carry) for found in self._words.text.finditer(carry + chunk))

    @property
    def last(self) -> float | None:
        """Time of the last event with text, reasoning or a tool call."""
        if self.first is None:
            return None
        backwards = range(len(self._chunks) - 1, -1, -1)
        found = next((place for place in backwards if self._bears_text(place)), None)
        return self._last_dropped if found is None else self._times[found]

    @property
    def heard_at(self) -> float | None:
        """Time at which the last chunk came that shows work of the engine; None before the first.

        Keep-alives show none. Nor does the opening of /v1/responses, which vLLM's server sends before its engine has
        the request, or of /v1/messages, which some servers send before the answer begins.
        """
        if not self._stream:
            return self._times[-1] if self._times else None
        if self.first is None and self._words.work and not self._words.work.search(self.tail()):
            return self._heard_dropped
        for place in range(len(self._chunks) - 1, -1, -1):
            if not self._keeps_alive(place):
                return self._times[place]
        return self._heard_dropped

    def _keeps_alive(self, place: int) -> bool:
        if place and not self._chunks[place - 1].endswith((b"\n", b"\r")):
            return False
        return _KEEP_ALIVES.fullmatch(self._chunks[place]) is not None

    def _drop(self) -> None:
        """Keep the tail only."""
        if not self._dropped:
            self._begun_with = self._head()
        self._last_dropped, self._heard_dropped = self.last, self.heard_at
        old = 0
        while self.size - self._dropped - len(self._chunks[old]) >= self._kept:
            self._dropped += len(self._chunks[old])
            old += 1
        self._dropped_events += _count_events(self._chunks[:old])
        del self._chunks[:old], self._times[:old]
        self._full_at = self._dropped + 2 * self._kept

    @property
    def text_events(self) -> int:
        """Events since the first with text: about as many as tokens, where the engine sends one for each.

        Events after the last text are left out once the answer has ended.
        """
        if self.first is None:
            return 0
        after = self._events_after_text() if self.complete else 0
        return max(0, self._dropped_events + _count_events(self._chunks) - self._events_before - after)

    def _events_after_text(self) -> int:
        """Count the last events: the reason, the counts, the end."""
        after = 0
        for chunk in reversed(self._chunks):
            ends = [found.end() for found in self._words.text.finditer(chunk)]
            after += _count_events([chunk[ends[-1] :]]) if ends else _count_events([chunk])
            if ends:
                break
        return after

    def told_so_far(self) -> int | None:
        """Return the output tokens by the engine's own count in its last event; None where it counts at the end."""
        if not self._chunks or _COUNTED.search(self._chunks[-1]) is None:
            return None
        return self.usage().completion

    def tail(self) -> bytes:
        """Return the end of the answer, or all of it if it is short."""
        if self._joined[0] != self.size:
            self._joined = self.size, b"".join(self._chunks)
        return self._joined[1]

    def _head(self) -> bytes:
        """Return the beginning, which has the prompt's tokens in /v1/messages, and the id in /v1/responses."""
        return self._begun_with if self._dropped else self.tail()[:HEAD]

    def usage(self) -> TokenUsage:
        """Read the engine's final counts."""
        if not self._words.counts_first:
            return parse_usage(self.tail())
        usage, since = parse_message_usage(self._head(), self.tail())
        # an answer that was left early has only the first count
        return usage if since or not self._stream or self.complete else usage._replace(completion=None)

    def at_end(self) -> tuple[TokenUsage, float | None, str | None]:
        """Return the counts, the decode rate, and why the engine stopped."""
        usage, words = self.usage(), self._words
        rate = None if self.first is None else self.decode_tok_s(usage.completion)
        return usage, rate, stop_reason(words.stop, self.tail())

    def decode_tok_s(self, completion: int | None) -> float | None:
        """Compute (completion tokens - 1) / (last - first event with text); None when either is unknown."""
        if completion is None or completion < 2 or self.first is None:
            return None
        last = self.last
        return None if last is None or last <= self.first else (completion - 1) / (last - self.first)

    @property
    def complete(self) -> bool:
        last = self._words.last
        return self._stream and last is not None and last.search(self.tail()) is not None

    @property
    def lacks_its_end(self) -> bool:
        """Whether a stream lacks its last event, a reason and an error, in a protocol that has them."""
        says_so = self._stream and self._words.last is not None
        return says_so and not (self.complete or self.failed or self.finish_reason is not None)

    @property
    def failed(self) -> bool:
        """Whether the engine reported a failure under status 200: in an event, or as the whole body."""
        if not self._stream:
            return is_error(self._begun_with or self.tail())
        tail = self.tail()
        if tail.find(b"error") < 0 and tail.find(b"failed") < 0:  # a hundred times as quick as the patterns
            return False
        begins = not self._dropped and tail.startswith(b"error:")
        return begins or any(each.search(tail) for each in (_ERROR_DATA, _ERROR_EVENT, _ERROR_FIELD))

    @property
    def finish_reason(self) -> str | None:
        return stop_reason(self._words.stop, self.tail())

    @property
    def between_frames(self) -> bool:
        """Whether the stream is between two frames, so that another may begin."""
        return self.size == 0 or ends_frame(self.tail())

    @property
    def response_id(self) -> str | None:
        found = _RESPONSE_ID.search(self._head())
        return found[1].decode() if found else None

    @property
    def sequence(self) -> int:
        """Last sequence number of /v1/responses; -1 before the first."""
        found = _SEQUENCE.findall(self.tail())
        return int(found[-1]) if found else -1


def _count_events(chunks: list[bytes]) -> int:
    joined = b"".join(chunks)
    return joined.count(_EVENT) + joined.startswith(_EVENT[1:])

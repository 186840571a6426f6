"""Counts: token counts, stop reason and error code in the last bytes of an engine's answer, in each protocol.

Takes the end of an answer, and of /v1/messages its beginning. Rule: tokens are counted by the engine (usage, or
llama.cpp's timings), never here.

Searching bytes is sound: inside a JSON string every quote is escaped, so `"key":"` cannot occur in a text.

Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

LIMIT = 8 * 1024
"""Bytes of one object of counts."""
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
    begun = _first_object(_FIRST_USAGE, head)
    return _anthropic(begun | {key: value for key, value in counts.items() if value is not None}), counts != begun


def stop_reason(key: bytes, tail: bytes) -> str | None:
    """Read why the engine stopped. `key`: FINISH or STOP."""
    found = _last(key, _WORD, tail)
    return found[1].decode() if found else None


def error_code(body: bytes) -> str | None:
    """Read the code of an engine's error body: its `code`, or its `type` where the code is the status."""
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
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _count(counts: dict[str, Any], key: str) -> int | None:
    value = counts.get(key)
    return value if type(value) is int else None  # a bool is an int to isinstance


def _openai(counts: dict[str, Any]) -> TokenUsage:
    if "prompt_tokens" in counts or "completion_tokens" in counts:
        prompt, completion, of_prompt, of_answer = _CHAT
    else:
        prompt, completion, of_prompt, of_answer = _RESPONSES
    reasoning = _detail(counts, of_answer, "reasoning_tokens")
    return TokenUsage(
        _count(counts, prompt),
        _detail(counts, of_prompt, "cached_tokens"),
        _count(counts, completion),
        # SGLang has it at the top level
        _count(counts, "reasoning_tokens") if reasoning is None else reasoning,
    )


def _detail(counts: dict[str, Any], group: str, key: str) -> int | None:
    details = counts.get(group)
    return _count(details, key) if isinstance(details, dict) else None


def _anthropic(counts: dict[str, Any]) -> TokenUsage:
    """Read Anthropic's counts; `input_tokens` leaves out tokens read from or written to the cache."""
    cached, written = _count(counts, "cache_read_input_tokens"), _count(counts, "cache_creation_input_tokens")
    computed = _count(counts, "input_tokens")
    return TokenUsage(
        prompt=None if computed is None else computed + (cached or 0) + (written or 0),
        cached=cached,
        completion=_count(counts, "output_tokens"),
    )


def _llamacpp(timings: dict[str, Any]) -> TokenUsage:
    """Read llama.cpp's timings; `prompt_n` counts computed tokens only, and builds before 2026 omit the cached ones."""
    cached, computed = _count(timings, "cache_n"), _count(timings, "prompt_n")
    known = cached is not None and computed is not None
    return TokenUsage(
        prompt=(cached or 0) + (computed or 0) if known else None,
        cached=cached,
        completion=_count(timings, "predicted_n"),
    )

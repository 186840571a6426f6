"""Readings from an answer that passes by: times from text, counts from the engine."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_streams import dialect_of

from sparkdash.gateway.protocol.route import Dialect
from sparkdash.gateway.protocol.tap import TAIL, Tap, TokenUsage


def fed(*pieces: bytes, dialect: Dialect = Dialect.CHAT, stream: bool = True) -> Tap:
    """A tap that got these pieces, one each second from 1 on."""
    tap = Tap(dialect, stream=stream)
    for second, piece in enumerate(pieces, 1):
        tap.feed(piece, float(second))
    return tap


def bears_text(event: dict[str, Any]) -> bool:
    """The definition, the slow way: does this event carry text, reasoning or a tool call?"""
    if event.get("type") == "content_block_start":
        return event["content_block"]["type"] == "tool_use"
    delta = event.get("delta")
    if isinstance(delta, str):
        return bool(delta)
    deltas = [delta] if delta else [c.get("delta") or {"content": c.get("text")} for c in event.get("choices", ())]
    keys = ("content", "reasoning", "reasoning_content", "tool_calls", "text", "thinking", "partial_json")
    return any(d.get(key) for d in deltas for key in keys)


def test_the_first_and_the_last_text_are_found_in_every_dialect(recorded_body: Any, streams: list[str]) -> None:
    for name in streams:
        body = recorded_body(name)
        events = [frame + b"\n\n" for frame in body.split(b"\n\n") if frame]
        tap = Tap(dialect_of(name))
        bearing = []
        for tick, event in enumerate(events):
            tap.feed(event, float(tick))
            data = event[event.index(b"data:") + 5 :].strip()
            if data != b"[DONE]" and bears_text(json.loads(data)):
                bearing.append(float(tick))
        assert (tap.first, tap.last) == (bearing[0], bearing[-1]), name


def usage(**counts: Any) -> bytes:
    """The event of a chat that brings the counts."""
    return b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n"


@pytest.mark.parametrize("count", [10**26, 2**63, 10**12 - 1, -5, True, "7", 1e26])
def test_a_count_that_cannot_be_is_unknown(count: object) -> None:
    """A sum of it would spoil every counter, and no database holds it."""
    assert fed(usage(prompt_tokens=4, completion_tokens=count)).usage() == TokenUsage(prompt=4, completion=None)


def test_a_text_that_looks_like_json_is_no_usage() -> None:
    """Inside a string every quote is escaped, so a model that talks about usage changes no count."""
    body = json.dumps({"choices": [{"delta": {"content": '"usage":{"completion_tokens":9}'}}]})
    assert fed(b"data: " + body.encode() + b"\n\n").usage() == TokenUsage()


def test_several_events_in_one_chunk_and_spaces_after_colons() -> None:
    text = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
    tap = fed(text * 5, b": ping\n\n", text, usage(prompt_tokens=4, completion_tokens=11) + b"data: [DONE]\n\n")
    assert tap.usage() == TokenUsage(prompt=4, cached=None, completion=11)
    assert tap.decode_tok_s(11) == (11 - 1) / (3.0 - 1.0)


TEXT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'


@pytest.mark.parametrize("completion", [None, 0, 1])
def test_no_rate_without_counts(completion: int | None) -> None:
    """Chunks are never counted in place of tokens."""
    assert fed(TEXT, TEXT).decode_tok_s(completion) is None


def test_the_tail_is_bounded() -> None:
    tap = Tap(Dialect.CHAT)
    for tick in range(2000):
        tap.feed(b"data: " + b"x" * 500 + b"\n\n", float(tick))
        assert len(tap.tail()) <= 2 * TAIL + 508
    assert len(tap.tail()) >= TAIL
    assert tap.size == 2000 * 508


def test_what_is_told_in_the_beginning_is_known_at_the_end_of_a_long_answer(recorded_body: Any) -> None:
    """The prompt's tokens in /v1/messages, after more text than is kept. Of the answer nothing is true before its end."""
    head, event, end = recorded_body("vllm-0.32.0-base-messages-stream").partition(b"event: message_delta")
    text = b'event: content_block_delta\ndata: {"delta":{"text":"' + b"x" * 200 + b'"}}\n\n'
    left = fed(head, dialect=Dialect.MESSAGES).usage()
    assert (left.prompt, left.completion) == (17, None)
    tap = fed(head, *[text] * 400, event + end, dialect=Dialect.MESSAGES)
    assert (tap.usage().prompt, tap.usage().completion, tap.last) == (17, 80, 401.0)


@given(cuts=st.lists(st.integers(0, 10**6), max_size=40), texts=st.lists(st.booleans(), min_size=1, max_size=60))
@settings(max_examples=100, deadline=None)
def test_the_last_text_is_the_last_that_came(cuts: list[int], texts: list[bool]) -> None:
    """However the stream is cut, it is that of the piece in which a reader of whole lines sees the last text begin."""
    body = b"".join(TEXT if bears else b": " + b"x" * 700 + b"\n\n" for bears in texts)
    edges = sorted({0, len(body), *(cut % len(body) for cut in cuts)})
    tap = Tap(Dialect.CHAT)
    for tick, (start, end) in enumerate(pairwise(edges)):
        tap.feed(body[start:end], float(tick))
    at = body.rfind(b'"content":"a')
    if at < 0:
        assert tap.last is None
        return
    seen = next(tick for tick, end in enumerate(edges[1:]) if end >= at + len(b'"content":"a'))
    assert tap.last == seen


def test_a_plain_answer_has_counts_but_no_times(recorded_body: Any) -> None:
    """When its text was made is not known."""
    for name, counts in {
        "vllm-0.32.0-base-chat": TokenUsage(17, None, 80, reasoning=14),
        "vllm-0.32.0-base-messages": TokenUsage(17, None, 80),
        "vllm-0.32.0-base-responses": TokenUsage(17, 0, 80, reasoning=14),
    }.items():
        tap = fed(recorded_body(name), dialect=dialect_of(name), stream=False)
        assert (tap.usage(), tap.first) == (counts, None)


@pytest.mark.parametrize(
    ("counts", "reasoning"),
    [
        ({"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}}, 4),
        ({"output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 0}}, 0),
        ({"completion_tokens": 9, "reasoning_tokens": 5, "prompt_tokens_details": None}, 5),
        ({"completion_tokens": 9, "completion_tokens_details": None}, None),
        ({"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": True}}, None),
    ],
)
def test_reasoning_tokens_are_read_where_engines_put_them(counts: dict[str, Any], reasoning: int | None) -> None:
    """vLLM among the details, SGLang beside the others; an engine that does not tell leaves them unknown."""
    assert fed(usage(**counts)).usage() == TokenUsage(completion=9, reasoning=reasoning)


def test_timings_of_an_old_llama_server() -> None:
    """Without usage llama.cpp's timings count; builds that do not tell cached tokens leave the prompt unknown."""
    tap = fed(b'data: {"choices":[],"timings":{"prompt_n":7,"predicted_n":5}}\n\n')
    assert tap.usage() == TokenUsage(prompt=None, cached=None, completion=5)


def test_cached_tokens_of_messages_are_part_of_the_prompt() -> None:
    """Anthropic's input_tokens leave them out; null says nothing and replaces nothing."""
    tap = fed(
        b'data: {"message":{"usage":{"input_tokens":3,"cache_read_input_tokens":20,"output_tokens":0}}}\n\n',
        b'data: {"type":"message_delta","usage":{"input_tokens":null,"output_tokens":9}}\n\n',
        dialect=Dialect.MESSAGES,
    )
    assert tap.usage() == TokenUsage(prompt=23, cached=20, completion=9)


@pytest.mark.parametrize("ping", [
    b":\n\n", b": ping\r\n\r\n", b'event: ping\ndata: {"type": "ping"}\n\n',
    b'event: ping\r\ndata: {"type":"ping"}\r\n\r\n', b": a\n\n: b\n\n",
])  # fmt: skip
def test_a_ping_is_not_heard_as_a_piece_of_the_answer(ping: bytes) -> None:
    """The time is that of the last piece before it; before the first piece there is none."""
    assert fed(ping).heard_at is None
    tap = fed(ping, TEXT, *[ping] * 4)
    assert tap.heard_at == 2.0
    tap.feed(ping + TEXT, 9.0)
    assert tap.heard_at == 9.0


def test_the_opening_of_an_answer_is_not_heard_as_a_piece_of_it() -> None:
    """vLLM sends it before its engine has the request: a stuck engine opens every stream. So do other servers a message."""
    tap = fed(
        b'event: response.created\ndata: {"type":"response.created","response":{"instructions":"',
        b"x" * 300_000,
        b'"}}\n\nevent: response.in_progress\ndata: {"type":"response.in_progress"}\n\n',
        dialect=Dialect.RESPONSES,
    )
    assert tap.heard_at is None
    tap.feed(b'event: response.output_item.added\ndata: {"type":"response.output_item.added"}\n\n', 4.0)
    assert tap.heard_at == 4.0
    tap = fed(
        b'event: message_start\ndata: {"type":"message_start","message":{"content":[]}}\n\n',
        b'event: content_block_start\ndata: {"content_block":{"type":"text","text":""}}\n\n',
        dialect=Dialect.MESSAGES,
    )
    assert tap.heard_at is None
    tap.feed(b'event: content_block_delta\ndata: {"delta":{"type":"signature_delta"}}\n\n', 4.0)
    assert tap.heard_at == 4.0


def test_a_piece_that_begins_with_a_colon_is_heard() -> None:
    """A chunk may begin in the middle of a line, and an answer that is no stream has no comments."""
    assert fed(b'data: {"choices":[{"delta":{"content"', b': "a"}}]}\n\n').heard_at == 2.0
    assert fed(b": no comment\n", stream=False).heard_at == 1.0


def test_a_million_pings_are_not_heard_and_end_in_time() -> None:
    """Dropped text is remembered; a long run of line ends is matched once through."""
    tap = fed(TEXT, *[b":\n\n"] * 10_000)
    assert tap.heard_at == 1.0
    tap.feed(b"\n" * 1_000_000 + b"x", 20_000.0)
    assert tap.heard_at == 20_000.0

"""What is changed in an answer's stream, and that nothing else is, wherever the stream is cut."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest

from sparkdash.gateway.protocol.splices import FRAME_LIMIT, ContinuedMessage, ContinuedResponse, Splice, WithoutUsage

USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
WORDS = (
    "a",
    '"choices":[],"usage":{"prompt_tokens":9}',
    "data: ",
    "\n\n",
    "ünï",
    "}\r\n\r\n",
    "x" * 300,
    "\\",
    "[DONE]",
)
STREAMS = 10_000


def cut(data: bytes, dice: random.Random) -> list[bytes]:
    """The same bytes in pieces: whole, byte by byte, or anything between."""
    places = dice.choice((0, 1, 3, 20, len(data)))
    edges = sorted({0, len(data), *(dice.randrange(len(data)) for _ in range(places))})
    return [data[start:end] for start, end in pairwise(edges)]


def through(splice: Splice, pieces: list[bytes]) -> bytes:
    return b"".join([*map(splice.feed, pieces), splice.end()])


def chunk(dice: random.Random, newline: bytes) -> bytes:
    """One frame as engines and proxies make them: chunks with and without counts, comments, named events, filler."""
    separators = dice.choice(((",", ":"), (", ", ": ")))
    choice = {"index": 0, "delta": {"content": dice.choice(WORDS)}}
    usage: Any = dice.choice((None, {"completion_tokens": 1}))
    bodies = (
        {"id": "c", "choices": [choice], "usage": usage},
        {"id": "c", "choices": [choice]},
        {"id": "c", "choices": [], "usage": None},
        {"id": "c", "choices": [], "prompt_filter_results": []},
        {"error": {"message": dice.choice(WORDS)}},
    )
    data = json.dumps(dice.choice(bodies), separators=separators, ensure_ascii=dice.random() < 0.5).encode()
    lead = dice.choice((b"data: ", b"data:", b"event: x" + newline + b"data: "))
    return dice.choice((lead + data, lead + data, lead + data, b": ping", b"")) + newline * 2


def test_ten_thousand_streams_lose_the_counts_and_nothing_else() -> None:
    """Cut anywhere, every byte but the usage chunk's arrives, in order."""
    for seed in range(STREAMS):
        dice = random.Random(seed)
        newline = dice.choice((b"\n", b"\n", b"\r\n"))
        before = b"".join(chunk(dice, newline) for _ in range(dice.randrange(6)))
        after = dice.choice((b"data: [DONE]" + newline * 2, b"", b"data: [DO"))
        usage = dice.choice((USAGE, USAGE.replace(b'":', b'": '), b"")).replace(b"\n", newline)
        pieces = cut(before + usage + after, dice) if before + usage + after else []
        assert through(WithoutUsage(), pieces) == before + after, seed


@pytest.mark.parametrize("seed", range(20))
def test_a_recorded_stream_loses_the_counts_and_nothing_else(recorded_body: Any, streams: list[str], seed: int) -> None:
    """Real engines' streams; those without such a chunk pass whole."""
    for name in streams:
        body = recorded_body(name)
        told = b"".join(
            frame + b"\n\n"
            for frame in body.split(b"\n\n")[:-1]
            if not (frame.startswith(b"data: {") and json.loads(frame[6:]).get("choices") == [])
        )
        assert through(WithoutUsage(), cut(body, random.Random(seed))) == told, name


def test_a_whole_frame_is_never_held_back() -> None:
    """It leaves with the chunk that ends it, as the same object."""
    splice, frame = WithoutUsage(), b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    assert splice.feed(frame) is frame
    assert splice.feed(frame + frame[:9]) == frame
    assert splice.feed(frame[9:]) == frame


def test_an_endless_frame_is_not_collected() -> None:
    """What is longer than any frame that is spliced passes on."""
    splice, long = WithoutUsage(), b"data: " + b"x" * FRAME_LIMIT
    assert splice.feed(long) == long
    assert splice.feed(b"y\n\n" + USAGE) == b"y\n\n"


def events(stream: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Name and body of every event."""
    frames = [frame for frame in stream.split(b"\n\n") if frame.startswith(b"event: ")]
    return [(frame.split(b"\n")[0][7:].decode(), json.loads(frame[frame.index(b"{") :])) for frame in frames]


@pytest.mark.parametrize(
    "name", ["vllm-0.32.0-base-responses-tool-stream", "llama.cpp-0c1e57098-base-responses-stream"]
)
def test_a_response_goes_on_where_ours_left_off(recorded_body: Any, name: str) -> None:
    """Cut anywhere: no second opening, our id in every event, numbers without a gap or, where the engine has none, without any."""
    body = recorded_body(name)
    theirs = events(body)
    opening = ("response.created", "response.in_progress")
    kept = [(name, event) for name, event in theirs if name not in opening]
    whole = through(ContinuedResponse("resp_x", 7), [body])
    for seed in range(40):
        splice = ContinuedResponse("resp_x", 7)
        assert through(splice, cut(body, random.Random(seed))) == whole
    made = events(whole)
    assert [name for name, _ in made] == [name for name, _ in kept]
    numbered = ["sequence_number" in event for _, event in kept]
    assert [event.get("sequence_number") for _, event in made] == [
        7 + n if has else None for n, has in enumerate(numbered)
    ]
    assert splice.number == (7 + len(kept) - 1 if all(numbered) else 6)
    assert {event["response"]["id"] for _, event in made if "response" in event} == {"resp_x"}
    assert theirs[0][1]["response"]["id"].encode() not in whole


@pytest.mark.parametrize("name", ["vllm-0.32.0-base-messages-tool-stream", "llama.cpp-0c1e57098-base-messages-stream"])
def test_a_message_goes_on_after_our_thinking(recorded_body: Any, name: str) -> None:
    """Cut anywhere: our block is closed, the engine's count on from it, and its prompt's counts come with the last ones."""
    body = recorded_body(name)
    theirs = events(body)
    whole = through(ContinuedMessage(), [body])
    for seed in range(40):
        assert through(ContinuedMessage(), cut(body, random.Random(seed))) == whole
    made = events(whole)
    assert made[0] == ("content_block_stop", {"type": "content_block_stop", "index": 0})
    expected = [
        (name, event | ({"index": event["index"] + 1} if "index" in event else {})) for name, event in theirs[1:]
    ]
    counts = theirs[0][1]["message"]["usage"]
    for name, event in expected:
        if name == "message_delta":
            event["usage"] = counts | {key: value for key, value in event["usage"].items() if value is not None}
    assert made[1:] == expected

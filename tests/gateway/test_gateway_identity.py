"""Random streams, cut at random places, over real HTTP on both sides: every byte arrives, in order, and no other.

SPARKDASH_STREAMS=10000 for the full count, which takes about a minute of CPU; the suite makes do with fewer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from itertools import pairwise
from typing import Any

import pytest

from sparkdash.domain.request import RequestState
from sparkdash.upstream import EngineRequest, encode_headers

pytestmark = pytest.mark.timeout(600)
STREAMS = int(os.environ.get("SPARKDASH_STREAMS", "300"))
AT_ONCE = 8
ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/audio/speech")
WORDS = (
    '"choices":[],"usage":{',
    "data: ",
    "ünï😀",
    "\\",
    "[DONE]",
    "}\r\n\r\n",
    "x" * 300,
    "event: error",
    '"usage":{"a":1}',
)


def frame(dice: random.Random) -> bytes:
    """Something that an engine might send, or anything at all."""
    newline = dice.choice((b"\n", b"\n", b"\n", b"\r\n"))
    delta = {"index": 0, "delta": {"content": dice.choice(WORDS) * dice.choice((1, 1, 1, 40))}}
    body = json.dumps({"id": "c", "choices": [delta], "usage": None}, ensure_ascii=dice.random() < 0.5).encode()
    lead = dice.choice((b"data: ", b"data:", b"event: x" + newline + b"data: ", b": ", b"id: 7" + newline, b""))
    return dice.choice((lead + body, lead + body, lead + body, b"", dice.randbytes(dice.randrange(400)))) + newline * 2


def stream(number: int) -> bytes:
    """The stream of that number, as the engine sends and the client is to get it."""
    dice = random.Random(number)
    end = (b"data: [DONE]\n\n", b"", b"data: [DO")
    return b"".join(frame(dice) for _ in range(dice.randrange(12))) + dice.choice(end)


def pieces(data: bytes, dice: random.Random) -> list[bytes]:
    """The same bytes: as one, in chunks, or byte by byte here and there."""
    edges = sorted({0, len(data), *(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 1, 5, 30))))})
    return [data[start:end] for start, end in pairwise(edges)]


async def engine(seen: Any, wire: Any) -> None:
    """Streams what its request asks for, in pieces that reach the gateway together or apart."""
    number = json.loads(seen.body)["seed"]
    dice = random.Random(-number)
    await wire.head()
    for piece in pieces(stream(number), dice):
        await wire.chunk(piece)
        if dice.random() < 0.3:
            await asyncio.sleep(0)
    await wire.end()


async def got(house: Any, number: int) -> bytes:
    """The stream of that number, as a client gets it."""
    path = ROUTES[number % len(ROUTES)]
    body = {"model": "alpha", "stream": True, "seed": number, "stream_options": {"include_usage": True}}
    headers = [(b"content-type", b"application/json")]
    request = EngineRequest("POST", house.base + path, encode_headers(headers))
    with await house.upstream.open(request, json.dumps(body).encode()) as answer:
        assert answer.status == 200
        return await answer.read()


async def test_random_streams_arrive_unchanged(house: Any) -> None:
    """On every route where nothing is to be changed; what the tap makes of nonsense changes no byte."""
    house.engine.script = engine
    numbers = iter(range(1, STREAMS + 1))

    async def some() -> None:
        for number in numbers:
            assert await got(house, number) == stream(number), number

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    await house.until(lambda _: len(house.recorded) >= STREAMS)
    assert len(house.recorded) == STREAMS
    assert {row.state for row in house.recorded} <= {RequestState.DONE, RequestState.FAILED}

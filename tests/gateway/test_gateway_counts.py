"""Every request's row has the counts of the engine itself, under a mixed load: all protocols, streams and whole answers, asked
for counts or not, speculation, reasoning, cached prompts, and clients that leave.

SPARKDASH_MINUTES=60 goes on for an hour, with a pause after each request, so that it can run beside other work; the suite makes do
with a few.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import time
from collections import Counter
from contextvars import ContextVar
from typing import Any

import pytest

from sparkdash.domain.profile import SimSpec
from sparkdash.domain.request import RequestState
from sparkdash.upstream import encode_headers

MINUTES = float(os.environ.get("SPARKDASH_MINUTES", "0"))
REQUESTS = 240
pytestmark = pytest.mark.timeout(600 + 60 * MINUTES)
AT_ONCE = 12
PAUSE_S = 0.12 if MINUTES else 0
SPEC = SimSpec(kv_tokens=60_000, acceptance=(0.8, 0.5), reasoning_tokens=9)
PROMPTS = [
    " ".join(random.Random(seed).choices(["many", "different", "words", "for", "prompts"], k=600)) for seed in range(6)
]
"""The first words of them are shared by several requests, so that some are found in the prefix cache, and some are evicted."""


class Truth:
    """The engine's own answers, by the name that each request's client goes by."""

    def __init__(self, app: Any) -> None:
        self.answers: dict[str, Any] = {}
        self._asking: ContextVar[str] = ContextVar("asking")
        self._handle, self._begin = app.handle, app._begin
        app.handle, app._begin = self.handle, self.begin

    async def handle(self, request: Any) -> Any:
        self._asking.set(request.headers["user-agent"])
        return await self._handle(request)

    def begin(self, body: Any, ask: Any) -> Any:
        answer = self.answers[self._asking.get()] = self._begin(body, ask)
        return answer


def asked(number: int) -> tuple[str, dict[str, Any], bool]:
    """(path, body, does the client leave) of the request of that number."""
    dice = random.Random(number)
    text = " ".join(dice.choice(PROMPTS).split()[: dice.choice((5, 150, 600))]) + f" {number % 7}"
    limit = dice.randrange(1, 40)
    turns = [{"role": "user", "content": text}]
    path, body = dice.choice(
        [
            ("/v1/chat/completions", {"messages": turns, "max_tokens": limit}),
            ("/v1/completions", {"prompt": text, "max_tokens": limit}),
            ("/v1/responses", {"input": text, "max_output_tokens": limit}),
            ("/v1/messages", {"messages": turns, "max_tokens": limit}),
        ]
    )
    body |= {"model": "alpha", "stream": dice.random() < 0.7}
    if body["stream"] and "completions" in path and dice.random() < 0.5:
        body["stream_options"] = {"include_usage": dice.random() < 0.8}
    leaves = body["stream"] and dice.random() < 0.15
    if leaves:  # an answer that is not over by the time
        body |= {name: 3000 for name in body if name.startswith("max_")} | {"ignore_eos": True}
    return path, body, leaves


async def send(house: Any, number: int) -> None:
    path, body, leaves = asked(number)
    headers = [(b"content-type", b"application/json"), (b"user-agent", b"n%d" % number)]
    async with house.upstream.open(
        "POST", house.base + path, encode_headers(headers), json.dumps(body).encode()
    ) as answer:
        assert answer.status == 200
        async for _ in answer.chunks():
            if leaves:
                break


def told(row: Any) -> tuple[int | None, ...]:
    return (row.prompt_tokens, row.cached_tokens, row.completion_tokens, row.reasoning_tokens)


def compare(row: Any, answer: Any, seen: Counter[Any]) -> None:
    """A row with the engine's own answer. Of a client that left only what its stream had told by then is known."""
    reasoning = None if row.route == "/v1/messages" else answer.reasoning  # Anthropic's protocol does not tell it
    counted = (answer.prompt, answer.cached, answer.completion, reasoning)
    if row.state is RequestState.DONE:
        assert told(row) == counted, (row.client, asked(int(row.client[1:])))
        assert row.completion_estimate is None
    else:
        assert row.state is RequestState.GONE, row
        assert all(one is None or one == other for one, other in zip(told(row), counted, strict=True)), row
    seen[row.state, row.route] += 1
    seen["rows"] += 1
    seen["cached"] += answer.cached > 0
    seen["reasoned"] += bool(row.reasoning_tokens)


async def test_the_counts_of_every_request_are_the_engines(house: Any, tools: Any) -> None:
    """Token by token, and nothing is made up."""
    until = time.monotonic() + 60 * MINUTES
    numbers = itertools.takewhile(lambda number: number < REQUESTS or time.monotonic() < until, itertools.count())
    seen: Counter[Any] = Counter()

    async with tools.simulated_engine(house, SPEC) as app:
        truth = Truth(app)

        async def some() -> None:
            for number in numbers:
                await send(house, number)
                seen["sent"] += 1
                await asyncio.sleep(PAUSE_S)
                while house.recorded:  # at once, so that an hour fits into memory
                    row = house.recorded.pop()
                    compare(row, truth.answers.pop(row.client), seen)

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        await house.until(lambda _: seen["rows"] + len(house.recorded) >= seen["sent"])
    for row in house.recorded:
        compare(row, truth.answers.pop(row.client), seen)
    print(dict(seen))
    assert seen["rows"] == seen["sent"] >= REQUESTS
    assert not truth.answers
    assert seen["reasoned"]
    assert len([key for key in seen if isinstance(key, tuple)]) == 2 * 4, (
        "by each protocol some ended and some were left"
    )
    assert seen["cached"] > seen["sent"] / 10
    assert sum(app.engine.counters.accepted_at) > 0

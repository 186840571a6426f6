"""Requests on an engine that stood still: sent once more where no byte of an answer has gone out, else ended with the reason."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkdash.domain.engine import Engine, EngineState, Liveness, LivenessState, RepairStep
from sparkdash.domain.event import EngineChanged
from sparkdash.domain.lease import RequestState
from sparkdash.domain.profile import EngineKind
from sparkdash.errors import EngineError, UpstreamError
from sparkdash.gateway.relay.fallbacks import RetryPlan

WHY = "alpha stopped making progress: 2 running, 0 waiting, no token for 2m, GPU 14 W at 96 %."
BEGUN = {
    "/v1/chat/completions": b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n',
    "/v1/completions": b'data: {"choices":[{"text":"x"}]}\n\n',
    "/v1/messages": b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}\n\n',
    "/v1/responses": b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"x","sequence_number":4}\n\n',
}
BODY = {"model": "alpha", "messages": [], "prompt": "x", "input": "x"}


def stuck() -> EngineError:
    """What the leases of a stuck engine are cut with."""
    return EngineError(WHY, code="engine_stuck")


@pytest.mark.parametrize("path", BEGUN)
async def test_a_stream_with_bytes_ends_with_the_reason_in_its_own_protocol(house: Any, path: str) -> None:
    async def freeze(_seen: Any, wire: Any) -> None:
        await wire.head()
        await wire.chunk(BEGUN[path])
        await wire.client_left()

    house.engine.script = freeze
    call = asyncio.create_task(house.client.post(path, json=BODY | {"stream": True}))
    await house.in_state(RequestState.STREAMING)
    house.supervisor.lost.set_result(stuck())
    told = (await call).content.decode()
    assert WHY in told
    assert "engine_stuck" in told
    assert house.supervisor.leases == ["alpha"]
    assert (await house.ended()).error == "engine_stuck"


async def test_a_stream_in_ollamas_words_ends_with_the_reason_too(house: Any) -> None:
    async def freeze(_seen: Any, wire: Any) -> None:
        await wire.head()
        await wire.chunk(BEGUN["/v1/chat/completions"])
        await wire.client_left()

    house.engine.script = freeze
    body = {"model": "alpha", "messages": [{"role": "user", "content": "hello"}]}
    call = asyncio.create_task(house.client.post("/api/chat", json=body))
    await house.in_state(RequestState.STREAMING)
    house.supervisor.lost.set_result(stuck())
    last = json.loads((await call).content.splitlines()[-1])
    assert WHY in last["error"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BEGUN)
async def test_a_request_without_a_byte_is_sent_once_more_and_answered_whole(
    house: Any, path: str, stream: bool
) -> None:
    """It waits while the engine is repaired, and the stuck engine sees its connection close."""
    aborted = asyncio.Event()

    async def freeze_once(_seen: Any, wire: Any) -> None:
        if aborted.is_set():
            if stream:
                await wire.head()
                await wire.chunk(BEGUN[path] + b"data: [DONE]\n\n")
                await wire.end()
            else:
                await wire.answer(b'{"whole": true}')
        else:
            await wire.client_left()
            aborted.set()

    house.engine.script = freeze_once
    call = asyncio.create_task(house.client.post(path, json=BODY | {"stream": stream}))
    await house.in_state(RequestState.PREFILL)
    house.supervisor.gate.clear()
    house.supervisor.lost.set_result(stuck())
    await asyncio.wait_for(aborted.wait(), 60)
    await house.in_state(RequestState.WAITING)
    house.supervisor.gate.set()
    reply = await call
    assert reply.status_code == 200
    assert (BEGUN[path] in reply.content) if stream else (json.loads(reply.content) == {"whole": True})
    assert house.supervisor.leases == ["alpha", "alpha"]
    assert (await house.ended()).state is RequestState.DONE


async def test_it_is_sent_once_more_only(house: Any) -> None:
    """An engine that is stuck again is told to the client: the same prompt may be the reason."""

    asked: asyncio.Queue[None] = asyncio.Queue()

    async def freeze(_seen: Any, wire: Any) -> None:
        asked.put_nowait(None)
        await wire.client_left()

    house.engine.script = freeze
    call = asyncio.create_task(house.chat())
    for _ in range(2):
        await asked.get()
        house.supervisor.lost.set_result(stuck())
    reply = await call
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "engine_stuck")
    assert reply.json()["error"]["message"].startswith(WHY)


async def test_a_waiting_stream_is_told_what_is_done_about_the_engine(house: Any) -> None:
    """As reasoning, for a chat that asks for it."""
    now = house.app._deps.clock()
    live = Liveness(state=LivenessState.STUCK, why="", since=now - 130, step=RepairStep.CANCEL, step_since=now - 40)
    engine = Engine(
        profile="alpha",
        kind=EngineKind.VLLM,
        state=EngineState.READY,
        since=now,
        fingerprint="f",
        liveness=live,
    )
    house.app._deps.bus.publish(EngineChanged(engine=engine))
    house.supervisor.gate.clear()

    async def answer(_seen: Any, wire: Any) -> None:
        await wire.head()
        await wire.chunk(BEGUN["/v1/chat/completions"] + b"data: [DONE]\n\n")
        await wire.end()

    house.engine.script = answer
    body = BODY | {"stream": True}
    headers = {"x-sparkdash-progress": "reasoning"}
    async with house.client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as reply:
        parts = reply.aiter_text()
        told = await anext(parts)
        house.supervisor.gate.set()
        assert "engine stuck: requests cancelled, looking again 4" in told
        async for _ in parts:
            pass


def test_trouble_before_an_engine_is_found_stuck_does_not_cost_a_request_its_return() -> None:
    """A frozen process takes no connections: each request fails twice before the engine is named."""
    plan = RetryPlan(cast("Any", SimpleNamespace(profile=None, route=None, deps=None, name="a")))
    refused, stuck = UpstreamError("No connection."), UpstreamError("a is stuck.", code="engine_stuck")
    assert [plan.next_name(error) for error in (refused, stuck)] == ["a", "a"]
    with pytest.raises(UpstreamError, match="a is stuck"):
        plan.next_name(stuck)

"""One request is ended from outside: by the one who runs the box."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sparkdash.domain.lease import RequestState
from sparkdash.settings import Settings


async def cancel(house: Any, request_id: str) -> int:
    status: int = (await house.client.post(f"/api/requests/{request_id}/cancel", json={})).status_code
    return status


async def test_a_waiting_request_is_told_and_leaves_the_queue(house: Any) -> None:
    """400 with our word, which no SDK posts again; the lease is left and no engine hears of it."""
    house.supervisor.gate.clear()
    asking = asyncio.create_task(house.chat())
    row = await house.in_state(RequestState.WAITING)
    assert await cancel(house, row.id) == 200
    reply = await asking
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "request_cancelled")
    ended = await house.ended()
    assert (ended.id, ended.state, ended.error) == (row.id, RequestState.FAILED, "request_cancelled")
    assert (house.supervisor.open, house.engine.seen) == (0, [])


async def test_a_running_stream_ends_at_the_engine_too(house: Any) -> None:
    """The client reads the reason in its own protocol, the engine sees the connection close."""
    left = asyncio.Event()

    async def script(_seen: Any, wire: Any) -> None:
        await wire.head()
        await wire.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n')
        await wire.client_left()
        left.set()

    house.engine.script = script
    asking = asyncio.create_task(house.chat(stream=True))
    row = await house.in_state(RequestState.STREAMING)
    assert await cancel(house, row.id) == 200
    frames = [frame.removeprefix("data: ") for frame in (await asking).text.strip().split("\n\n")]
    assert json.loads(frames[-2])["error"]["reason"] == "request_cancelled"
    assert frames[-1] == "[DONE]"
    await asyncio.wait_for(left.wait(), 60)


async def test_a_second_cancel_finds_nothing(house: Any) -> None:
    """Nor does one of a request that is over, or never was."""
    house.supervisor.gate.clear()
    asking = asyncio.create_task(house.chat())
    row = await house.in_state(RequestState.WAITING)
    assert await cancel(house, row.id) == 200
    await asking
    assert [await cancel(house, one) for one in (row.id, "nope")] == [404, 404]
    house.supervisor.gate.set()
    assert (await house.chat()).status_code == 200  # and nobody else was harmed


class TestWaitingStream:
    """A gateway that answers waiting streams at once."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(hold_headers_s=0)

    async def test_a_stream_with_keep_alives_is_told_in_it(self, house: Any) -> None:
        """Where the status is long out."""
        house.supervisor.gate.clear()
        body = {"model": "alpha", "stream": True, "messages": []}
        async with house.client.stream("POST", "/v1/messages", json=body) as reply:
            pieces = reply.aiter_text()
            await anext(pieces)
            row = await house.in_state(RequestState.WAITING)
            assert await cancel(house, row.id) == 200
            text = "".join([piece async for piece in pieces])
        assert "event: error" in text
        assert "cancelled" in text

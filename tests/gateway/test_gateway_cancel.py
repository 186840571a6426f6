"""One request is ended from outside: by the one who runs the box."""

import asyncio
import json
from typing import Any

import pytest
from scripted import Hanging, streaming

from sparkdash.domain.request import RequestState
from sparkdash.gateway.relay.passthrough import CancelScope

BODY = b'{"model":"alpha","stream":true}'
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


async def test_the_first_of_two_requests_at_once_hears_that_its_client_left(house: Any) -> None:
    """The second waits behind it on the same connection, and is the only one that the server's own books have."""
    house.engine.script = script = Hanging(b"data: 1\n\n")
    reader, writer = await house.connect(REQUEST + REQUEST)
    await reader.readuntil(b"data: 1\n\n")
    writer.transport.abort()
    await asyncio.wait_for(script.left.wait(), 60)
    row = await house.ended()
    assert (row.state, row.error, len(house.engine.seen)) == (RequestState.GONE, "client_gone", 1)


async def test_two_requests_at_once_are_answered_in_order(house: Any) -> None:
    async def script(seen: Any, wire: Any) -> None:
        await streaming(b"data: %d\n\n" % len(house.engine.seen))(seen, wire)

    house.engine.script = script
    reader, writer = await house.connect(REQUEST + REQUEST)
    told = [(await reader.readuntil(b"0\r\n\r\n")).partition(b"\r\n\r\n")[2] for _ in range(2)]
    writer.transport.abort()
    assert told == [b"9\r\ndata: %d\n\n\r\n0\r\n\r\n" % number for number in (1, 2)]


async def test_a_stretch_ends_with_its_own_reason() -> None:
    """Two nested stretches each raise their own, where they are left; one that is over is not ended any more."""
    outer, inner, loop, seen = CancelScope(), CancelScope(), asyncio.get_running_loop(), []

    async def nested() -> None:
        with outer:
            try:
                with inner:
                    loop.call_soon(inner.cancel, ValueError("inner"))
                    await asyncio.Event().wait()
            except ValueError as error:
                seen.append(str(error))
            inner.cancel(ValueError("late"))
            await asyncio.sleep(0)
            loop.call_soon(outer.cancel, ValueError("outer"))
            await asyncio.Event().wait()

    with pytest.raises(ValueError, match="outer"):
        await nested()
    assert seen == ["inner"]


@pytest.mark.parametrize("order", [("interrupt", "cancel"), ("cancel", "interrupt")])
async def test_the_end_of_all_comes_before_an_interruption(order: tuple[str, str]) -> None:
    """A client leaves in the turn in which its engine dies: nothing is tried again for it."""
    stretch, loop, seen = CancelScope(), asyncio.get_running_loop(), []

    async def tries() -> None:
        with stretch:
            for reasons in (("interrupt",), order, ("never",)):
                for reason in reasons:
                    loop.call_soon(getattr(stretch, reason), ValueError(reason))
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    why = stretch.take_reason()
                    seen.append(str(why))
                    if str(why) != "interrupt":
                        raise (why or AssertionError) from None

    with pytest.raises(ValueError, match="cancel"):
        await tries()
    assert seen == ["interrupt", "cancel"]


async def test_a_task_that_is_cancelled_besides_stays_cancelled() -> None:
    """The daemon ends at the moment at which a client leaves."""
    stretch, begun = CancelScope(), asyncio.Event()

    async def work() -> None:
        with stretch:
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    stretch.cancel(ValueError("gone"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("version", "host", "status"), [
    (b"1.1", b"", b"400"), (b"1.1", b"Host: localhost\r\nHost: localhost\r\n", b"400"),
    (b"1.1", b"Host: localhost\r\n", b"200"), (b"1.0", b"", b"200"),
])  # fmt: skip
async def test_http_1_1_has_one_host(house: Any, version: bytes, host: bytes, status: bytes) -> None:
    """RFC 9112, section 3.2; HTTP/1.0 knew none."""
    reader, writer = await house.connect(b"GET /health HTTP/%b\r\n%bConnection: close\r\n\r\n" % (version, host))
    head, _, body = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert "Host" in json.loads(body)["error"]["message"] if status == b"400" else json.loads(body)["status"] == "ok"
    writer.close()


async def cancel(house: Any, request_id: str) -> Any:
    return (await house.client.post(f"/api/requests/{request_id}/cancel", json={})).status_code


async def test_a_waiting_request_is_told_and_leaves_the_queue(house: Any) -> None:
    """400 with our word, which no SDK posts again; the lease is left and no engine hears of it."""
    house.supervisor.gate.clear()
    asking = asyncio.create_task(house.chat())
    row = await house.in_state(RequestState.WAITING)
    assert row.position == 1
    assert await cancel(house, row.id) == 200
    reply = await asking
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "request_cancelled")
    ended = await house.ended()
    assert (ended.id, ended.state, ended.error) == (row.id, RequestState.FAILED, "request_cancelled")
    assert (house.supervisor.open, house.engine.seen) == (0, [])
    assert [await cancel(house, one) for one in (row.id, "nope")] == [404, 404]
    house.supervisor.gate.set()
    assert (await house.chat()).status_code == 200  # and nobody else was harmed


async def test_a_running_stream_ends_at_the_engine_too(house: Any) -> None:
    """The client reads the reason in its own protocol, the engine sees the connection close."""
    house.engine.script = script = Hanging(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n')
    asking = asyncio.create_task(house.chat(stream=True))
    row = await house.in_state(RequestState.STREAMING)
    assert await cancel(house, row.id) == 200
    frames = [frame.removeprefix("data: ") for frame in (await asking).text.strip().split("\n\n")]
    assert json.loads(frames[-2])["error"]["reason"] == "request_cancelled"
    assert frames[-1] == "[DONE]"
    await asyncio.wait_for(script.left.wait(), 60)

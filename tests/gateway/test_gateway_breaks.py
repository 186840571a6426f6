"""Every way in which an answer can break off is told to the right party: the client leaves, the engine dies, the owner cuts it."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace
from typing import Any

import httpx
import pytest
from scripted import ok, streaming

from sparkdash.domain.request import RequestState
from sparkdash.errors import EngineDeadError, EngineError, UpstreamError
from sparkdash.gateway.relay import fallbacks
from sparkdash.settings import Settings

WORD = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'


async def test_a_client_that_leaves_stops_the_engine(house: Any) -> None:
    """Closing the client's connection closes the engine's and ends the lease; the row says gone, and about how much came."""
    left = asyncio.Event()

    async def script(_seen: Any, wire: Any) -> None:
        await wire.head()
        await wire.chunk(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n' * 3)
        await wire.client_left()
        left.set()

    house.engine.script = script
    async with house.client.stream("POST", "/v1/chat/completions", json={"model": "alpha", "stream": True}) as reply:
        await anext(reply.aiter_raw())
    await asyncio.wait_for(left.wait(), 60)
    await house.supervisor.left.wait()
    assert house.supervisor.open == 0
    row = await house.ended()
    assert (row.state, row.completion_tokens, row.completion_estimate) == (RequestState.GONE, None, 3)


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/chat/completions", b"data: [DONE]\n\n"),
        ("/v1/messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        ("/v1/responses", b'event: response.completed\ndata: {"type":"response.completed"}\n\n'),
    ],
)
async def test_a_client_that_hangs_up_at_the_last_event_has_its_whole_answer(
    house: Any, path: str, last: bytes
) -> None:
    """The official clients close at the last event, before the engine has: the row says done, with its figures."""

    async def script(_seen: Any, wire: Any) -> None:
        await wire.head()
        await wire.chunk(
            b'data: {"usage":{"prompt_tokens":3,"completion_tokens":5,"input_tokens":3,"output_tokens":5}}\n\n'
        )
        await wire.chunk(last)
        await wire.client_left()

    house.engine.script = script
    async with house.client.stream("POST", path, json={"model": "alpha", "stream": True}) as reply:
        async for chunk in reply.aiter_raw():
            if last in chunk:
                break
    row = await house.ended()
    assert (row.state, row.error, row.completion_tokens) == (RequestState.DONE, None, 5)


async def test_a_client_that_leaves_before_the_answer_stops_the_engine(house: Any) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def script(_seen: Any, wire: Any) -> None:
        asked.set()
        await wire.client_left()
        left.set()

    house.engine.script = script
    call = asyncio.create_task(house.chat())
    await asked.wait()
    call.cancel()
    await asyncio.wait_for(left.wait(), 60)
    assert (await house.ended()).state is RequestState.GONE


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/chat/completions", b"data: [DONE]\n\n"),
        ("/v1/messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
    ],
)
async def test_an_engine_that_dies_behind_its_last_event_has_answered(house: Any, path: str, last: bytes) -> None:
    """Frozen before it could end the body, it left an error behind `[DONE]`, and a failed row."""
    house.engine.script = streaming(WORD + last, dies=True)
    reply = await house.client.post(path, json={"model": "alpha", "stream": True})
    assert reply.content == WORD + last
    row = await house.ended()
    assert (row.state, row.error) == (RequestState.DONE, None)


async def test_an_engine_that_dies_mid_stream_is_told_in_the_stream(house: Any) -> None:
    """Chat: an error object, then [DONE]; a frame that was cut is ended first; nothing is sent twice."""

    house.engine.script = streaming(WORD, dies=True)
    reply = await house.chat(stream=True)
    assert reply.status_code == 200
    before, error, done = reply.content.removesuffix(b"\n\n").split(b"\n\n")
    assert (before + b"\n\n", done) == (WORD, b"data: [DONE]")
    told = json.loads(error.removeprefix(b"data: "))["error"]
    assert (told["code"], told["type"], told["src"]) == ("engine_died", "server_error", "sparkdash")
    assert told["message"].startswith("alpha broke off in the middle of its answer")
    assert told["hint"] == "Its log says more: `sparkdash logs alpha`."
    row = await house.ended()
    assert (row.state, row.error, len(house.engine.seen)) == (RequestState.FAILED, "engine_died", 1)
    assert isinstance(house.supervisor.unwell[0], UpstreamError)


async def test_a_cut_frame_is_ended_before_the_error(house: Any) -> None:
    """Half a line must not swallow the error that follows it."""

    house.engine.script = streaming(WORD + b'data: {"cho', dies=True)
    content = (await house.chat(stream=True)).content
    assert b'data: {"cho\n\ndata: {"error":' in content


@pytest.mark.parametrize(
    ("route", "frame", "ends"),
    [
        ("/v1/messages", b'event: message_start\ndata: {"type":"message_start"}\n\n', b"event: error\n"),
        (
            "/v1/responses",
            b'event: response.created\ndata: {"response":{"id":"resp_9"},"sequence_number":0}\n\n',
            b"event: response.failed\n",
        ),
    ],
)
async def test_other_protocols_hear_of_it_in_their_own_words(house: Any, route: str, frame: bytes, ends: bytes) -> None:
    """Messages gets `event: error`, responses `response.failed` with the engine's id and the next number, then `error`."""

    house.engine.script = streaming(frame, dies=True)
    reply = await house.client.post(route, json={"model": "alpha", "stream": True})
    frames = reply.content.removesuffix(b"\n\n").split(b"\n\n")
    last = frames[-2] if route == "/v1/responses" else frames[-1]
    assert last.startswith(ends)
    body = json.loads(last.split(b"data: ", 1)[1])
    if route == "/v1/responses":
        error = json.loads(frames[-1].removeprefix(b"event: error\ndata: "))
        assert (error["type"], error["sequence_number"], error["code"]) == ("error", 2, "server_error")
        assert error["message"] == error["error"]["message"] == body["response"]["error"]["message"]
        assert (body["response"]["id"], body["sequence_number"]) == ("resp_9", 1)
        assert (body["response"]["status"], body["response"]["error"]["code"]) == ("failed", "server_error")
    else:
        assert body["error"]["type"] == "api_error"


def until_close(*frames: bytes) -> Any:
    """An engine whose stream has neither chunks nor a length: it ends where the connection does."""

    async def script(_seen: Any, wire: Any) -> None:
        await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for frame in frames:
            await wire.raw(frame)
        wire.writer.close()

    return script


@pytest.mark.parametrize(
    ("route", "frame", "ends"),
    [
        ("/v1/chat/completions", WORD, b"data: [DONE]"),
        ("/v1/messages", b'event: message_start\ndata: {"type":"message_start"}\n\n', b"event: error\n"),
        ("/v1/responses", b'event: response.created\ndata: {"response":{}}\n\n', b"event: response.failed\n"),
    ],
)
async def test_a_connection_that_ends_before_the_streams_last_event_is_a_death(
    house: Any, route: str, frame: bytes, ends: bytes
) -> None:
    """Where only the end of the connection ends the body, a death looks like an end: the dialect's last event tells."""
    house.engine.script = until_close(frame)
    reply = await house.client.post(route, json={"model": "alpha", "stream": True})
    assert reply.content.startswith(frame)
    assert any(one.startswith(ends) for one in reply.content.removesuffix(b"\n\n").split(b"\n\n")[-2:])
    assert b"broke off in the middle of its answer" in reply.content
    row = await house.ended()
    assert (row.state, row.error) == (RequestState.FAILED, "engine_died")
    assert [error.code for error in house.supervisor.unwell] == ["engine_died"]


@pytest.mark.parametrize(
    "frames",
    [
        (WORD, b"data: [DONE]\n\n"),
        (WORD, b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'),
        (b'data: {"error":{"message":"worker lost","code":500}}\n\n',),
    ],
    ids=["done", "a reason", "an error"],
)
async def test_a_stream_that_says_that_it_is_over_is_over(house: Any, frames: tuple[bytes, ...]) -> None:
    """With [DONE], with the engine's reason, or with its own error: nothing is added, however the connection ends."""
    house.engine.script = until_close(*frames)
    reply = await house.chat(stream=True)
    assert reply.content == b"".join(frames)
    assert house.supervisor.unwell == []


async def test_a_stream_that_ends_unanswered_is_queued_once_more(house: Any, tools: Any) -> None:
    async with tools.engine_on_a_socket(until_close()) as dying:
        house.supervisor.urls = [dying.url]
        house.engine.script = streaming(WORD, b"data: [DONE]\n\n")
        reply = await house.chat(stream=True)
    assert reply.content == WORD + b"data: [DONE]\n\n"
    assert (await house.ended()).state is RequestState.DONE


async def test_an_engine_that_tells_of_its_own_death_ends_its_stream_with_the_reason(
    house: Any, recorded_body: Any
) -> None:
    """vLLM's crash frame names none. What came before it passes unchanged, the supervisor hears of it, and the row says why."""
    recorded = recorded_body("vllm-0.32.0-ray-nodedeath-midstream")
    dies_at = recorded.index(b'data: {"error"')
    read = asyncio.Event()

    async def script(_seen: Any, wire: Any) -> None:
        await wire.head()
        await wire.chunk(recorded[:dies_at])
        await read.wait()
        await wire.chunk(recorded[dies_at:])
        await wire.end()

    house.engine.script = script
    async with house.client.stream("POST", "/v1/chat/completions", json={"model": "alpha", "stream": True}) as reply:
        got = b""
        async for piece in reply.aiter_raw():
            got += piece
            read.set()
    assert got.startswith(recorded[:dies_at])
    told, done = got[dies_at:].split(b"\n\n")[:-1]
    assert (json.loads(told.removeprefix(b"data: "))["error"]["src"], done) == ("sparkdash", b"data: [DONE]")
    row = await house.ended()
    assert (row.state, row.error, row.status) == (RequestState.FAILED, "engine_died", 502)
    assert [type(error) for error in house.supervisor.unwell] == [EngineDeadError]


async def test_a_plain_answer_that_breaks_off_is_cut(house: Any) -> None:
    async def script(_seen: Any, wire: Any) -> None:
        await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        wire.abort()

    house.engine.script = script
    with pytest.raises(httpx.RemoteProtocolError):
        await house.chat()
    assert (await house.ended()).error == "engine_died"


async def test_a_request_whose_engine_dies_unanswered_is_queued_once_more(house: Any, tools: Any) -> None:
    async def die(_seen: Any, wire: Any) -> None:
        wire.abort()

    async with tools.engine_on_a_socket(die) as dying:
        house.supervisor.urls = [dying.url]
        reply = await house.chat()
    assert (reply.status_code, len(dying.seen), len(house.engine.seen)) == (200, 1, 1)
    assert [error.code for error in house.supervisor.unwell] == ["engine_died"]
    assert (await house.ended()).state is RequestState.DONE


async def test_it_is_queued_once_only(house: Any) -> None:
    async def die(_seen: Any, wire: Any) -> None:
        wire.abort()

    house.engine.script = die
    reply = await house.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "engine_died")
    assert house.supervisor.leases == ["alpha"] * 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_waits_for_an_engine_that_takes_no_connection(
    house: Any, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a frozen one under load: until it is well again, or the supervisor has given it up; a stream is told."""
    monkeypatch.setattr(fallbacks, "PAUSE_S", 0.001)
    house.app.__init__(replace(house.app._deps, settings=Settings(hold_headers_s=0.0)))
    house.supervisor.urls = ["http://127.0.0.1:1"] * 5
    house.engine.script = streaming(WORD, b"data: [DONE]\n\n") if stream else ok
    reply = await house.chat(stream=stream)
    assert (reply.status_code, house.supervisor.leases) == (200, ["alpha"] * 6)
    assert reply.content.endswith(b"[DONE]\n\n" if stream else b'{"ok":true}')
    assert reply.content.count(b'"content":""') == (4 if stream else 0)
    assert (await house.ended()).state is RequestState.DONE


async def test_the_wait_for_such_an_engine_has_an_end(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long after the supervisor would have given it up; the client is told to come back."""
    monkeypatch.setattr(fallbacks, "UNREACHABLE_S", 0.0)
    house.supervisor.url = "http://127.0.0.1:1"
    reply = await house.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_unreachable")
    assert reply.json()["error"]["message"].startswith("alpha does not answer (")
    assert reply.headers["retry-after"] == "10"


async def hang(_seen: Any, wire: Any) -> None:
    """An engine that takes the request and never answers."""
    await wire.client_left()


def hanging_once(asked: asyncio.Event) -> Any:
    """Script of an engine that never answers its first request, and any later one at once."""

    async def hang_once(_seen: Any, wire: Any) -> None:
        if asked.is_set():
            await wire.answer(b"{}")
        else:
            asked.set()
            await wire.client_left()

    return hang_once


async def test_a_lost_engine_ends_the_wait_for_its_answer(house: Any) -> None:
    """The supervisor sees the death before the socket does: the request goes to the next engine at once."""
    asked = asyncio.Event()
    house.engine.script = hanging_once(asked)
    call = asyncio.create_task(house.chat())
    await asked.wait()
    house.supervisor.lost.set_result(EngineError("killed by the kernel.", code="out_of_memory"))
    assert (await call).status_code == 200
    assert [error.code for error in house.supervisor.unwell] == ["out_of_memory"]
    assert len(house.engine.seen) == 2


def cut_by_a_swap() -> UpstreamError:
    """Reason of a lease that outlives the drain of a swap."""
    return UpstreamError("cut to make room.", code="cut", status=503, retry_after=10.0)


async def test_a_request_that_a_swap_cuts_before_its_first_byte_is_queued_once_more(house: Any) -> None:
    """A request whose client has seen nothing waits for its engine's next turn."""
    asked = asyncio.Event()
    house.engine.script = hanging_once(asked)
    call = asyncio.create_task(house.chat())
    await asked.wait()
    house.supervisor.lost.set_result(cut_by_a_swap())
    assert (await call).status_code == 200
    assert house.supervisor.leases == ["alpha"] * 2


async def test_a_request_that_swaps_cut_twice_is_told_to_come_back(house: Any) -> None:
    """A cut is the box's doing: an agent that reads 400 takes it for a mistake of its own."""
    asked: asyncio.Queue[None] = asyncio.Queue()

    async def hang_always(_seen: Any, wire: Any) -> None:
        asked.put_nowait(None)
        await wire.client_left()

    house.engine.script = hang_always
    call = asyncio.create_task(house.chat(stream=True))
    for _attempt in range(2):
        await asked.get()
        house.supervisor.lost.set_result(cut_by_a_swap())
    reply = await call
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "cut")
    assert reply.json()["error"]["type"] == "server_error"
    assert reply.headers["retry-after"] == "10"
    assert "x-should-retry" not in reply.headers
    assert house.supervisor.leases == ["alpha"] * 2
    assert (await house.ended()).error == "cut"


async def test_a_request_that_is_cut_as_a_person_stops_its_engine_is_over(house: Any) -> None:
    """A request cut by a person's stop is not queued again, which would restart the engine; nor is it the client's mistake."""
    house.engine.script = hang
    call = asyncio.create_task(house.chat(stream=True))
    await house.in_state(RequestState.PREFILL)
    house.supervisor.lost.set_result(EngineError("cut as its engine was stopped.", code="cut"))
    reply = await call
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "cut")
    assert reply.json()["error"]["type"] == "server_error"
    assert reply.headers["x-should-retry"] == "false"
    assert "retry-after" not in reply.headers
    assert house.supervisor.leases == ["alpha"]
    assert (await house.ended()).error == "cut"


@pytest.mark.parametrize("reason", [cut_by_a_swap(), EngineError("cut as its engine was stopped.", code="cut")])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/chat/completions", (b'"type":"server_error"', b'"code":"cut"')),
        ("/v1/messages", (b'"type":"overloaded_error"', b'"code":"cut"')),
        ("/v1/responses", (b'"code":"server_error"', b'"reason":"cut"')),
    ],
)
async def test_a_stream_that_is_cut_ends_with_the_reason(
    house: Any, path: str, words: tuple[bytes, ...], reason: EngineError | UpstreamError
) -> None:
    """In the stream, in words for the box's fault, and the engine's connection is closed."""

    async def begin_and_hang(_seen: Any, wire: Any) -> None:
        await wire.head()
        await wire.chunk(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
        await wire.client_left()

    house.engine.script = begin_and_hang
    async with house.client.stream("POST", path, json={"model": "alpha", "stream": True}) as reply:
        pieces = reply.aiter_raw()
        await anext(pieces)
        house.supervisor.lost.set_result(reason)
        content = b"".join([piece async for piece in pieces])
    if isinstance(reason, EngineError):  # nobody is told to come back
        words = tuple(word.replace(b"overloaded_error", b"api_error") for word in words)
    assert all(word in content for word in words), content
    assert b"invalid" not in content
    assert house.supervisor.leases == ["alpha"]


async def test_a_cut_is_told_though_the_client_reads_nothing(house: Any) -> None:
    """A client that stands still keeps its connection, not its row: the request is over when its lease is."""
    full = asyncio.Event()

    async def script(_seen: Any, wire: Any) -> None:
        await wire.head()
        try:
            while True:  # until every buffer between here and the client is full
                await asyncio.wait_for(wire.chunk(b"data: " + b"x" * 65536 + b"\n\n"), 0.5)
        except TimeoutError:
            full.set()
        await wire.client_left()

    house.engine.script = script
    body = b'{"model":"alpha","stream":true}'
    with socket.create_connection((house.client.base_url.host, house.client.base_url.port)) as client:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        client.sendall(head + body)
        await asyncio.wait_for(full.wait(), 60)
        house.supervisor.lost.set_result(EngineError("It was cut.", code="cut"))
        seen = await asyncio.wait_for(house.until(lambda snapshot: bool(snapshot.recent)), 60)
        assert (seen.recent[0].state, seen.recent[0].error) == (RequestState.FAILED, "cut")
        assert house.supervisor.open == 0

"""Every way in which an answer can break off is told to the right party: the client leaves, the engine dies, the owner cuts it."""

import asyncio
import json
import socket
import time
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from scripted import Hanging, answering, dying, engine_on_a_socket, ok, streaming

from sparkdash.domain.request import RequestState
from sparkdash.errors import EngineDeadError, EngineError, UpstreamError
from sparkdash.gateway.relay import fallbacks
from sparkdash.gateway.relay.fallbacks import RetryPlan
from sparkdash.settings import Settings

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
WORD = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
DEAD = (
    b'{"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", '
    b'"type": "InternalServerError", "param": null, "code": 500}}'
)
"""vLLM's last words, as recorded."""


async def test_a_client_that_leaves_stops_the_engine(house: Any) -> None:
    """Closing the client's connection closes the engine's and ends the lease; the row says gone, and about how much came."""
    house.engine.script = script = Hanging(WORD * 3)
    async with house.client.stream("POST", CHAT, json={"model": "alpha", "stream": True}) as reply:
        await anext(reply.aiter_raw())
    await asyncio.wait_for(script.left.wait(), 60)
    await house.supervisor.left.wait()
    assert house.supervisor.open == 0
    row = await house.ended()
    assert (row.state, row.completion_tokens, row.completion_estimate) == (RequestState.GONE, None, 3)


@pytest.mark.parametrize(("path", "last"), [
    (CHAT, DONE), (MESSAGES, STOP),
    (RESPONSES, b'event: response.completed\ndata: {"type":"response.completed"}\n\n'),
])  # fmt: skip
async def test_a_client_that_hangs_up_at_the_last_event_has_its_whole_answer(
    house: Any, path: str, last: bytes
) -> None:
    """The official clients close at the last event, before the engine has: the row says done, with its figures."""
    counts = b'{"prompt_tokens":3,"completion_tokens":5,"input_tokens":3,"output_tokens":5}'
    house.engine.script = Hanging(b'data: {"usage":%b}\n\n' % counts, last)
    async with house.client.stream("POST", path, json={"model": "alpha", "stream": True}) as reply:
        async for chunk in reply.aiter_raw():
            if last in chunk:
                break
    row = await house.ended()
    assert (row.state, row.error, row.completion_tokens) == (RequestState.DONE, None, 5)


async def test_a_client_that_leaves_before_the_answer_stops_the_engine(house: Any) -> None:
    house.engine.script = script = Hanging()
    call = asyncio.create_task(house.chat())
    await script.asked.get()
    call.cancel()
    await asyncio.wait_for(script.left.wait(), 60)
    assert (await house.ended()).state is RequestState.GONE


async def test_an_engine_that_dies_mid_stream_is_told_in_the_stream(house: Any) -> None:
    """Chat: an error object, then [DONE]; a frame that was cut is ended first; nothing is sent twice."""
    house.engine.script = streaming(WORD, dies=True)
    reply = await house.chat(stream=True)
    assert reply.status_code == 200
    before, error, done = reply.content.removesuffix(b"\n\n").split(b"\n\n")
    assert (before + b"\n\n", done + b"\n\n") == (WORD, DONE)
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


async def test_a_response_that_breaks_off_ends_with_its_own_id_and_numbers(house: Any) -> None:
    """`response.failed` with the engine's id and the next number, then `error`, which alone the SDKs' helpers read."""
    opening = b'event: response.created\ndata: {"response":{"id":"resp_9"},"sequence_number":0}\n\n'
    house.engine.script = streaming(opening, dies=True)
    reply = await house.client.post(RESPONSES, json={"model": "alpha", "stream": True})
    _, failed, error = (json.loads(frame.split(b"data: ", 1)[1]) for frame in reply.content.split(b"\n\n")[:-1])
    assert (failed["type"], failed["response"]["id"], failed["sequence_number"]) == ("response.failed", "resp_9", 1)
    assert (failed["response"]["status"], failed["response"]["error"]["code"]) == ("failed", "server_error")
    assert (error["type"], error["sequence_number"], error["code"]) == ("error", 2, "server_error")
    assert error["message"] == error["error"]["message"] == failed["response"]["error"]["message"]


def until_close(*frames: bytes) -> Any:
    """An engine whose stream has neither chunks nor a length: it ends where the connection does."""

    async def script(_seen: Any, wire: Any) -> None:
        await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        await wire.raw(b"".join(frames))
        wire.writer.close()

    return script


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(("route", "frame", "ends"), [
    (CHAT, WORD, DONE),
    (MESSAGES, b'event: message_start\ndata: {"type":"message_start"}\n\n', b'event: error\ndata: {"type":"error"'),
    (RESPONSES, b'event: response.created\ndata: {"response":{}}\n\n', b"event: response.failed\n"),
])  # fmt: skip
async def test_a_stream_without_its_last_event_is_a_death_told_in_its_own_protocol(
    house: Any, route: str, frame: bytes, ends: bytes, is_reset: bool
) -> None:
    """Where only the end of the connection ends the body, a death looks like an end: the dialect's last event tells."""
    house.engine.script = streaming(frame, dies=True) if is_reset else until_close(frame)
    reply = await house.client.post(route, json={"model": "alpha", "stream": True})
    assert reply.content.startswith(frame)
    assert ends in reply.content
    assert b"broke off in the middle of its answer" in reply.content
    row = await house.ended()
    assert (row.state, row.error) == (RequestState.FAILED, "engine_died")
    assert [error.code for error in house.supervisor.unwell] == ["engine_died"]


@pytest.mark.parametrize(("path", "end", "is_reset"), [
    (CHAT, DONE, False), (CHAT, DONE, True), (MESSAGES, STOP, True),
    (CHAT, b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n', False),
    (CHAT, b'data: {"error":{"message":"worker lost","code":500}}\n\n', False),
])  # fmt: skip
async def test_a_stream_that_says_that_it_is_over_is_over(house: Any, path: str, end: bytes, is_reset: bool) -> None:
    """By its last event, the engine's reason or its own error: nothing is added, however the connection ends."""
    house.engine.script = streaming(WORD, end, dies=True) if is_reset else until_close(WORD, end)
    reply = await house.client.post(path, json={"model": "alpha", "stream": True})
    assert reply.content == WORD + end
    assert (await house.ended()).error == ("engine_error" if b"error" in end else None)


async def test_a_plain_answer_that_breaks_off_is_cut(house: Any) -> None:
    async def script(_seen: Any, wire: Any) -> None:
        await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        wire.abort()

    house.engine.script = script
    with pytest.raises(httpx.RemoteProtocolError):
        await house.chat()
    assert (await house.ended()).error == "engine_died"


@pytest.mark.parametrize(("script", "stream", "kind"), [
    (dying, False, UpstreamError), (until_close(), True, UpstreamError),
    (answering(DEAD, 500), False, EngineDeadError), (answering(DEAD, 500), True, EngineDeadError),
    (streaming(b"data: " + DEAD + b"\n\n", DONE), True, EngineDeadError),
], ids=["no answer", "no event", "last words", "last words for a stream", "last words in a stream"])  # fmt: skip
async def test_a_request_whose_engine_dies_without_an_answer_is_answered_by_the_next(
    house: Any, tools: Any, script: Any, stream: bool, kind: type[UpstreamError]
) -> None:
    """vLLM answers 500 before it exits, or dies in the prefill after its 200: the client has no byte of it."""
    body = WORD + DONE if stream else b'{"choices":[]}'
    async with engine_on_a_socket(script) as dead:
        house.supervisor.urls = [dead.url]
        house.engine.script = streaming(body) if stream else answering(body)
        reply = await house.chat(stream=stream)
    assert (reply.status_code, reply.content, len(dead.seen), len(house.engine.seen)) == (200, body, 1, 1)
    assert [(type(error), error.code) for error in house.supervisor.unwell] == [(kind, "engine_died")]
    assert (await house.ended()).state is RequestState.DONE


@pytest.mark.parametrize(("script", "words"), [(dying, "alpha"), (answering(DEAD, 500), "EngineCore encountered")])
async def test_it_is_sent_to_one_more_engine_only(house: Any, script: Any, words: str) -> None:
    """Then a 502 with the engine's words."""
    house.engine.script = script
    reply = await house.chat()
    told = reply.json()["error"]
    assert (reply.status_code, told["code"], told["src"]) == (502, "engine_died", "sparkdash")
    assert words in told["message"]
    assert house.supervisor.leases == ["alpha"] * 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_waits_for_an_engine_that_takes_no_connection(
    house: Any, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a frozen one under load: until it is well again, or the supervisor has given it up; a stream is told."""
    monkeypatch.setattr(fallbacks, "PAUSE_S", 0.001)
    house.rebuild(settings=Settings(hold_headers_s=0.0))
    house.supervisor.urls = ["http://127.0.0.1:1"] * 5
    house.engine.script = streaming(WORD, DONE) if stream else ok
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


def cut_by_a_swap() -> UpstreamError:
    """Reason of a lease that outlives the drain of a swap."""
    return UpstreamError("cut to make room.", code="cut", status=503, retry_after=10.0)


def stopped() -> EngineError:
    return EngineError("cut as its engine was stopped.", code="cut")


def stuck() -> EngineError:
    return EngineError("alpha stopped making progress: no token for 2m.", code="engine_stuck")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "reason", [EngineError("killed by the kernel.", code="out_of_memory"), cut_by_a_swap(), stuck()]
)
async def test_a_request_whose_engine_is_lost_before_the_first_byte_waits_for_the_next(
    house: Any, reason: EngineError | UpstreamError, stream: bool
) -> None:
    """The supervisor sees the death before the socket does; the lost engine sees its connection close."""
    house.engine.script = lost = Hanging()
    call = asyncio.create_task(house.chat(stream=stream))
    await lost.asked.get()
    house.engine.script = streaming(WORD, DONE) if stream else ok
    house.supervisor.gate.clear()
    house.supervisor.lost.set_result(reason)
    await asyncio.wait_for(lost.left.wait(), 60)
    await house.in_state(RequestState.WAITING)
    house.supervisor.gate.set()
    reply = await call
    assert (reply.status_code, reply.content) == (200, WORD + DONE if stream else b'{"ok":true}')
    assert house.supervisor.leases == ["alpha", "alpha"]
    assert [error.code for error in house.supervisor.unwell] == [reason.code]
    assert (await house.ended()).state is RequestState.DONE


@pytest.mark.parametrize(
    ("reason", "status", "headers"), [(cut_by_a_swap(), 503, {"retry-after": "10"}), (stuck(), 502, {})]
)
async def test_a_request_that_loses_two_engines_is_told(
    house: Any, reason: EngineError | UpstreamError, status: int, headers: dict[str, str]
) -> None:
    """A cut is the box's doing, after which one comes back; an engine that is stuck again may be so by the prompt."""
    house.engine.script = lost = Hanging()
    call = asyncio.create_task(house.chat(stream=True))
    for _attempt in range(2):
        await lost.asked.get()
        house.supervisor.lost.set_result(reason)
    reply = await call
    told = reply.json()["error"]
    assert (reply.status_code, told["code"], told["message"]) == (status, reason.code, reason.message)
    assert {name: reply.headers[name] for name in ("retry-after", "x-should-retry") if name in reply.headers} == headers
    assert house.supervisor.leases == ["alpha"] * 2
    assert (await house.ended()).error == reason.code


async def test_a_request_that_is_cut_as_a_person_stops_its_engine_is_over(house: Any) -> None:
    """A request cut by a person's stop is not queued again, which would restart the engine; nor is it the client's mistake."""
    house.engine.script = lost = Hanging()
    call = asyncio.create_task(house.chat(stream=True))
    await lost.asked.get()
    house.supervisor.lost.set_result(stopped())
    reply = await call
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "cut")
    assert reply.json()["error"]["type"] == "server_error"
    assert reply.headers["x-should-retry"] == "false"
    assert "retry-after" not in reply.headers
    assert house.supervisor.leases == ["alpha"]
    assert (await house.ended()).error == "cut"


@pytest.mark.parametrize("reason", [cut_by_a_swap(), stopped()])
@pytest.mark.parametrize(("path", "words"), [
    (CHAT, (b'"type":"server_error"', b'"code":"cut"')), (MESSAGES, (b'"type":"overloaded_error"', b'"code":"cut"')),
    (RESPONSES, (b'"code":"server_error"', b'"reason":"cut"')),
])  # fmt: skip
async def test_a_stream_that_is_cut_ends_with_the_reason(
    house: Any, path: str, words: tuple[bytes, ...], reason: EngineError | UpstreamError
) -> None:
    """In the stream, in words for the box's fault, and the engine's connection is closed."""
    house.engine.script = Hanging(WORD)
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


def test_trouble_before_an_engine_is_found_stuck_does_not_cost_a_request_its_return() -> None:
    """A frozen process takes no connections: each request fails twice before the engine is named."""
    deps = SimpleNamespace(monotonic=time.monotonic)
    context = SimpleNamespace(profile=None, route=None, deps=deps, name="a", conversation=None)
    plan = RetryPlan(cast("Any", context))
    refused, found_stuck = UpstreamError("No connection."), UpstreamError("a is stuck.", code="engine_stuck")
    assert [plan.next_name(error) for error in (refused, found_stuck)] == ["a", "a"]
    with pytest.raises(UpstreamError, match="a is stuck"):
        plan.next_name(found_stuck)


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

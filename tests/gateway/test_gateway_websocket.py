"""WebSockets through the gateway: a real client library on one side, a real server on the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from sparkdash.access.key import Key, digest, new_secret
from sparkdash.access.keyring import Keyring, add_key, revoke_key
from sparkdash.domain.lease import RequestState
from sparkdash.errors import AdmissionError, EngineError
from sparkdash.gateway.relay import keepalive, socket_passage
from sparkdash.settings import Settings

URL = "/v1/realtime?model=alpha"
LIMIT_S = 20.0

Talk = Callable[[web.WebSocketResponse, web.Request], Awaitable[None]]


async def echo(socket: web.WebSocketResponse, _request: web.Request) -> None:
    """Send everything back."""
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        else:
            await socket.send_bytes(message.data)


@asynccontextmanager
async def engine_that(talk: Talk, protocols: tuple[str, ...] = ()) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """A server with WebSockets on every path; gives its address and the requests that came."""
    seen: list[web.Request] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        socket = web.WebSocketResponse(protocols=protocols, max_msg_size=0)
        await socket.prepare(request)
        await talk(socket, request)
        return socket

    app = web.Application()
    app.router.add_get("/{path:.*}", serve)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}", seen
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(house: Any, path: str = URL, **more: Any) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        asyncio.timeout(LIMIT_S),
        aiohttp.ClientSession() as session,
        session.ws_connect(house.base + path, max_msg_size=0, **more) as socket,
    ):
        yield socket


@pytest.fixture
def settings() -> Settings:
    return Settings(hold_headers_s=0.05, socket_idle_s=60)


async def test_messages_go_both_ways_and_the_row_tells_of_it(house: Any) -> None:
    """Text, bytes, large ones in both directions; the engine's path, and no key or browser header of the client."""
    async with engine_that(echo) as (url, seen):
        house.supervisor.url = url
        async with connected(house, headers={"Authorization": "Bearer secret", "Cookie": "x=1"}) as socket:
            for text in ("a", "b" * 200, "c" * 70_000, "d" * 3_000_000):
                await socket.send_str(text)
                assert (await socket.receive_str()) == text
            await socket.send_bytes(b"\0" * 500_000)
            assert (await socket.receive_bytes()) == b"\0" * 500_000
        request = seen[0]
        assert (request.path, request.query.get("model")) == ("/v1/realtime", "alpha")
        assert "Authorization" not in request.headers
        assert "Cookie" not in request.headers
    row = await house.ended()
    assert (row.state, row.status, row.profile, row.route) == (RequestState.DONE, 101, "alpha", "/v1/realtime")
    await house.supervisor.all_left()


async def test_the_engines_close_reaches_the_client_with_its_code(house: Any) -> None:
    async def bye(socket: web.WebSocketResponse, _request: web.Request) -> None:
        await socket.close(code=4001, message=b"enough")

    async with engine_that(bye) as (url, _):
        house.supervisor.url = url
        async with connected(house) as socket:
            message = await socket.receive()
            assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 4001, "enough")
    assert (await house.ended()).state is RequestState.DONE


async def test_the_clients_close_reaches_the_engine_with_its_code(house: Any) -> None:
    told: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    async def wait(socket: web.WebSocketResponse, _request: web.Request) -> None:
        async for _ in socket:
            pass
        told.set_result(socket.close_code)

    async with engine_that(wait) as (url, _):
        house.supervisor.url = url
        async with connected(house) as socket:
            await socket.close(code=4002, message=b"done")
        assert await asyncio.wait_for(told, LIMIT_S) == 4002
    assert (await house.ended()).state is RequestState.DONE


async def test_a_waiting_client_gets_pings_and_its_early_messages_are_kept(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the model loads; what it says meanwhile reaches the engine in order."""
    monkeypatch.setattr(keepalive, "KEEP_ALIVE_S", 0.02)
    async with engine_that(echo) as (url, _):
        house.supervisor.url = url
        house.supervisor.gate.clear()
        async with connected(house, autoping=False) as socket:
            for number in range(50):
                await socket.send_str(f"early {number}")
            for _ in range(3):
                message = await socket.receive()
                assert message.type is WSMsgType.PING
                await socket.pong(message.data)
            assert (await house.in_state(RequestState.WAITING)).position == 1
            house.supervisor.gate.set()
            heard = []
            while len(heard) < 50:
                message = await socket.receive()
                if message.type is WSMsgType.TEXT:
                    heard.append(message.data)
            assert heard == [f"early {number}" for number in range(50)]


async def test_a_refusal_without_a_wait_has_its_true_status(house: Any) -> None:
    house.supervisor.error = AdmissionError("No room.", code="queue_full", status=503, retry_after=7)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(house.base + URL)
    assert (refused.value.status, refused.value.headers["retry-after"]) == (503, "7")  # type: ignore[index]


async def test_an_unknown_model_is_a_404(house: Any) -> None:
    house.supervisor.error = AdmissionError("No such model.", code="model_not_found", status=404)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(house.base + "/v1/realtime?model=nothing")
    assert refused.value.status == 404


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineError("It ran out of memory.", code="out_of_memory"), 1011),
        (AdmissionError("Full.", code="queue_full", status=503, retry_after=7), 1013),
        (AdmissionError("No.", code="model_not_allowed", status=403), 3003),
    ],
)
async def test_a_load_that_fails_is_an_error_event_and_a_close_with_a_code(
    house: Any, error: Exception, code: int
) -> None:
    house.supervisor.gate.clear()
    house.supervisor.error = error
    async with connected(house, autoping=False) as socket:
        assert (await socket.receive()).type is WSMsgType.PING
        house.supervisor.gate.set()
        message = await socket.receive()
        while message.type is WSMsgType.PING:
            message = await socket.receive()
        event = json.loads(message.data)
        assert (event["type"], event["error"]["code"]) == ("error", error.code)  # type: ignore[attr-defined]
        closed = await socket.receive()
        assert (closed.type, closed.data) == (WSMsgType.CLOSE, code)
        assert closed.extra.startswith(error.code)  # type: ignore[attr-defined]
    assert (await house.ended()).state is RequestState.FAILED


async def test_a_web_page_is_told_of_a_refusal_inside_its_socket(house: Any) -> None:
    """Pages see no status; the model's refusal is an event and a close."""
    house.supervisor.error = AdmissionError("No room.", code="queue_full", status=503, retry_after=7)
    async with connected(house, headers={"Origin": "http://localhost:3000"}) as socket:
        assert json.loads(await socket.receive_str())["error"]["code"] == "queue_full"
        assert (await socket.receive()).data == 1013


async def test_a_foreign_page_gets_no_socket(house: Any) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(house.base + URL, headers={"Origin": "https://evil.example"})
    assert refused.value.status == 403


async def test_a_lease_that_is_cut_closes_with_a_restart(house: Any) -> None:
    """A swap's drain is over, as for a stream."""
    async with engine_that(echo) as (url, _):
        house.supervisor.url = url
        async with connected(house) as socket:
            await socket.send_str("hello")
            await socket.receive_str()
            house.supervisor.lost.set_result(EngineError("alpha was stopped for beta.", code="cut"))
            assert json.loads(await socket.receive_str())["type"] == "error"
            closed = await socket.receive()
            assert (closed.data, closed.extra) == (1012, "cut: alpha was stopped for beta.")
    row = await house.ended()
    assert (row.state, row.error) == (RequestState.FAILED, "cut")


async def test_an_engine_that_dies_closes_with_an_error(house: Any) -> None:
    async def die(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.receive()
        assert request.transport is not None
        request.transport.abort()

    async with engine_that(die) as (url, _):
        house.supervisor.url = url
        async with connected(house) as socket:
            await socket.send_str("hello")
            assert json.loads(await socket.receive_str())["error"]["code"] == "engine_died"
            assert (await socket.receive()).data == 1011
    assert (await house.ended()).error == "engine_died"


async def test_an_engine_that_is_gone_before_it_took_over_costs_only_time(house: Any) -> None:
    async with engine_that(echo) as (url, _):
        house.supervisor.urls = ["http://127.0.0.1:9", url]
        async with connected(house) as socket:
            await socket.send_str("hello")
            assert await socket.receive_str() == "hello"
    assert len(house.supervisor.leases) == 2


async def test_the_engines_refusal_passes_with_its_status(house: Any) -> None:
    """A model without realtime has no such route."""
    body = b'{"error":{"message":"no such route","code":"not_found"}}'
    async with refusing_engine(404, body) as url, aiohttp.ClientSession() as session:
        house.supervisor.url = url
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(house.base + URL)
    assert refused.value.status == 404
    row = await house.ended()
    assert (row.state, row.status, row.error) == (RequestState.FAILED, 404, "not_found")


@asynccontextmanager
async def refusing_engine(status: int, body: bytes) -> AsyncIterator[str]:
    async def serve(_request: web.Request) -> web.Response:
        return web.Response(status=status, body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/{path:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_the_owner_ends_a_socket(house: Any) -> None:
    async with engine_that(echo) as (url, _):
        house.supervisor.url = url
        async with connected(house) as socket:
            await socket.send_str("x")
            await socket.receive_str()
            row = await house.in_state(RequestState.PREFILL)
            reply = await house.client.post(f"/api/requests/{row.id}/cancel", json={})
            assert reply.status_code < 300
            assert json.loads(await socket.receive_str())["error"]["code"] == "request_cancelled"
            assert (await socket.receive()).data == 1008
    await house.supervisor.all_left()


async def test_a_client_that_vanishes_frees_the_engine(house: Any) -> None:
    ended = asyncio.Event()

    async def wait(socket: web.WebSocketResponse, _request: web.Request) -> None:
        async for _ in socket:
            pass
        ended.set()

    async with engine_that(wait) as (url, _):
        house.supervisor.url = url
        reader, writer = await asyncio.open_connection(*house.base.removeprefix("http://").split(":"))
        writer.write(handshake())
        assert b" 101 " in await reader.readline()
        writer.transport.abort()
        await asyncio.wait_for(ended.wait(), LIMIT_S)
    row = await house.ended()
    assert (row.state, row.error) == (RequestState.GONE, "client_gone")
    await house.supervisor.all_left()


def handshake(path: str = URL, *more: str, version: str = "13") -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: keep-alive, Upgrade",
        "Upgrade: WebSocket",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Sec-WebSocket-Version: {version}",
        *more,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def spoken(house: Any, sent: bytes) -> bytes:
    """All that the gateway answers to these bytes."""
    reader, writer = await asyncio.open_connection(*house.base.removeprefix("http://").split(":"))
    writer.write(sent)
    try:
        return await asyncio.wait_for(reader.read(), LIMIT_S)
    finally:
        writer.close()


async def test_the_answer_proves_that_the_key_was_read(house: Any) -> None:
    """RFC 6455 section 1.3 has this very key and answer."""
    async with engine_that(echo) as (url, _):
        house.supervisor.url = url
        close = b"\x88\x80abcd"
        answer = await spoken(house, handshake() + close)
        assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer


async def test_another_version_is_told_the_right_one(house: Any) -> None:
    answer = await spoken(house, handshake(version="8"))
    assert answer.startswith(b"HTTP/1.1 426 ")
    assert b"sec-websocket-version: 13\r\n" in answer


@pytest.mark.parametrize(
    "frame", [b"\x81\x01a", b"\xc1\x81abcda", b"\x83\x80abcd", b"\x89\xfe\x01\x00abcd", b"\x81\xff" + b"\xff" * 12]
)
async def test_a_wrong_frame_closes_with_a_protocol_error(house: Any, frame: bytes) -> None:
    """Unmasked, reserved bits, an unknown opcode, a long ping, an endless length."""
    async with engine_that(echo) as (url, _):
        house.supervisor.url = url
        answer = await spoken(house, handshake() + frame)
        assert b"\x03\xea" in answer.partition(b"\r\n\r\n")[2]
    await house.supervisor.all_left()


async def test_a_plain_get_is_told_that_it_is_a_websocket(house: Any) -> None:
    reply = await house.client.get(URL)
    assert (reply.status_code, reply.headers["upgrade"]) == (426, "websocket")


async def test_an_idle_socket_is_closed_with_a_timeout(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_passage, "LOOK_S", 0.02)
    object.__setattr__(house.app._deps, "settings", Settings(socket_idle_s=0.2))
    async with engine_that(echo) as (url, _):
        house.supervisor.url = url
        async with connected(house) as socket:
            assert json.loads(await socket.receive_str())["error"]["code"] == "socket_idle"
            assert (await socket.receive()).data == 3008


async def test_a_socket_has_a_limit_of_bytes(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_passage, "LOOK_S", 0.02)
    object.__setattr__(house.app._deps, "settings", Settings(socket_limit_mib=1))
    async with engine_that(echo) as (url, _):
        house.supervisor.url = url
        async with connected(house) as socket:
            await socket.send_str("x" * 700_000)
            await socket.receive_str()
            assert json.loads(await socket.receive_str())["error"]["code"] == "socket_limit"
            assert (await socket.receive()).data == 1009


async def test_a_silent_client_gets_pings_that_the_engine_never_hears_of(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_passage, "LOOK_S", 0.02)
    monkeypatch.setattr(socket_passage, "PING_S", 0.05)
    heard: list[WSMsgType] = []

    async def listen(socket: web.WebSocketResponse, _request: web.Request) -> None:
        while (message := await socket.receive()).type not in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED):
            heard.append(message.type)

    async with engine_that(listen) as (url, _):
        house.supervisor.url = url
        async with connected(house, autoping=False) as socket:
            for _ in range(3):
                message = await socket.receive()
                assert message.type is WSMsgType.PING
                await socket.pong(message.data)
            await socket.send_str("x")
        assert heard == [WSMsgType.TEXT]


async def test_the_models_name_becomes_the_engines_own(house: Any) -> None:
    """In the query and in `session.update`; other messages pass as they are."""
    house.supervisor.names = ("own/name",)
    async with engine_that(echo) as (url, seen):
        house.supervisor.url = url
        async with connected(house) as socket:
            await socket.send_str('{"type": "session.update", "model": "alpha", "x":  1}')
            assert await socket.receive_str() == '{"type": "session.update", "model": "own/name", "x":  1}'
            await socket.send_str('{"type":"session.update","session":{"model":"alpha","voice":"a"}}')
            assert json.loads(await socket.receive_str())["session"] == {"model": "own/name", "voice": "a"}
            for same in ('{"type":"session.update","model":"own/name"}', '{"type":"x","model":"alpha"}', "no json"):
                await socket.send_str(same)
                assert await socket.receive_str() == same
        assert seen[0].query["model"] == "own/name"


async def test_an_engines_counts_are_added_up_in_the_row(house: Any) -> None:
    async def talk(socket: web.WebSocketResponse, _request: web.Request) -> None:
        await socket.send_json({"type": "session.created"})
        await socket.send_json({"type": "transcription.delta", "delta": "hel"})
        await socket.send_json({"type": "transcription.done", "usage": {"prompt_tokens": 10, "completion_tokens": 3}})
        usage = {"input_tokens": 5, "output_tokens": 4, "total_tokens": 9}
        await socket.send_json({"type": "response.done", "response": {"usage": usage}})
        await socket.close()

    async with engine_that(talk) as (url, _):
        house.supervisor.url = url
        async with connected(house) as socket:
            async for _ in socket:
                pass
    row = await house.ended()
    assert (row.prompt_tokens, row.completion_tokens, row.decode_tok_s) == (15, 7, None)
    assert row.ttft_s is not None


def locked(house: Any, path: Path, **more: Any) -> str:
    """Have the gateway ask for a key named `page`, and return its secret."""
    secret = new_secret()
    add_key(path, Key(name="page", sha256=digest(secret), **more))
    house.app.__init__(replace(house.app._deps, keys=Keyring(path)))
    return secret


async def test_a_socket_counts_within_its_keys_limit(house: Any, tmp_path: Path) -> None:
    secret = locked(house, tmp_path / "keys.json", requests_per_minute=1)
    headers = {"Authorization": f"Bearer {secret}"}
    async with engine_that(echo) as (url, _):
        house.supervisor.url = url
        async with connected(house, headers=headers) as socket:
            await socket.send_str("x")
            await socket.receive_str()
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(house.base + URL, headers=headers)
    assert refused.value.status == 429


async def test_a_key_that_is_revoked_ends_its_socket(
    house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_passage, "LOOK_S", 0.02)
    secret = locked(house, tmp_path / "keys.json")
    async with engine_that(echo) as (url, _):
        house.supervisor.url = url
        async with connected(house, headers={"Authorization": f"Bearer {secret}"}) as socket:
            await socket.send_str("x")
            await socket.receive_str()
            revoke_key(tmp_path / "keys.json", "page")
            assert json.loads(await socket.receive_str())["error"]["code"] == "key_ended"
            assert (await socket.receive()).data == 3000


async def test_a_pages_key_may_be_a_subprotocol(house: Any, tmp_path: Path) -> None:
    """As OpenAI's own client for browsers sends it; neither the answer nor the engine has it."""
    secret = locked(house, tmp_path / "keys.json")
    async with engine_that(echo, protocols=("realtime",)) as (url, seen):
        house.supervisor.url = url
        offered = ("realtime", f"openai-insecure-api-key.{secret}", "openai-beta.realtime-v1")
        async with connected(house, protocols=offered, headers={"Origin": "http://localhost"}) as socket:
            assert socket.protocol == "realtime"
            await socket.send_str("x")
            assert await socket.receive_str() == "x"
        assert seen[0].headers["Sec-WebSocket-Protocol"] == "realtime"
        async with connected(house, headers={"Origin": "http://localhost"}) as socket:
            assert json.loads(await socket.receive_str())["error"]["code"] == "key_missing"
            assert (await socket.receive()).data == 3000
    assert (await house.ended()).key == "page"


async def test_an_engines_own_websocket_is_passed_unchanged(house: Any) -> None:
    async with engine_that(echo) as (url, seen):
        house.supervisor.url = url
        async with connected(house, "/upstream/alpha/ws?clientId=7") as socket:
            await socket.send_str('{"type":"session.update","model":"alpha"}')
            assert await socket.receive_str() == '{"type":"session.update","model":"alpha"}'
        assert str(seen[0].rel_url) == "/ws?clientId=7"


async def test_other_paths_have_no_websocket(house: Any) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(house.base + "/v1/responses")
    assert refused.value.status == 426


async def test_a_stalled_client_holds_the_engine_up_and_not_the_memory(house: Any) -> None:
    """An engine that sends far more than a client takes is paused."""
    sent = 0
    enough = asyncio.Event()

    async def flood(socket: web.WebSocketResponse, _request: web.Request) -> None:
        nonlocal sent
        for _ in range(400):
            await socket.send_bytes(b"\0" * 200_000)
            sent += 1
        enough.set()

    async with engine_that(flood) as (url, _):
        house.supervisor.url = url
        reader, writer = await asyncio.open_connection(*house.base.removeprefix("http://").split(":"), limit=2**16)
        writer.write(handshake())
        await reader.readuntil(b"\r\n\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(enough.wait(), 0.3)
        assert sent < 200
        taken = 0
        while not enough.is_set() and taken < 100_000_000:
            taken += len(await asyncio.wait_for(reader.read(2**20), LIMIT_S))
        writer.transport.abort()
    await house.supervisor.all_left()

"""WebSockets through the gateway: a real client library on one side, a real server on the other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from scripted import answering
from serving import aiohttp_server

from sparkdash.domain.request import RequestState
from sparkdash.errors import AdmissionError, EngineError
from sparkdash.gateway.relay import dispatch
from sparkdash.keyring import Key, Keyring, Scope, add_key, digest, new_secret, revoke_key
from sparkdash.settings import Settings

URL = "/v1/realtime?model=alpha"
LIMIT_S = 20.0

Talk = Callable[[web.WebSocketResponse, web.Request], Awaitable[None]]


async def echo(socket: web.WebSocketResponse, _request: web.Request) -> None:
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
    async with aiohttp_server(app) as url:
        yield url, seen


@asynccontextmanager
async def connected(house: Any, path: str = URL, **more: Any) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        asyncio.timeout(LIMIT_S),
        aiohttp.ClientSession() as session,
        session.ws_connect(house.base + path, max_msg_size=0, **more) as socket,
    ):
        yield socket


@asynccontextmanager
async def talking(
    house: Any, talk: Talk = echo, path: str = URL, **more: Any
) -> AsyncIterator[tuple[aiohttp.ClientWebSocketResponse, list[web.Request]]]:
    """A client's socket through the gateway to a server that talks so, and the requests that came to the server."""
    async with engine_that(talk) as (url, seen):
        house.supervisor.url = url
        async with connected(house, path, **more) as socket:
            yield socket, seen


async def echoes(socket: aiohttp.ClientWebSocketResponse, text: str = "x") -> bool:
    await socket.send_str(text)
    return await socket.receive_str() == text


@pytest.fixture
def settings() -> Settings:
    return Settings(hold_headers_s=0.05, socket_idle_s=60)


async def test_messages_go_both_ways_and_the_row_tells_of_it(house: Any) -> None:
    """Text, bytes, large ones in both directions; the engine's path, and no key or browser header of the client."""
    async with talking(house, headers={"Authorization": "Bearer secret", "Cookie": "x=1"}) as (socket, seen):
        for text in ("a", "b" * 200, "c" * 70_000, "d" * 3_000_000):
            assert await echoes(socket, text)
        await socket.send_bytes(b"\0" * 500_000)
        assert (await socket.receive_bytes()) == b"\0" * 500_000
    request = seen[0]
    assert (request.path, request.query.get("model")) == ("/v1/realtime", "alpha")
    assert not {"Authorization", "Cookie"} & request.headers.keys()
    row = await house.ended()
    assert (row.state, row.status, row.profile, row.route) == (RequestState.DONE, 101, "alpha", "/v1/realtime")
    await house.supervisor.all_left()


async def test_the_engines_close_reaches_the_client_with_its_code(house: Any) -> None:
    async def bye(socket: web.WebSocketResponse, _request: web.Request) -> None:
        await socket.close(code=4001, message=b"enough")

    async with talking(house, bye) as (socket, _):
        message = await socket.receive()
        assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 4001, "enough")
    assert (await house.ended()).state is RequestState.DONE


async def test_the_clients_close_reaches_the_engine_with_its_code(house: Any) -> None:
    told: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    async def wait(socket: web.WebSocketResponse, _request: web.Request) -> None:
        async for _ in socket:
            pass
        told.set_result(socket.close_code)

    async with talking(house, wait) as (socket, _):
        await socket.close(code=4002, message=b"done")
        assert await told == 4002
    assert (await house.ended()).state is RequestState.DONE


async def refusal(house: Any, path: str = URL, **headers: str) -> Any:
    """The error that the client library raises for a handshake without a 101."""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(house.base + path, headers=headers)
    return refused.value


async def test_a_refusal_without_a_wait_has_its_true_status(house: Any) -> None:
    house.supervisor.error = AdmissionError("No room.", code="queue_full", status=503, retry_after=7)
    refused = await refusal(house)
    assert (refused.status, refused.headers["retry-after"]) == (503, "7")


@pytest.mark.parametrize(
    ("path", "headers", "status"), [(URL, {"Origin": "https://evil.example"}, 403), ("/v1/responses", {}, 426)]
)
async def test_a_foreign_page_and_another_path_get_no_socket(
    house: Any, path: str, headers: dict[str, str], status: int
) -> None:
    assert (await refusal(house, path, **headers)).status == status


async def test_an_engine_that_is_gone_before_it_took_over_costs_only_time(house: Any) -> None:
    async with engine_that(echo) as (url, _):
        house.supervisor.urls = ["http://127.0.0.1:9", url]
        async with connected(house) as socket:
            assert await echoes(socket)
    assert len(house.supervisor.leases) == 2


async def test_the_engines_refusal_passes_with_its_status(house: Any) -> None:
    """A model without realtime has no such route."""
    house.engine.script = answering(b'{"error":{"message":"no such route","code":"not_found"}}', 404)
    assert (await refusal(house)).status == 404
    row = await house.ended()
    assert (row.state, row.status, row.error) == (RequestState.FAILED, 404, "not_found")


HANDSHAKE = (
    f"GET {URL} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()


async def test_a_plain_get_is_told_that_it_is_a_websocket(house: Any) -> None:
    reply = await house.client.get(URL)
    assert (reply.status_code, reply.headers["upgrade"]) == (426, "websocket")


def locked(house: Any, path: Path, **more: Any) -> str:
    """Have the gateway ask for a key named `page`, and return its secret."""
    secret = new_secret()
    add_key(path, Key(name="page", sha256=digest(secret), **more))
    house.rebuild(keys=Keyring(path))
    return secret


async def test_a_socket_counts_within_its_keys_limit(house: Any, tmp_path: Path) -> None:
    secret = locked(house, tmp_path / "keys.json", requests_per_minute=1)
    headers = {"Authorization": f"Bearer {secret}"}
    async with talking(house, headers=headers) as (socket, _):
        assert await echoes(socket)
        assert (await refusal(house, **headers)).status == 429


async def test_an_engines_own_websocket_is_passed_unchanged(house: Any) -> None:
    async with talking(house, path="/upstream/alpha/ws?clientId=7") as (socket, seen):
        assert await echoes(socket, '{"type":"session.update","model":"alpha"}')
    assert str(seen[0].rel_url) == "/ws?clientId=7"


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
        reader, writer = await house.connect(HANDSHAKE, limit=2**16)
        await reader.readuntil(b"\r\n\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(enough.wait(), 0.3)
        assert sent < 200
        taken = 0
        while not enough.is_set() and taken < 100_000_000:
            taken += len(await asyncio.wait_for(reader.read(2**20), LIMIT_S))
        writer.transport.abort()
    await house.supervisor.all_left()


async def test_a_client_waits_in_its_handshake_while_the_model_loads(house: Any) -> None:
    house.supervisor.gate.clear()
    asyncio.get_running_loop().call_later(0.3, house.supervisor.gate.set)
    async with talking(house) as (socket, _):
        assert house.supervisor.gate.is_set()
        assert await echoes(socket)


async def test_a_load_that_fails_has_its_true_status(house: Any) -> None:
    house.supervisor.gate.clear()
    house.supervisor.error = EngineError("It ran out of memory.", code="out_of_memory")
    asyncio.get_running_loop().call_later(0.1, house.supervisor.gate.set)
    assert (await refusal(house)).status == 400
    row = await house.ended()
    assert (row.state, row.error) == (RequestState.FAILED, "out_of_memory")


async def end_by_owner(house: Any, _path: Path) -> None:
    row = await house.in_state(RequestState.STREAMING)
    assert (await house.client.post(f"/api/requests/{row.id}/cancel", json={})).status_code < 300


async def end_with_its_lease(house: Any, _path: Path) -> None:
    house.supervisor.lost.set_result(EngineError("alpha was stopped for beta.", code="cut"))


async def end_by_silence(house: Any, _path: Path) -> None:
    object.__setattr__(house.app._deps, "settings", Settings(socket_idle_s=0.2))


async def end_by_bytes(house: Any, _path: Path) -> None:
    object.__setattr__(house.app._deps, "settings", Settings(socket_limit_mib=1))


async def end_with_its_key(_house: Any, path: Path) -> None:
    revoke_key(path, "page")


@pytest.mark.parametrize(("end", "code"), [
    (end_by_owner, "request_cancelled"), (end_with_its_lease, "cut"), (end_by_silence, "socket_idle"),
    (end_by_bytes, "socket_limit"), (end_with_its_key, "key_ended"),
])  # fmt: skip
async def test_whoever_ends_a_socket_gives_the_reason(
    house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Any, code: str
) -> None:
    """A person, its lease (as a swap's drain is over), silence, too many bytes, or its revoked key."""
    monkeypatch.setattr(dispatch, "LOOK_S", 0.02)
    secret = locked(house, tmp_path / "keys.json", scopes=(Scope.INFERENCE, Scope.CONTROL))
    house.client.headers["Authorization"] = f"Bearer {secret}"
    async with talking(house, headers={"Authorization": f"Bearer {secret}"}) as (socket, _):
        assert await echoes(socket, "x" * 700_000)
        await end(house, tmp_path / "keys.json")
        assert (await socket.receive()).type in {WSMsgType.CLOSED, WSMsgType.CLOSE, WSMsgType.ERROR}
    await house.supervisor.all_left()
    row = await house.ended()
    assert (row.state, row.error) == (RequestState.FAILED, code)


async def test_an_engine_that_dies_closes_the_socket(house: Any) -> None:
    async def die(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.receive()
        assert request.transport is not None
        request.transport.abort()

    async with talking(house, die) as (socket, _):
        await socket.send_str("hello")
        assert (await socket.receive()).type is WSMsgType.CLOSED
    await house.supervisor.all_left()


async def test_a_client_that_vanishes_frees_the_engine(house: Any) -> None:
    ended = asyncio.Event()

    async def wait(socket: web.WebSocketResponse, _request: web.Request) -> None:
        async for _ in socket:
            pass
        ended.set()

    async with engine_that(wait) as (url, _):
        house.supervisor.url = url
        reader, writer = await house.connect(HANDSHAKE)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".lower() in answer.lower()
        writer.transport.abort()
        await asyncio.wait_for(ended.wait(), LIMIT_S)
    assert (await house.ended()).state is RequestState.DONE
    await house.supervisor.all_left()


async def test_the_model_in_the_query_becomes_the_engines_own(house: Any) -> None:
    house.supervisor.names = ("own/name",)
    async with talking(house, path=URL + "&x=1") as (_, seen):
        assert dict(seen[0].query) == {"model": "own/name", "x": "1"}


async def test_a_pages_key_may_be_a_subprotocol(house: Any, tmp_path: Path) -> None:
    """As OpenAI's own client for browsers sends it; neither the answer nor the engine has it."""
    secret = locked(house, tmp_path / "keys.json")
    async with engine_that(echo, protocols=("realtime",)) as (url, seen):
        house.supervisor.url = url
        offered = ("realtime", f"openai-insecure-api-key.{secret}", "openai-beta.realtime-v1")
        async with connected(house, protocols=offered, headers={"Origin": "http://localhost"}) as socket:
            assert socket.protocol == "realtime"
            assert await echoes(socket)
        assert seen[0].headers["Sec-WebSocket-Protocol"] == "realtime"
    assert (await house.ended()).key == "page"

"""Connection to an engine: every framing, cut anywhere; whatever an engine may send that is no answer."""

import asyncio
from collections.abc import Coroutine, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sockets import MemorySocket

from sparkdash.errors import UpstreamError
from sparkdash.upstream import EngineResponse, Upstream
from sparkdash.upstream.connection import BUFFER_LIMIT, HEAD_LIMIT, EngineConnection

PIECES = st.lists(st.binary(min_size=1, max_size=60), max_size=6)
CUTS = st.lists(st.integers(0, 600), max_size=12)
FRAMINGS = st.sampled_from(["chunked", "length", "close"])


def connection() -> tuple[EngineConnection, MemorySocket]:
    made = EngineConnection("here:1", lambda _lost: None, lambda _over: None)
    return made, MemorySocket(made)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def framed(body: list[bytes], framing: str, head: bytes = b"") -> bytes:
    start = head + b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    whole = b"".join(body)
    if framing == "length":
        return start + b"Content-Length: %d\r\n\r\n" % len(whole) + whole
    if framing == "close":
        return start + b"Connection: close\r\n\r\n" + whole
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in body)
    return start + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def parts(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[a:b] for a, b in pairwise(at)]


async def fed(made: EngineConnection, data: list[bytes], *, ends: bool) -> None:
    """The engine's side of it, a step of the loop for each read."""
    for part in data:
        if not made._transport.is_closing():
            made.data_received(part)
        await asyncio.sleep(0)
    if ends and not made._transport.is_closing():
        made._transport.abort()


async def heard(made: EngineConnection, *, pours: bool) -> bytes:
    """Body as the caller gets it."""
    await made.ask(b"GET / HTTP/1.1\r\n\r\n", b"")
    got: list[bytes] = []
    if pours:
        got.append(await made.pour(got.append))
    else:
        while piece := await made.piece():
            got.append(piece)
    return b"".join(got)


async def told(data: list[bytes], *, ends: bool, pours: bool) -> tuple[bytes | str, bool]:
    """The body, or the code of why there is none; and whether the connection may be used again."""
    made, _ = connection()
    asking = asyncio.create_task(heard(made, pours=pours))
    await asyncio.sleep(0)
    await fed(made, data, ends=ends)
    try:
        return await asyncio.wait_for(asking, 60), made.is_free
    except UpstreamError as error:
        return error.code, made.is_free


@settings(max_examples=150)
@given(PIECES, FRAMINGS, CUTS, st.booleans(), st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
def test_every_framing_cut_anywhere(
    loop: asyncio.AbstractEventLoop, body: list[bytes], framing: str, cuts: list[int], pours: bool, herald: bytes
) -> None:
    """The body arrives whole, taken piece by piece or poured; a connection is kept unless its end was the body's."""
    data = parts(framed(body, framing, herald), cuts)
    got, free = loop.run_until_complete(told(data, ends=framing == "close", pours=pours))
    assert got == b"".join(body)
    assert free is (framing != "close")


async def test_trailers_are_no_headers() -> None:
    """Not even those that come in the same read as the head: what an engine learns at the end comes too late for its client."""
    made, _ = connection()
    asking = asyncio.create_task(made.ask(b"GET / HTTP/1.1\r\n\r\n", b""))
    await asyncio.sleep(0)
    made.data_received(framed([b"body"], "chunked")[:-2] + b"X-Late: 1\r\n\r\n")
    await asking
    answer = EngineResponse(made)
    assert await answer.read() == b"body"
    assert [name.lower() for name, _ in answer.headers] == [b"content-type", b"transfer-encoding"]


@settings(max_examples=100)
@given(PIECES, st.sampled_from(["chunked", "length"]), CUTS, st.integers(0, 400), st.booleans())
def test_an_answer_that_stops_is_an_error(
    loop: asyncio.AbstractEventLoop, body: list[bytes], framing: str, cuts: list[int], stop: int, pours: bool
) -> None:
    """Wherever it stops: nobody waits on, and a part never passes for the whole."""
    whole = framed(body, framing)
    data = parts(whole[: min(stop, len(whole) - 1)], cuts)
    got, free = loop.run_until_complete(told(data, ends=True, pours=pours))
    assert (got, free) == ("engine_died", False)


@settings(max_examples=150)
@given(
    st.lists(st.binary(max_size=80), max_size=5),
    st.booleans(),
    st.sampled_from([b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n"]),
)
def test_rubbish_is_an_error(loop: asyncio.AbstractEventLoop, data: list[bytes], pours: bool, start: bytes) -> None:
    """No bytes that an engine may send raise anything else, or leave somebody waiting."""
    got, free = loop.run_until_complete(told([start, *data], ends=True, pours=pours))
    assert isinstance(got, bytes) or got == "engine_died"
    assert not free


@pytest.mark.parametrize("data", [
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * HEAD_LIMIT, b"SSH-2.0-OpenSSH_9.2\r\n",
], ids=["upgrade", "two framings", "two lengths", "no chunk", "endless head", "no http"])  # fmt: skip
async def test_what_is_no_answer_closes_the_connection(data: bytes) -> None:
    assert await told([data], ends=False, pours=False) == ("engine_died", False)


async def test_what_was_not_asked_for_is_not_read() -> None:
    """A second answer behind the first, and words on a connection that rests: it is not used again."""
    answer = framed([b"one"], "length")
    assert await told([answer + framed([b"two"], "length")], ends=False, pours=True) == (b"one", False)
    made, socket = connection()
    made.data_received(answer)
    assert socket.closing


async def test_what_nobody_takes_stays_with_the_engine() -> None:
    """Reading stops at the limit, and goes on when it is taken."""
    made, socket = connection()
    asking = asyncio.create_task(made.ask(b"GET / HTTP/1.1\r\n\r\n", b""))
    await asyncio.sleep(0)
    made.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n")
    await asking
    made.data_received(b"x" * (BUFFER_LIMIT + 1))
    assert socket.paused
    pouring = asyncio.create_task(made.pour(lambda _piece: None))
    await asyncio.sleep(0)
    assert not socket.paused
    pouring.cancel()


async def test_what_the_taker_raises_comes_out_where_it_was_poured() -> None:
    made, _ = connection()

    def take(_piece: bytes) -> None:
        raise RuntimeError("full")

    asking = asyncio.create_task(made.ask(b"GET / HTTP/1.1\r\n\r\n", b""))
    await asyncio.sleep(0)
    made.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n")
    await asking
    pouring = asyncio.create_task(made.pour(take))
    await asyncio.sleep(0)
    made.data_received(b"ab")
    with pytest.raises(RuntimeError, match="full"):
        await pouring


# --- on a real socket ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda upstream: upstream.get("http://127.0.0.1:1/", timeout_s=60, headers=[("Authorization", "Bearer k\n")]),
        lambda upstream: upstream.get("http://127.0.0.1:1/a\r\nX: y", timeout_s=60),
        lambda upstream: upstream.get("ftp://user:secret@box/", timeout_s=60),
        lambda upstream: upstream.get("http://:80/", timeout_s=60),
    ],
    ids=["key with a line break", "address with one", "no http", "no host"],
)
async def test_what_cannot_be_asked_is_refused(upstream: Upstream, call: Any) -> None:
    """Before anything is sent, and without a word of a secret."""
    asked: Coroutine[Any, Any, Any] = call(upstream)
    with pytest.raises(UpstreamError) as caught:
        await asked
    assert caught.value.code == "engine_unreachable"
    assert "secret" not in str(caught.value)


async def test_origins_without_connections_are_forgotten(
    upstream: Upstream, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that rests for long is closed, and nothing wakes the process afterwards."""
    monkeypatch.setattr("sparkdash.upstream.client.KEPT_S", 0.01)
    await upstream.get(engine.url + "/x", timeout_s=60)
    pool = upstream._pool
    async with asyncio.timeout(60):
        await pool._all_closed.wait()
    assert (pool._origins, pool._timer) == ({}, None)

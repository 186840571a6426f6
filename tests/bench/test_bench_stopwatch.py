"""When pieces came; against servers of a few lines that speak HTTP over real sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparkdash.bench.measure import http_client
from sparkdash.bench.measure.http_client import (
    ROOM,
    SO_TIMESTAMPNS,
    TOLD,
    BrokenAnswerError,
    TimedAnswer,
    timed_post,
)

OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """The root of a server that gives this answer and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\nbody")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def asked(root: str, uds: Path | None = None) -> TimedAnswer:
    return await timed_post(root, "/v1/chat/completions", {"X-Of": "ours"}, b"body", uds)


@pytest.fixture
def noting() -> Iterator[None]:
    """The kernel notes arrivals from a moment after the first socket asked for it (it is switched on by a work queue), and till then
    notes when they are read. This socket asks, and has seen that it is so."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as box:
        box.bind(("127.0.0.1", 0))
        box.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        late_ns = 0
        while late_ns < 500_000:
            box.sendto(b"x", box.getsockname())
            time.sleep(0.001)
            read_ns = time.time_ns()
            ((_, _, told),) = box.recvmsg(1, ROOM)[1]
            seconds, nanoseconds = TOLD.unpack(told)
            late_ns = read_ns - seconds * 1_000_000_000 - nanoseconds
        yield


@pytest.mark.usefixtures("noting")
async def test_a_late_client_measures_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop stands still when the piece comes: the moment is that of the arrival, before the loop went on."""
    loop, seen, on_body = asyncio.get_running_loop(), asyncio.Event(), http_client._Answer.on_body
    monkeypatch.setattr(http_client._Answer, "on_body", lambda answer, body: (on_body(answer, body), seen.set()))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        asking = asyncio.create_task(asked(f"http://127.0.0.1:{server.getsockname()[1]}"))
        engine, _ = await loop.sock_accept(server)
        request = b""
        while not request.endswith(b"body"):
            request += await loop.sock_recv(engine, 65536)
        await asyncio.sleep(0)
        engine.sendall(OK + chunk(b"data: a\n\n"))
        sent = time.perf_counter_ns()
        time.sleep(0.02)  # noqa: ASYNC251 - the stall that is the point
        went_on = time.perf_counter_ns()
        await seen.wait()  # it is read before the end comes
        await loop.sock_sendall(engine, END)
        timed = await asking
        engine.close()
    assert b"X-Of: ours\r\n" in request
    assert timed.body == b"data: a\n\n"
    arrived = timed.pieces[0][0]
    assert timed.t0_ns < arrived < went_on
    assert timed.late_ns[0] >= went_on - max(sent, arrived)


async def test_a_kernel_that_notes_no_arrivals_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that refuses the option, as sandboxes and emulators do: the moment is that of the read, and none is called late."""
    monkeypatch.setattr(http_client, "SO_TIMESTAMPNS", 9999)
    async with answering(OK + chunk(b"a") + END) as root:
        timed = await asked(root)
    assert (timed.status, timed.body, timed.late_ns) == (200, b"a", [])
    assert timed.pieces[0][0] > timed.t0_ns


async def test_each_chunk_is_a_piece_of_its_own() -> None:
    async with answering(OK + chunk(b"a") + chunk(b"bc") + END) as root:
        timed = await asked(root)
    assert (timed.status, [piece for _, piece in timed.pieces]) == (200, [b"a", b"bc"])
    assert timed.pieces[0][0] == timed.pieces[1][0] > timed.t0_ns


async def test_a_body_may_end_with_its_connection() -> None:
    async with answering(b"HTTP/1.1 503 Busy\r\n\r\nlater") as root:
        timed = await asked(root)
    assert (timed.status, timed.body) == (503, b"later")


@pytest.mark.parametrize("answer", [OK + chunk(b"a"), b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n"])
async def test_what_is_broken_off_is_an_error(answer: bytes) -> None:
    async with answering(answer) as root:
        with pytest.raises(BrokenAnswerError):
            await asked(root)


async def test_a_unix_socket(tmp_path: Path) -> None:
    """The URL's host only fills the Host header; nobody tells when bytes came, and that is not zero."""
    place = tmp_path / "s"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"Host: localhost\r\n" in await reader.readuntil(b"body")
        writer.write(OK + chunk(b"x") + END)
        writer.close()

    server = await asyncio.start_unix_server(serve, str(place))
    async with server:
        timed = await asked("http://localhost", place)
    assert (timed.body, timed.late_ns) == (b"x", [])

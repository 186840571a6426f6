"""What the bench's own client costs: how late its timestamps are, and the CPU per piece, beside aiohttp's client.

    .venv/bin/python tests/perf/client.py [--streams 1,16,64] [--pieces 250] [--rate 50] [--rounds 3]

A paced engine in a process of its own steps all streams at once and writes into each piece when it was sent, by the
monotonic clock that all processes of a machine share. Late is the client's timestamp less that moment: what the bench's
figures are wrong by. Read late is how long after the kernel had a piece it was read, as `sparkdash bench` tells it of its
own cells. The bench's client runs under uvloop, as in the product; aiohttp's stamps what `readany` returns. Each runs in
a process of its own, in turns. Prints a Markdown table, and ends with 1 when the bench's timestamps are later than 1 ms
at p99. CPU is user and system time of the client's process while the streams ran, divided by the pieces.
Not part of the test suite; docs/evidence.md has what was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing as mp
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

import aiohttp
import uvloop

from sparkdash.bench.measure.http_client import TimedConnections

GOAL_MS = 1.0
SENT = re.compile(rb"@(\d+)")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PADDING = b"x" * 230
"""With it a piece is as long as vLLM's."""


class Seen(NamedTuple):
    """Of one client's round: milliseconds, and CPU seconds."""

    late: list[float]
    read_late: list[float]
    cpu_s: float


def main() -> int:
    """Take turns, print, and say whether the goal is met."""
    args = arguments()
    mp.set_start_method("spawn")
    load = os.getloadavg()[0]
    rows = []
    met = True
    for streams in args.streams:
        found: dict[str, list[Seen]] = {name: [] for name in CLIENTS}
        for turn in range(args.rounds):
            for name in CLIENTS:
                sys.stderr.write(f"{streams} streams, round {turn + 1}/{args.rounds}: {name}\n")
                found[name].append(one(name, streams, args.pieces, args.rate))
        for name, seen in found.items():
            rows.append(row(streams, name, seen, args.pieces * streams * args.rounds))
        met &= quantile([late for one in found["sparkdash bench"] for late in one.late], 0.99) < GOAL_MS
    out = sys.stdout.write
    out(f"{args.pieces} pieces a stream at {args.rate:g}/s, all streams in one step, {args.rounds} rounds; ")
    out(
        f"{os.cpu_count()} cores ({platform.machine()}), load average {load:.1f} before, {os.getloadavg()[0]:.1f} after\n\n"
    )
    out(
        "| streams | client | late p50 | p99 | most | read late p99 | CPU per piece |\n|---:|---|---:|---:|---:|---:|---:|\n"
    )
    out("".join(rows))
    out(f"\nThe bench's timestamps are {'less' if met else 'more'} than {GOAL_MS:g} ms late at p99.\n")
    return 0 if met else 1


def arguments() -> argparse.Namespace:
    """Defaults give a run of about two minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    counts = lambda text: tuple(int(word) for word in text.split(","))  # noqa: E731 - one use
    parser.add_argument("--streams", type=counts, default=(1, 16, 64), metavar="N,N")
    parser.add_argument("--pieces", type=int, default=250)
    parser.add_argument("--rate", type=float, default=50.0, help="steps per second")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def row(streams: int, name: str, seen: Sequence[Seen], pieces: int) -> str:
    late = [value for one in seen for value in one.late]
    read = [value for one in seen for value in one.read_late]
    told = f"{quantile(read, 0.99):.2f} ms" if read else "-"
    cpu_us = sum(one.cpu_s for one in seen) * 1e6 / pieces
    figures = (
        f"{quantile(late, 0.5):.2f} ms | {quantile(late, 0.99):.2f} ms | {max(late):.2f} ms | {told} | {cpu_us:.0f} µs"
    )
    return f"| {streams} | {name} | {figures} |\n"


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# --- the clients ------------------------------------------------------------------------------------------------

Stamped = list[tuple[int, bytes]]


async def ours(url: str, streams: int) -> tuple[list[Stamped], list[int]]:
    """As bench/wire.py does."""
    connections = TimedConnections()
    timed = await asyncio.gather(*(connections.post(url, "/v1/chat/completions", {}, b"{}") for _ in range(streams)))
    connections.close()
    return [one.pieces for one in timed], [late for one in timed for late in one.late_ns]


async def by_aiohttp(url: str, streams: int) -> tuple[list[Stamped], list[int]]:
    async def stream(session: aiohttp.ClientSession) -> Stamped:
        notes: Stamped = []
        async with session.post(f"{url}/v1/chat/completions", data=b"{}") as response:
            while piece := await response.content.readany():
                notes.append((time.perf_counter_ns(), piece))
        return notes

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        return await asyncio.gather(*(stream(session) for _ in range(streams))), []


CLIENTS: dict[str, Callable[[str, int], Awaitable[tuple[list[Stamped], list[int]]]]] = {
    "sparkdash bench": ours,
    "aiohttp": by_aiohttp,
}


def one(name: str, streams: int, pieces: int, rate: float) -> Seen:
    here, there = mp.Pipe()
    engine = mp.Process(target=serve, args=(there, streams, pieces, rate))
    engine.start()
    port = here.recv()
    client = mp.Process(target=measure, args=(there, name, f"http://127.0.0.1:{port}", streams))
    client.start()
    seen: Seen = here.recv()
    for process in (client, engine):
        process.join()
    return seen


def measure(pipe: Connection, name: str, url: str, streams: int) -> None:
    """In the client's process, collector off as during a cell."""

    async def run() -> tuple[list[Stamped], list[int], float]:
        gc.disable()
        before = time.process_time()
        notes, read_late = await CLIENTS[name](url, streams)
        return notes, read_late, time.process_time() - before

    notes, read_late, cpu_s = uvloop.run(run())
    late = [
        (at - int(sent)) / 1e6 for stream in notes for at, piece in stream for sent in SENT.findall(piece)
    ]  # every piece, also where several came in one read
    pipe.send(Seen(late, [value / 1e6 for value in read_late], cpu_s))


# --- the engine -------------------------------------------------------------------------------------------------


def serve(pipe: Connection, streams: int, pieces: int, rate: float) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=streams) as server:
        pipe.send(server.getsockname()[1])
        taken = [server.accept()[0] for _ in range(streams)]
    for sock in taken:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.recv(65536)
        sock.sendall(HEAD)
    due = time.perf_counter()
    for _ in range(pieces):
        due += 1 / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        for sock in taken:
            text = b"data: @%d %s\n\n" % (time.perf_counter_ns(), PADDING)
            sock.sendall(b"%x\r\n%s\r\n" % (len(text), text))
    for sock in taken:
        sock.sendall(b"0\r\n\r\n")
    for sock in taken:
        sock.close()


if __name__ == "__main__":
    sys.exit(main())

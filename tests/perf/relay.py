"""What the gateway costs per chunk and to the first token, against a bare aiohttp relay in the same run.

    .venv/bin/python tests/perf/relay.py [--streams 32] [--chunks 400] [--rate 50] [--rounds 3]

Engine, relay, gateway and load are four processes. The engine paces `--streams` streams at `--rate` chunks a second
each (a chunk is one chat frame of 240 bytes). CPU is what the relaying process itself used (user and system, from
/proc by resource.getrusage), divided by the chunks that passed; TTFT is measured by the load. Rounds alternate, so
that a busy machine hits all alike; the table shows medians. Not part of the test suite.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing as mp
import resource
import statistics
import sys
import time
from contextlib import asynccontextmanager, suppress
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import aiohttp
import uvloop
from aiohttp import web

FRAME = (
    b'data: {"id":"chatcmpl-b49c08ee139e9d37","object":"chat.completion.chunk","created":1795228867,"model":"alpha",'
    b'"choices":[{"index":0,"delta":{"content":" quiet"},"logprobs":null,"finish_reason":null,"token_ids":null}]}'
    b"                          \n\n"
)
BODY = json.dumps({"model": "alpha", "stream": True, "messages": [{"role": "user", "content": "x" * 2000}]}).encode()


def main() -> None:
    """Run every round and print the table."""
    args = arguments()
    mp.set_start_method("spawn")
    engine = Child(serve_engine, args.chunks, args.rate)
    relays = {
        "direct": engine,
        "aiohttp relay": Child(serve_bare, engine.port),
        "gateway": Child(serve_gateway, engine.port),
    }
    seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in relays}
    try:
        for _ in range(args.rounds):
            for name, child in relays.items():
                seen[name].append(one_round(child, args))
    finally:
        for child in relays.values():
            child.end()
    show(seen, args)


def arguments() -> argparse.Namespace:
    """Defaults give a run of about half a minute."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--chunks", type=int, default=200)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def one_round(child: Child, args: argparse.Namespace) -> tuple[float, float, float]:
    """(CPU in microseconds per chunk, median TTFT in ms, 95th percentile of it)."""
    before = child.cpu()
    ttfts = uvloop.run(load(child.port, args.streams))
    spent = child.cpu() - before
    ttfts.sort()
    return (
        spent * 1e6 / (args.streams * args.chunks),
        statistics.median(ttfts) * 1e3,
        ttfts[len(ttfts) * 95 // 100] * 1e3,
    )


def show(seen: dict[str, list[tuple[float, float, float]]], args: argparse.Namespace) -> None:
    """Medians over rounds, and the ratio to the bare relay."""
    rows = {name: [statistics.median(column) for column in zip(*rounds, strict=True)] for name, rounds in seen.items()}
    direct, bare = rows["direct"], rows["aiohttp relay"]
    out = sys.stdout.write
    out(f"{args.streams} streams x {args.chunks} chunks at {args.rate:g}/s, median of {args.rounds} rounds\n\n")
    out(f"{'':14} {'CPU us/chunk':>13} {'ratio':>6} {'TTFT p50 ms':>12} {'added':>7} {'TTFT p95 ms':>12}\n")
    for name, (cpu, p50, p95) in rows.items():
        shown = ("-", "-") if name == "direct" else (f"{cpu:.1f}", f"{cpu / bare[0]:.2f}")
        out(f"{name:14} {shown[0]:>13} {shown[1]:>6} {p50:>12.2f} {p50 - direct[1]:>7.2f} {p95:>12.2f}\n")


async def load(port: int, streams: int) -> list[float]:
    """All streams at once; seconds to the first byte of each."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        return list(await asyncio.gather(*(one_stream(session, port) for _ in range(streams))))


async def one_stream(session: aiohttp.ClientSession, port: int) -> float:
    begun, first = time.perf_counter(), 0.0
    headers = {"Content-Type": "application/json"}
    async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", data=BODY, headers=headers) as reply:
        async for _ in reply.content.iter_any():
            first = first or time.perf_counter() - begun
    return first


# --- the processes ----------------------------------------------------------------------------------------------


class Child:
    """A process that serves on a port and tells its own CPU time when asked."""

    def __init__(self, target: Any, *args: Any) -> None:
        self._pipe, theirs = mp.Pipe()
        self._process = mp.Process(target=target, args=(theirs, *args), daemon=True)
        self._process.start()
        self.port: int = self._pipe.recv()

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        self._pipe.send("cpu")
        return float(self._pipe.recv())

    def end(self) -> None:
        self._process.terminate()
        self._process.join()


async def answer_for_ever(pipe: Connection, port: int) -> None:
    """Tell the port, then the CPU time at every question."""
    pipe.send(port)
    loop = asyncio.get_running_loop()

    def asked() -> None:
        with suppress(EOFError):
            pipe.recv()
            used = resource.getrusage(resource.RUSAGE_SELF)
            pipe.send(used.ru_utime + used.ru_stime)

    loop.add_reader(pipe.fileno(), asked)
    await asyncio.Event().wait()


async def listen(app: web.Application) -> int:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return int(runner.addresses[0][1])


def serve_engine(pipe: Connection, chunks: int, rate: float) -> None:
    """Paces its streams; every stream is late or early by itself, as real ones are."""

    async def chat(request: web.Request) -> web.StreamResponse:
        await request.read()
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for number in range(chunks):
            await reply.write(FRAME)
            await asyncio.sleep(max(0.0, begun + (number + 1) / rate - loop.time()))
        return reply

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        await answer_for_ever(pipe, await listen(app))

    uvloop.run(run())


def serve_bare(pipe: Connection, engine_port: int) -> None:
    """The least that a relay in Python can do."""

    async def run() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

            async def chat(request: web.Request) -> web.StreamResponse:
                body, url = await request.read(), f"http://127.0.0.1:{engine_port}{request.path}"
                async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
                    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                    await reply.prepare(request)
                    async for chunk in answer.content.iter_any():
                        await reply.write(chunk)
                    return reply

            app = web.Application()
            app.router.add_post("/v1/chat/completions", chat)
            await answer_for_ever(pipe, await listen(app))

    uvloop.run(run())


def serve_gateway(pipe: Connection, engine_port: int) -> None:
    """The real gateway on the real server, with a supervisor that grants at once."""
    from sparkdash import listen as doors
    from sparkdash.bus import Bus
    from sparkdash.domain.engine import Engine, EngineState
    from sparkdash.domain.profile import EngineKind, Profile
    from sparkdash.domain.state import DaemonInfo, Snapshot
    from sparkdash.gateway.app import Deps, build
    from sparkdash.settings import Settings
    from sparkdash.upstream import Upstream

    profile = Profile(name="alpha", engine=EngineKind.VLLM)
    engine = Engine(profile="alpha", kind=EngineKind.VLLM, state=EngineState.READY, since=0, fingerprint="f")

    @asynccontextmanager
    async def lease(_name: str, **_: Any) -> Any:
        yield SimpleNamespace(
            profile=profile,
            engine=engine,
            url=f"http://127.0.0.1:{engine_port}",
            headers={},
            names=("alpha",),
            lost=asyncio.get_running_loop().create_future(),
        )

    async def run() -> None:
        info = DaemonInfo(version="0", host="h", pid=1, started_at=0, runtime="none", url="u")
        async with Upstream() as upstream:
            parts: Any = {
                "supervisor": SimpleNamespace(lease=lease),
                "bus": Bus(Snapshot(seq=0, at=0, daemon=info), time.time),
                "upstream": upstream,
                "catalog": lambda: SimpleNamespace(find=lambda _name: profile),
                "settings": Settings(),
                "reload": None,
                "shutdown": None,
            }
            server = doors.Server(build(Deps(**parts)))
            sock = doors.bind_tcp("127.0.0.1", 0)
            serving = asyncio.create_task(server.serve(sockets=[sock]))
            await answer_for_ever(pipe, sock.getsockname()[1])
            await serving

    uvloop.run(run())


if __name__ == "__main__":
    main()

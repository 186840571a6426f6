"""What the gateway costs beside others, in one run: CPU per chunk, time to the first byte, requests per second.

    .venv/bin/python tests/perf/relay.py [--streams 1,8,32,128] [--chunks 150] [--rate 50] [--rounds 3]
        [--nginx PATH] [--litellm PATH]

Direct, a bare aiohttp relay, sparkdash's gateway, nginx and litellm's proxy, each in a process of its own, take turns
before one engine (raw.py). nginx is Debian's package, litellm's proxy comes with `pip install 'litellm[proxy]'`; either is
left out, and named, where it is not found. CPU is what the relaying process and its children used (user and system),
divided by the chunks or requests that passed. Prints a Markdown table of medians over the rounds; the first bytes' 99th
percentile is over all of them. Not part of the test suite; docs/relay.md has what was measured, and where.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing as mp
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import aiohttp
import psutil
import uvloop
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent))
import raw

UNARY = 4000
CONNECTIONS = 32


def main() -> None:
    """Run every round and print the table."""
    args = arguments()
    counts = [int(word) for word in args.streams.split(",")]
    mp.set_start_method("spawn")
    with tempfile.TemporaryDirectory() as folder:
        engine = Child(serve_engine, args.chunks, args.rate)
        relays: dict[str, Relay] = {"direct": engine}
        try:
            add_others(relays, args, engine.port, Path(folder))
            seen = {name: Seen() for name in relays}
            for relay in relays.values():  # what is loaded, compiled or connected at the first request is no one's cost
                uvloop.run(raw.streams(relay.port, 4))
                uvloop.run(raw.unary(relay.port, CONNECTIONS, CONNECTIONS * 8))
            for turn in range(args.rounds):
                for name, relay in relays.items():
                    sys.stderr.write(f"round {turn + 1}/{args.rounds}: {name}\n")
                    one_round(relay, seen[name], counts, args)
        finally:
            for relay in relays.values():
                relay.end()
    show(seen, counts, args)


def arguments() -> argparse.Namespace:
    """Defaults give a run of a few minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="1,8,32,128")
    parser.add_argument("--chunks", type=int, default=150)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--unary", type=int, default=UNARY, help="requests per round; litellm gets a tenth")
    parser.add_argument("--nginx", default=shutil.which("nginx") or "/usr/sbin/nginx")
    parser.add_argument("--litellm", default=shutil.which("litellm") or "litellm")
    return parser.parse_args()


class Relay(Protocol):
    """Something that serves on a port and whose CPU time can be read."""

    port: int
    share: float
    """Of the unary requests that it gets."""

    def pid(self) -> int: ...
    def end(self) -> None: ...


@dataclass
class Seen:
    """What one relay's rounds gave."""

    chunk_us: dict[int, list[float]] = field(default_factory=dict)
    first_ms: dict[int, list[float]] = field(default_factory=dict)
    per_s: list[float] = field(default_factory=list)
    request_us: list[float] = field(default_factory=list)
    mib: float = 0.0


def one_round(relay: Relay, seen: Seen, counts: list[int], args: argparse.Namespace) -> None:
    """Every number of streams, then the unary requests."""
    for count in counts:
        before = cpu(relay.pid())
        firsts = uvloop.run(raw.streams(relay.port, count))
        seen.chunk_us.setdefault(count, []).append((cpu(relay.pid()) - before) * 1e6 / (count * args.chunks))
        seen.first_ms.setdefault(count, []).extend(first * 1e3 for first in firsts)
    total = int(args.unary * relay.share) // CONNECTIONS * CONNECTIONS
    before = cpu(relay.pid())
    took = uvloop.run(raw.unary(relay.port, CONNECTIONS, total))
    seen.request_us.append((cpu(relay.pid()) - before) * 1e6 / total)
    seen.per_s.append(total / took)
    seen.mib = memory(relay.pid())


def family(pid: int) -> list[psutil.Process]:
    """A process and its children."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def cpu(pid: int) -> float:
    """Seconds so far."""
    return sum(sum(process.cpu_times()[:2]) for process in family(pid))


def memory(pid: int) -> float:
    """MiB resident, pages shared between them counted once each."""
    return sum(process.memory_info().rss for process in family(pid)) / 2**20


def show(seen: dict[str, Seen], counts: list[int], args: argparse.Namespace) -> None:
    """Markdown; what is added is against direct."""
    out = sys.stdout.write
    out(f"{args.chunks} chunks of {len(raw.FRAME)} bytes a stream at {args.rate:g}/s, {args.rounds} rounds; ")
    out(f"{os.cpu_count()} cores ({platform.machine()}), load average now {os.getloadavg()[0]:.1f}\n\n")
    streams = "".join(f" {count} stream{'s' if count > 1 else ''} |" for count in counts)
    out("CPU per chunk, us (how many times nginx's, or the bare relay's where there is no nginx)\n\n")
    out(f"| |{streams}\n|---|{'---:|' * len(counts)}\n")
    base = seen.get("nginx") or seen["bare aiohttp"]
    for name, one in seen.items():
        if name != "direct":
            cells = ((median(one.chunk_us[n]), median(base.chunk_us[n])) for n in counts)
            out(f"| {name} |{''.join(f' {us:.1f} ({us / of:.1f}x) |' if of else f' {us:.1f} |' for us, of in cells)}\n")
    out("\nFirst byte, ms: median / 99th percentile added to direct's\n\n")
    out(f"| |{streams}\n|---|{'---:|' * len(counts)}\n")
    direct = seen["direct"].first_ms
    for name, one in seen.items():
        pairs = [(median(one.first_ms[n]), p99(one.first_ms[n]), n) for n in counts]
        less = [(0.0, 0.0) if name == "direct" else (median(direct[n]), p99(direct[n])) for n in counts]
        shown = (f" {p50 - a:.2f} / {p - b:.2f} |" for (p50, p, _), (a, b) in zip(pairs, less, strict=True))
        out(f"| {name}{' (itself)' if name == 'direct' else ''} |{''.join(shown)}\n")
    out(f"\nUnary, {CONNECTIONS} connections\n\n| | requests/s | CPU per request, us | MiB |\n|---|---:|---:|---:|\n")
    for name, one in seen.items():
        spent = "-" if name == "direct" else f"{median(one.request_us):.0f}"
        size = "-" if name == "direct" else f"{one.mib:.0f}"
        out(f"| {name} | {median(one.per_s):.0f} | {spent} | {size} |\n")


def median(values: list[float]) -> float:
    return statistics.median(values)


def p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


# --- the processes ----------------------------------------------------------------------------------------------


class Child:
    """A Python process of this file that serves on a port."""

    share = 1.0

    def __init__(self, target: Any, *args: Any) -> None:
        pipe, theirs = mp.Pipe()
        self._process = mp.Process(target=target, args=(theirs, *args), daemon=True)
        self._process.start()
        self.port: int = pipe.recv()

    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def end(self) -> None:
        self._process.terminate()
        self._process.join()


class Program:
    """Another program that serves on `port`; ready when that answers."""

    def __init__(self, argv: list[str], port: int, *, share: float = 1.0, **env: str) -> None:
        self.port, self.share = port, share
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet, env={**os.environ, **env})
        for _ in range(1200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        self.end()
        raise SystemExit(f"{argv[0]} does not serve on port {port}.")

    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()


def add_others(found: dict[str, Relay], args: argparse.Namespace, port: int, folder: Path) -> None:
    """All relays that can be had here; those that cannot are named."""
    found["bare aiohttp"] = Child(serve_bare, port)
    found["sparkdash"] = Child(serve_gateway, port)
    for name, start, program in (("nginx", nginx, args.nginx), ("litellm", litellm, args.litellm)):
        if shutil.which(program):
            found[name] = start(program, port, folder)
        else:
            sys.stderr.write(f"{name} is left out: {program} is not here.\n")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def nginx(program: str, engine_port: int, folder: Path) -> Relay:
    """As one would set it up for this: no buffering, connections to the engine kept."""
    port, file = free_port(), folder / "nginx.conf"
    file.write_text(
        f"""daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
        events {{ worker_connections 2048; }}
        http {{
          access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
          uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_requests 1000000;
          upstream engine {{ server 127.0.0.1:{engine_port}; keepalive 256; keepalive_requests 1000000; }}
          server {{
            listen 127.0.0.1:{port};
            location / {{
              proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
            }}
          }}
        }}"""
    )
    return Program([program, "-c", str(file), "-p", str(folder)], port)


def litellm(program: str, engine_port: int, folder: Path) -> Relay:
    """One worker, no database, no telemetry."""
    port, file = free_port(), folder / "litellm.yaml"
    file.write_text(
        "model_list: [{model_name: alpha, litellm_params: {model: hosted_vllm/alpha, "
        f"api_base: 'http://127.0.0.1:{engine_port}/v1', api_key: x}}}}]\n"
        "litellm_settings: {telemetry: false}\n"
    )
    argv = [program, "--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "NO_DOCS": "True"}
    open_to_all = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}  # like the others here
    return Program(argv, port, share=0.1, **quiet, **open_to_all)


async def serve(pipe: Connection, port: int) -> None:
    """Tell the port; then the work is the loop's."""
    pipe.send(port)
    await asyncio.Event().wait()


def serve_engine(pipe: Connection, chunks: int, rate: float) -> None:
    """The raw one."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: raw.Engine(chunks, rate), "127.0.0.1", 0, backlog=512)
        await serve(pipe, server.sockets[0].getsockname()[1])

    uvloop.run(run())


def serve_bare(pipe: Connection, engine_port: int) -> None:
    """The least that a relay over aiohttp can do."""

    async def run() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

            async def chat(request: web.Request) -> web.StreamResponse:
                body, url = await request.read(), f"http://127.0.0.1:{engine_port}{request.path}"
                async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
                    if "Content-Length" in answer.headers:
                        return web.Response(body=await answer.read(), content_type=answer.content_type)
                    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                    await reply.prepare(request)
                    async for chunk in answer.content.iter_any():
                        await reply.write(chunk)
                    return reply

            app = web.Application()
            app.router.add_post("/v1/chat/completions", chat)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0, backlog=512).start()
            await serve(pipe, int(runner.addresses[0][1]))

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
            await serve(pipe, sock.getsockname()[1])
            await serving

    uvloop.run(run())


if __name__ == "__main__":
    main()

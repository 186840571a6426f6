"""Whether anything is lost at a steady rate for long: `sparkdash serve`, whole, before an engine that costs nothing.

    .venv/bin/python tests/perf/soak.py [--minutes 60] [--rate 200]

Every third request is a stream of ten chunks, the others are answered at once; they are sent at their time whether or not
earlier ones are answered. Told at the end: how many were sent, answered whole, and written in the daemon's books; how long
answers took; what the daemon's memory grew by after the first tenth. Ends with 1 when one is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing as mp
import sqlite3
import sys
import tempfile
import time
from collections import deque
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvloop

sys.path.insert(0, str(Path(__file__).parent))
import raw
from relays import Child, daemon, serve_engine

CHUNKS, CHUNKS_PER_S = 10, 50.0
PATIENCE_S = 60.0
IDLE_S = 60.0
"""A connection that was not needed for so long is not used again: the daemon lets go of it at 75 s, which a client must not meet."""
MIB = 2**20


@dataclass
class Seen:
    """What came of the requests."""

    sent: int = 0
    answered: int = 0
    lost: list[str] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)


def main() -> int:
    """Run, tell, and say whether all was answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=200.0, help="requests per second")
    args = parser.parse_args()
    mp.set_start_method("spawn")
    with tempfile.TemporaryDirectory() as folder:
        engine = Child(serve_engine, CHUNKS, CHUNKS_PER_S)
        served = daemon(engine.port, Path(folder))
        process, seen, sizes = psutil.Process(served.pid()), Seen(), []
        before = sum(process.cpu_times()[:2])
        try:
            tenth = args.minutes * 6
            for number in range(10):
                uvloop.run(stretch(served.port, args.rate, tenth, seen))
                sizes.append(process.memory_info().rss / MIB)
                sys.stderr.write(f"{number + 1}/10: {seen.sent} sent, {len(seen.lost)} lost, {sizes[-1]:.0f} MiB\n")
            cpu = sum(process.cpu_times()[:2]) - before
        finally:
            served.end()
            engine.end()
        with closing(sqlite3.connect(Path(folder) / "state" / "sparkdash.db")) as books:
            (written,) = books.execute("SELECT count(*) FROM requests WHERE state = 'done'").fetchone()
    took = sorted(seen.took_ms)
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    sys.stdout.write(
        f"{args.minutes:g} minutes at {args.rate:g} requests/s: {seen.sent} sent, {seen.answered} answered whole, "
        f"{written} in the books\nunary answers: median {p50:.2f} ms, 99th percentile {p99:.2f} ms, longest {took[-1]:.0f} ms; "
        f"{cpu * 1e6 / seen.sent:.0f} us of CPU per request\nmemory: {sizes[0]:.0f} MiB after a tenth, {sizes[-1]:.0f} at the end\n"
    )
    for reason in sorted(set(seen.lost)):
        sys.stdout.write(f"lost: {seen.lost.count(reason)} x {reason}\n")
    return 0 if seen.sent == seen.answered == written else 1


async def stretch(port: int, rate: float, seconds: float, seen: Seen) -> None:
    """Requests at their times; returns when the last is answered or given up."""
    free = {True: Idle(), False: Idle()}
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            seen.sent += 1
            group.create_task(one(port, free, seen, stream=number % 3 == 0))
    for idle in free.values():
        idle.close()


class Idle:
    """Connections that wait for their next request, the one that waits least on top."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, raw.Client]] = deque()

    def pop(self) -> raw.Client | None:
        """One that is surely open; None where there is none."""
        while self._waiting and self._waiting[0][0] < time.monotonic() - IDLE_S:
            self._waiting.popleft()[1].transport.close()
        return self._waiting.pop()[1] if self._waiting else None

    def push(self, client: raw.Client) -> None:
        """Its answer is over."""
        self._waiting.append((time.monotonic(), client))

    def close(self) -> None:
        """All of them."""
        for _, client in self._waiting:
            client.transport.close()


async def one(port: int, free: dict[bool, Idle], seen: Seen, *, stream: bool) -> None:
    """One request, on a connection of its own or one that is free."""
    begun = time.perf_counter()
    try:
        client = free[stream].pop() or await raw.connect(port, stream=stream)
        await asyncio.wait_for(client.ask(), PATIENCE_S)
    except (OSError, RuntimeError, TimeoutError) as error:
        seen.lost.append(str(error) or type(error).__name__)
        return
    seen.answered += 1
    if not stream:
        seen.took_ms.append((time.perf_counter() - begun) * 1e3)
    free[stream].push(client)


if __name__ == "__main__":
    raise SystemExit(main())

"""Whether anything is lost at a steady rate for long: `sparkdash serve`, whole, before an engine that costs nothing.

    .venv/bin/python tests/perf/soak.py [--minutes 60] [--rate 200] [--leaving 10]

Every third request is a stream of ten chunks, the others are answered at once; they are sent at their time whether or not
earlier ones are answered. Told at the end: how many were sent, answered whole, and written in the daemon's books; how long
answers took; what the daemon's memory grew by after the first tenth. Ends with 1 when one is missing.

`--leaving N`: of N streams one is left by its client after the first chunk; the books must know it as cancelled.
"""

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
from relays import Child, Relay, daemon, serve_engine

CHUNKS, CHUNKS_PER_S = 10, 50.0
PATIENCE_S = 60.0
IDLE_S = 60.0
"""A connection that was not needed for so long is not used again: the daemon lets go of it at 75 s, which a client must not meet."""
MIB = 2**20


@dataclass
class Seen:
    """Outcome of the requests."""

    sent: int = 0
    answered: int = 0
    left: int = 0
    lost: list[str] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)


def main() -> int:
    """Run, tell, and say whether all was answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=200.0, help="requests per second")
    parser.add_argument("--leaving", type=int, default=0, metavar="N", help="one of N streams is left by its client")
    args = parser.parse_args()
    mp.set_start_method("spawn")
    with tempfile.TemporaryDirectory() as folder:
        engine = Child(serve_engine, CHUNKS, CHUNKS_PER_S)
        served = daemon(engine.port, Path(folder))
        seen, sizes, cpu = Seen(), list[float](), 0.0
        try:
            for number in range(10):
                process = psutil.Process(served.pid())
                before = sum(process.cpu_times()[:2])
                uvloop.run(stretch(served, args.rate, args.minutes * 6, seen, args.leaving))
                cpu += sum(process.cpu_times()[:2]) - before
                sizes.append(psutil.Process(served.pid()).memory_info().rss / MIB)
                sys.stderr.write(f"{number + 1}/10: {seen.sent} sent, {len(seen.lost)} lost, {sizes[-1]:.0f} MiB\n")
        finally:
            served.end()
            engine.end()
        with closing(sqlite3.connect(Path(folder) / "state" / "sparkdash.db")) as books:
            rows = dict(books.execute("SELECT state, count(*) FROM requests GROUP BY state"))
            (recorded,) = books.execute("SELECT max(rowid) FROM requests").fetchone()
    took, written = sorted(seen.took_ms), rows.get("done", 0)
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    sys.stdout.write(
        f"{args.minutes:g} minutes at {args.rate:g} requests/s: {seen.sent} sent, {seen.answered} answered whole, "
        f"{seen.left} left; recorded {recorded}, of them kept {', '.join(f'{count} {state}' for state, count in rows.items())}\nunary answers: median {p50:.2f} ms, 99th percentile {p99:.2f} ms, longest {took[-1]:.0f} ms; "
        f"{cpu * 1e6 / seen.sent:.0f} us of CPU per request\nmemory: {sizes[0]:.0f} MiB after a tenth, {sizes[-1]:.0f} at the end\n"
    )
    for reason in sorted(set(seen.lost)):
        sys.stdout.write(f"lost: {seen.lost.count(reason)} x {reason}\n")
    dropped = recorded - sum(rows.values())  # the books keep the last 100,000
    states_fit = dropped > 0 or seen.answered == written
    return 0 if seen.sent == seen.answered + seen.left == recorded and states_fit else 1


async def stretch(served: Relay, rate: float, seconds: float, seen: Seen, leaving: int) -> None:
    """Send requests at their times; return when the last is answered or given up."""
    free = {True: Idle(), False: Idle()}
    begun, total = time.perf_counter(), int(rate * seconds)
    async with asyncio.TaskGroup() as group:
        for number in range(total):
            await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            seen.sent += 1
            stream = number % 3 == 0
            if stream and leaving and number // 3 % leaving == 0:
                group.create_task(leave(served.port, seen))
            else:
                group.create_task(one(served.port, free, seen, stream=stream))
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
        while self._waiting:
            client = self._waiting.pop()[1]
            if not client.transport.is_closing():
                return client
        return None

    def push(self, client: raw.Client) -> None:
        """The answer is over; the connection is used again unless the daemon said that it closes."""
        if b"\r\nconnection: close\r\n" in client.head.lower():
            client.transport.close()
        else:
            self._waiting.append((time.monotonic(), client))

    def close(self) -> None:
        for _, client in self._waiting:
            client.transport.close()


async def one(port: int, free: dict[bool, Idle], seen: Seen, *, stream: bool) -> None:
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


async def leave(port: int, seen: Seen) -> None:
    """A stream whose client is gone after the first chunk."""
    try:
        client = await raw.connect(port, stream=True)
        await asyncio.wait_for(client.begins(), PATIENCE_S)
    except (OSError, RuntimeError, TimeoutError) as error:
        seen.lost.append(f"before it was left: {str(error) or type(error).__name__}")
        return
    seen.left += 1
    client.over.cancel()
    client.transport.abort()


if __name__ == "__main__":
    raise SystemExit(main())

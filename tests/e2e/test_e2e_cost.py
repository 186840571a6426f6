"""Calls of our own functions that a request costs the daemon: what is added to its path is seen the day it lands.

Counted, not timed: a profiler in the daemon's process, the difference between a short and a long run, rounded down for
each function, so that the daemon's other work is not in it. tests/perf/relay.py measures what they take.
"""

import asyncio
import pstats
import sys
from pathlib import Path

import pytest
from daemons import Daemon

sys.path.insert(0, str(Path(__file__).parents[1] / "perf"))
import raw

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

FEW, MANY = 64, 576
CALLS = {"unary": 184, "chunk": 6}
"""Write a lower figure here when it is reached; a higher one needs a reason that is worth it."""
PROGRAM = Path(__file__).with_name("profiled_daemon.py")


def counts(out: Path) -> dict[tuple[str, int, str], int]:
    """Calls of each function of sparkdash that a profile counted."""
    seen = pstats.Stats(str(out)).stats.items()  # type: ignore[attr-defined]
    return {function: figures[1] for function, figures in seen if "/sparkdash/" in function[0]}


@pytest.mark.parametrize(("kind", "few", "many"), [("unary", (FEW, 0), (MANY, 0)), ("chunk", (1, FEW), (1, MANY))])
async def test_a_request_costs_no_more_calls_than_before(
    kind: str, few: tuple[int, int], many: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    before, after = [await run(tmp_path_factory.mktemp(kind), *size) for size in (few, many)]
    each = {name: int((count - before.get(name, 0)) / (MANY - FEW) + 0.02) for name, count in after.items()}
    assert sum(each.values()) <= CALLS[kind], {f"{name[0]}:{name[2]}": count for name, count in each.items() if count}


async def run(folder: Path, requests: int, chunks: int) -> dict[tuple[str, int, str], int]:
    """Serve unary requests, or one stream of so many chunks, under the profiler; its counts."""
    loop, out = asyncio.get_running_loop(), folder / "profile"
    server = await loop.create_server(lambda: raw.Engine(chunks, 500), "127.0.0.1", 0)
    daemon = Daemon(folder / "daemon", runtime="process")
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    daemon.write("alpha", f"profile: alpha\nengine: openai\nurl: {url}\n")
    await asyncio.to_thread(daemon.start, str(PROGRAM), str(out), "serve", "--port", "0")
    port = int(daemon.url.rpartition(":")[2])
    await (raw.streams(port, 1) if chunks else raw.unary(port, 1, requests))
    await asyncio.to_thread(daemon.end, engines=False)
    server.close()
    return counts(out)

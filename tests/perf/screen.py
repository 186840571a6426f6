"""Cost of the dashboard: CPU per second with 4 engines and 64 requests in flight, and from a key to the screen.

    python tests/perf/screen.py [SECONDS]

It draws without a terminal, so the terminal's own cost is not in it. Beside it stands the same with nothing running.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import quantiles

sys.path.insert(0, str(Path(__file__).parents[1] / "tui"))
sys.path.insert(0, str(next(Path(__file__).parents[1].rglob("eager.py")).parent))

import conftest as stand_in
from textual.pilot import Pilot

from sparkdash.domain.event import Event, SampleTaken
from sparkdash.domain.metric import LiveRequest, Sample
from sparkdash.domain.request import RequestState
from sparkdash.domain.state import Snapshot
from sparkdash.tui.app import SparkdashApp
from sparkdash.tui.mirror import Item

ENGINES = ("gpt-oss-120b", "qwen3-coder-30b-nvfp4", "qwen3-coder-30b-nvfp4/eagle3", "embed-0.6b")


def busy(now: float, turn: int) -> tuple[Snapshot, Sample]:
    """A box with 4 engines and 64 running requests."""
    requests = {
        f"r{i}": stand_in.request(f"r{i}", RequestState.STREAMING, client=f"client-{i % 9}", profile=ENGINES[i % 4],
                                  started_at=now - 5 - i, prompt_tokens=900 + i)
        for i in range(64)
    }  # fmt: skip
    first = stand_in.sample(at=now, decode=50.0 + turn % 13, engines=dict.fromkeys(ENGINES, 15 << 30))
    one = next(iter(first.engines.values()))
    live = {
        key: LiveRequest(profile=each.profile, output_tokens=turn * 28, tok_s=28.0 + turn % 3, silent_s=0.1)
        for key, each in requests.items()
    }
    sample = first.replace(engines=dict.fromkeys(ENGINES, one), requests=live)
    engines = {name: stand_in.engine(name) for name in ENGINES}
    return stand_in.world(engines=engines, requests=requests, sample=sample), sample


class Feed(stand_in.ScriptedLink):
    """One sample a second."""

    def __init__(self, *, work: bool) -> None:
        super().__init__()
        self.work = work

    async def feed(self) -> AsyncIterator[Item]:
        snapshot, _ = busy(time.time(), 0)
        yield snapshot if self.work else stand_in.world(engines={}, requests={}, recent=(), sample=None)
        for turn in range(1, 100_000):
            await asyncio.sleep(1.0)
            if self.work:
                now = time.time()
                yield Event(seq=100 + turn, at=now, fact=SampleTaken(sample=busy(now, turn)[1]))


async def cost(seconds: int, size: tuple[int, int], *, work: bool) -> float:
    """Return the share of a core that the app takes."""
    feed = Feed(work=work)
    app = SparkdashApp(lambda: feed, feed.address)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(3)
        before, at = time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        share = (time.process_time() - before) / (time.monotonic() - at)
        if work:
            await keys(app, pilot)
        return share


async def keys(app: SparkdashApp, pilot: Pilot[None]) -> None:
    """Print the time from a key to the drawn screen."""
    took = []
    for key in ("j", "k", "2", "1", "f", "3", "1") * 6:
        at = time.perf_counter()
        app.simulate_key(key)
        await pilot._wait_for_screen()
        took.append((time.perf_counter() - at) * 1000)
    cuts = quantiles(took, n=20)
    print(f"  key to screen: p50 {cuts[9]:.0f} ms, p95 {cuts[18]:.0f} ms, n {len(took)}")


def main() -> None:
    """Measure two sizes, busy and idle."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    for size in ((120, 40), (200, 60)):
        print(f"{size[0]}x{size[1]}")
        for name, work in (("4 engines, 64 requests", True), ("nothing runs", False)):
            share = asyncio.run(cost(seconds, size, work=work))
            print(f"  {name}: {share * 100:.1f} % of a core")


if __name__ == "__main__":
    main()

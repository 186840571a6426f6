"""Thirty days of traffic in fast time: size of the database, times of queries; and a recorder that is killed.

python tests/perf/history.py                       # thirty days, one sample every 5 s
python tests/perf/history.py --days 2 --keep FILE  # fewer, and the database stays
python tests/perf/history.py --kills 200           # 200 recorders killed at random moments, in real time
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from recorded import START, asked

from sparkdash.domain.history import (
    MarkSelection,
    RecentSelection,
    RequestSelection,
    SeriesSelection,
    UsageSelection,
    measured_of,
)
from sparkdash.domain.metric import METRICS, EngineSample, Gpu, Memory, Metric, Sample
from sparkdash.domain.request import RequestState
from sparkdash.settings import Settings
from sparkdash.store import past, schema, series, transactions
from sparkdash.store.figures import SecondBuckets
from sparkdash.store.store import PendingRows
from sparkdash.store.transactions import MarkJournal
from sparkdash.store.usage import UsageSums, read_usage
from sparkdash.units import GIB

DAY_S = 86400
PROFILES = ("gpt-oss-120b", "qwen3.5-122b/fast", "bge-m3")
CLIENTS = ("claude-code", "codex", "open-webui", "aider", "n8n")
ROUNDS = 40
DOOMED = Path(__file__).parents[1] / "store" / "doomed_store.py"


def box_at(at: int) -> Sample:
    """Every figure of two engines and the box; at night one engine, quiet."""
    night = at % DAY_S < DAY_S // 3
    engines = {}
    for place, profile in enumerate(PROFILES[: 1 if night else 2]):
        values: dict[Metric, float | None] = {
            metric: 0.0 if night else 50.0 + 40 * math.sin(at / (60 + 7 * n) + place)
            for n, metric in enumerate(METRICS)
        }
        engines[profile] = EngineSample(at=at, values=values)
    memory = Memory(
        total=128 * GIB, available=40 * GIB + at % 997 * 2**20, free=GIB, page_cache=5 * GIB, pressure=0.0,
        engines=dict.fromkeys(engines, 30 * GIB + at % 89 * 2 ** 20),
    )  # fmt: skip
    gpu = Gpu(utilization=0.5, power_w=30.0 + at % 50, temperature_c=50.0, sm_clock_mhz=2000.0)
    return Sample(at=at, engines=engines, memory=memory, gpu=gpu)


def fill(file: Path, days: int, every_s: int, a_day: int, most_bytes: int) -> None:
    """Record `days` of samples and requests as the store's thread does."""
    chance, number = random.Random(5), 0
    buckets, pending, sums = SecondBuckets(), PendingRows(), UsageSums()
    with closing(schema.connect(file)) as database:
        for at in range(START, START + days * DAY_S, every_s):
            pending.seconds += buckets.add(at, measured_of(box_at(at)))
            while number < (at - START) / DAY_S * a_day:
                number += 1
                state = RequestState.FAILED if number % 50 == 0 else RequestState.DONE
                pending.requests.append(
                    asked(
                        number, at, profile=chance.choice(PROFILES), client=chance.choice(CLIENTS), state=state,
                        key=chance.choice(("ann", "bob")), granted_at=at + chance.choice((0, 0, 0, 20)),
                        ttft_s=chance.lognormvariate(-1, 1), decode_tok_s=chance.lognormvariate(4, 0.5),
                    )
                )  # fmt: skip
            if at // 60 != (at - every_s) // 60:
                transactions.write_rows(database, sums, *pending.take(), most_bytes=most_bytes)
        print(f"holds {transactions.used_bytes(database) / 2**20:.0f} MiB")


def queries(end: int) -> dict[str, Callable[[Any], object]]:
    """What a dashboard and a person ask."""
    names = ("decode_tok_s", "prompt_tok_s", "prefix_hit", "kv_used")

    def chart(days: float, points: int, profile: str = PROFILES[0]) -> Callable[[Any], object]:
        figure = "decode_tok_s" if profile else "memory_available_bytes"
        wanted = SeriesSelection(
            figure=figure, profile=profile, node="local", since=end - days * DAY_S, until=end, points=points
        )
        return lambda database: series.read_series(database, wanted, end)

    def usage(by: Any, days: float, **rest: Any) -> Callable[[Any], object]:
        wanted = UsageSelection(by=by, since=end - days * DAY_S, until=end, **rest)
        return lambda database: read_usage(database, wanted)

    def requests(**rest: Any) -> Callable[[Any], object]:
        return lambda database: past.read_requests(database, RequestSelection(**rest))

    recent = RecentSelection(figures=names, since=end - 1200, until=end, step_s=2)
    return {
        "an hour, 300 points": chart(1 / 24, 300),
        "an hour of the box, 1000 points": chart(1 / 24, 1000, ""),
        "six hours, 500 points": chart(0.25, 500),
        "two days, 500 points": chart(2, 500),
        "two days, 2000 points": chart(2, 2000),
        "a week, 500 points": chart(7, 500),
        "thirty days, 500 points": chart(30, 500),
        "thirty days, 2000 points": chart(30, 2000),
        "two years, 500 points": chart(730, 500),
        "sparklines of all engines": lambda database: series.read_recent(database, recent),
        "today by profile": usage("profile", 1),
        "two days by hour": usage("hour", 2),
        "thirty days by profile": usage("profile", 30),
        "thirty days by client, one profile": usage("client", 30, profile=PROFILES[0]),
        "thirty days by day": usage("day", 30),
        "thirty days by day elsewhere": usage("day", 30, offset_s=3600),
        "thirty days by hour": usage("hour", 30),
        "thirty days by client": usage("client", 30),
        "newest requests": requests(limit=100),
        "requests of one client": requests(client=CLIENTS[0], limit=100),
        "requests of a day two weeks ago": requests(since=end - 14 * DAY_S, until=end - 13 * DAY_S, limit=100),
        "slowest first tokens": requests(sort="ttft", limit=100),
        "failed requests of a week": requests(status="failed", since=end - 7 * DAY_S, limit=100),
        "marks of thirty days": lambda database: past.read_marks(
            database, MarkSelection(since=end - 30 * DAY_S, until=end, limit=500)
        ),
    }


def measure(file: Path, days: int) -> None:
    """Time each query, warm, in processor time and by the clock."""
    with closing(schema.connect(file)) as database:
        for name, ask in queries(START + days * DAY_S).items():
            took = []
            for _ in range(ROUNDS):
                began, cpu = time.perf_counter(), time.process_time()
                ask(database)
                took.append((time.process_time() - cpu, time.perf_counter() - began))
            cpu_s, wall_s = (sorted(column)[int(0.95 * ROUNDS)] * 1000 for column in zip(*took, strict=True))
            print(f"{name:40} p95 {cpu_s:7.1f} ms of CPU {wall_s:7.1f} ms")


def kill(number: int, folder: Path) -> None:
    """Kill recorders at random moments; print what the last of each lost, of figures and of what it had told."""
    chance, losses, told, missing = random.Random(), list[float](), 0, 0
    while number > 0:
        files = [folder / f"{number - n}.db" for n in range(min(number, 10))]
        children = [
            subprocess.Popen([sys.executable, DOOMED, file, "0", "1"], stdout=subprocess.PIPE, text=True)
            for file in files
        ]
        lines: list[list[str]] = [[] for _ in files]
        for child, heard in zip(children, lines, strict=True):
            assert child.stdout is not None
            while not heard or heard[-1] == "None" or heard[-1].startswith("swap"):
                heard.append(child.stdout.readline().strip())
        order = sorted((chance.uniform(0, 6), n) for n in range(len(files)))
        began = time.monotonic()
        for wait, n in order:
            time.sleep(max(0.0, began + wait - time.monotonic()))
            children[n].kill()
            at = time.time()
            lines[n] += (children[n].communicate()[0] or "").split("\n")
            swaps = {line.split()[1] for line in lines[n] if line.startswith("swap ")}
            database, _ = transactions.read_database(files[n], MarkJournal(files[n]).read())
            with closing(database):
                assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",), files[n]
                (last,) = database.execute("SELECT max(start) FROM history_seconds").fetchone()
                (requests,) = database.execute("SELECT count(*) FROM requests").fetchone()
                assert database.execute("SELECT sum(requests) FROM usage_hours").fetchone() == (requests,)
                missing += len(swaps - {id_ for (id_,) in database.execute("SELECT id FROM swaps")})
                told += len(swaps)
                losses.append(max(0.0, at - last - 1))  # the end of the last second that is there
        number -= len(files)
        print(
            f"{len(losses)} killed, none damaged; figures lost: at most {max(losses):.2f} s,"
            f" half {sorted(losses)[len(losses) // 2]:.2f} s; swaps told {told}, lost {missing}",
            flush=True,
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--days", type=int, default=30)
    options.add_argument("--every", type=int, default=5, help="seconds between samples")
    options.add_argument("--requests", type=int, default=4000, help="a day")
    options.add_argument("--keep", type=Path)
    options.add_argument("--kills", type=int, default=0)
    given = options.parse_args()
    most_bytes = int(Settings().history.max_gib * GIB)
    with tempfile.TemporaryDirectory() as folder:
        if given.kills:
            kill(given.kills, Path(folder))
            return
        file = given.keep or Path(folder) / "past.db"
        if not file.exists():
            began = time.perf_counter()
            fill(file, given.days, given.every, given.requests, most_bytes)
            print(f"{given.days} days in {time.perf_counter() - began:.0f} s")
        print(f"file: {file.stat().st_size / 2**20:.0f} MiB, limit {most_bytes / 2**20:.0f} MiB")
        measure(file, given.days)


if __name__ == "__main__":
    main()

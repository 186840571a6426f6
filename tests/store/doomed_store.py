"""Records samples and requests until it is killed: `python doomed_store.py FILE FIRST EVERY`.

Samples are a second of recorded time apart, from FIRST on. With EVERY they come at that interval of real time (seconds)
and carry its clock, which FIRST is then ignored for; with 0 they come as fast as the store takes them. A line on stdout
names the last second that the database has. A line "swap ID" tells of a swap that was recorded just now, ten times for
each sample.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from recorded import asked, sample
from stored import swap

from sparkdash.store import Store


def newest(database: sqlite3.Connection) -> int | None:
    (found,) = database.execute("SELECT max(start) FROM history_seconds").fetchone()
    return None if found is None else int(found)


def record_swap(store: Store, number: int) -> None:
    store.record_swap(swap(str(number), 30.0), "f")
    print(f"swap {number}", flush=True)


async def main(file: Path, first: int, every_s: float) -> None:
    async with Store.opened(file, lambda _: None) as store:
        number = 0
        while True:
            at = time.time() if every_s else float(first + number)
            store.record_sample(sample(at))
            store.record_request(asked(first * 1000 + number, at))
            for part in range(10):
                record_swap(store, (first + number) * 10 + part)
                await asyncio.sleep(every_s / 10)
            number += 1
            if every_s or number % 20 == 0:
                print(await store.read(newest), flush=True)


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))

"""Records samples and requests until it is killed: `python doomed_store.py FILE FIRST EVERY`.

Samples are a second of recorded time apart, from FIRST on. With EVERY they come at that interval of real time (seconds)
and carry its clock, which FIRST is then ignored for; with 0 they come as fast as the store takes them. A line on stdout
names the last second that the database has.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from recorded import asked, sample

from sparkdash.store import Store, records


def newest(database: sqlite3.Connection) -> int | None:
    """The last second in the database."""
    (found,) = database.execute("SELECT max(start) FROM history_seconds").fetchone()
    return None if found is None else int(found)


async def main(file: Path, first: int, every_s: float) -> None:
    """Record for ever."""
    if not every_s:
        records.FIGURES_S = 0.0
    async with Store.opened(file, lambda _: None) as store:
        number = 0
        while True:
            at = time.time() if every_s else float(first + number)
            store.record_sample(sample(at))
            store.record_request(asked(first * 1000 + number, at))
            number += 1
            await asyncio.sleep(every_s)
            if every_s or number % 20 == 0:
                print(await store.read(newest), flush=True)


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))

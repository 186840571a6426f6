"""Records samples and requests until it is killed: `python doomed_store.py FILE FIRST`.

Samples are a second of recorded time apart, from FIRST on, and come as fast as the store takes them. A line on stdout
names the last second that the database has.
"""

import asyncio
import sqlite3
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from recorded import asked, sample

from sparkdash.store import Store


def newest(database: sqlite3.Connection) -> int | None:
    (found,) = database.execute("SELECT max(start) FROM history_seconds").fetchone()
    return None if found is None else int(found)


async def main(file: Path, first: int) -> None:
    async with Store.opened(file, lambda _: None) as store:
        number = 0
        while True:
            at = float(first + number)
            store.record_sample(sample(at))
            store.record_request(asked(first * 1000 + number, at))
            await asyncio.sleep(0)
            number += 1
            if number % 20 == 0:
                print(await store.read(newest), flush=True)


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))

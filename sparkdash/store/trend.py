"""Free memory by block size over the last loads, out of a daemon's database.

Owns: how another process reads it, also while the daemon writes.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sparkdash.domain.memory.contiguity import LoadContiguity
from sparkdash.store import rows

SINCE = 8
"""Version of the schema that has the table."""


def read(path: Path) -> tuple[LoadContiguity, ...]:
    """The last loads, oldest first; none where no daemon has kept any.

    Raises:
        sqlite3.Error: the file is no database of ours.
        ValueError: it holds a row that no daemon wrote.
    """
    if not path.exists():
        return ()
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        return tuple(map(rows.contiguity, database.execute(rows.GET_CONTIGUITY))) if version >= SINCE else ()

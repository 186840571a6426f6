"""Free memory by block size over the last loads, read from a daemon's database.

Owns: reading it from another process, even while the daemon writes.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sparkdash.domain.memory.contiguity import LoadContiguity
from sparkdash.store import rows

SINCE = 8
"""Version of the schema that has the table."""


def read_loads(path: Path) -> tuple[LoadContiguity, ...]:
    """Read the last loads, oldest first; none without a database.

    Raises:
        sqlite3.Error: the file is no database of sparkdash.
        ValueError: it holds a row that no daemon wrote.
    """
    if not path.exists():
        return ()
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        return tuple(map(rows.parse_contiguity, database.execute(rows.GET_CONTIGUITY))) if version >= SINCE else ()

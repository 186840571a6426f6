"""Schema of the database file: tables, version, and upgrade of older files. All functions block."""

import contextlib
import sqlite3
from pathlib import Path
from types import NoneType

from sparkdash.domain.sketch import SketchSum, merge_packed

VERSION = 14
"""Version of the schema, stored in `PRAGMA user_version`. 14: each request's session."""
OLDEST = 13
"""Oldest version that is upgraded."""
REQUESTS_KEPT = 100_000
"""Rows of requests, about 20 MB; older ones are deleted when the database is opened and while it is written."""
SWAPS_KEPT = 10_000
"""Rows of swaps, about 10 MB; times are learned from all of them at each start."""
LOADS_KEPT = 2_000
"""Rows of loads, less than a megabyte; their columns `after_prompt_bytes` and `curve` are no longer filled."""
KILLS_KEPT = 1_000
"""Rows of kills by the memory guard."""
INCIDENTS_KEPT = 500
"""Rows of incidents, less than a megabyte."""
NOTICES_KEPT = 5_000
"""Rows of notices, about a megabyte."""

BUSY_S = 5.0
_PASSING = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}
)

_TABLES = (
    """CREATE TABLE IF NOT EXISTS swaps (
        id TEXT PRIMARY KEY, at REAL NOT NULL, profile TEXT NOT NULL, fingerprint TEXT NOT NULL, cause TEXT NOT NULL,
        outcome TEXT NOT NULL, took_s REAL NOT NULL, stage_s TEXT NOT NULL, failure TEXT, kin TEXT, steps TEXT,
        nodes TEXT, record TEXT
    )""",
    "CREATE INDEX IF NOT EXISTS swaps_by_fingerprint ON swaps (fingerprint, at)",
    "CREATE INDEX IF NOT EXISTS swaps_by_time ON swaps (at)",
    """CREATE TABLE IF NOT EXISTS requests (
        id TEXT PRIMARY KEY, at REAL NOT NULL, profile TEXT NOT NULL, client TEXT NOT NULL, route TEXT NOT NULL,
        state TEXT NOT NULL, status INTEGER, finished_at REAL, ttft_s REAL, prompt_tokens INTEGER,
        cached_tokens INTEGER, completion_tokens INTEGER, decode_tok_s REAL, finish_reason TEXT, error TEXT,
        reasoning_tokens INTEGER, node TEXT, key TEXT, granted_at REAL, stream INTEGER, energy_wh REAL,
        completion_estimate INTEGER, session TEXT
    )""",
    """CREATE TABLE IF NOT EXISTS loads (
        id TEXT PRIMARY KEY, at REAL NOT NULL, profile TEXT NOT NULL, fingerprint TEXT NOT NULL, measure TEXT,
        steady_bytes INTEGER, peak_bytes INTEGER, after_prompt_bytes INTEGER, spoilt TEXT, curve TEXT NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS loads_by_fingerprint ON loads (fingerprint, at)",
    """CREATE TABLE IF NOT EXISTS kills (
        at REAL NOT NULL, profile TEXT NOT NULL, available_bytes INTEGER NOT NULL, pressure REAL,
        processes INTEGER NOT NULL, reason TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS parked (
        profile TEXT PRIMARY KEY, since REAL NOT NULL, fingerprint TEXT NOT NULL, failures INTEGER NOT NULL,
        failure TEXT NOT NULL
    )""",
    "CREATE TABLE IF NOT EXISTS attached (profile TEXT PRIMARY KEY, fingerprint TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS incidents (
        id TEXT PRIMARY KEY, began REAL NOT NULL, named_at REAL NOT NULL, profile TEXT NOT NULL,
        fingerprint TEXT NOT NULL, why TEXT NOT NULL, steps TEXT NOT NULL,
        ended_at REAL, how TEXT, note TEXT NOT NULL, evidence TEXT
    )""",
    """CREATE TABLE IF NOT EXISTS history_subjects (
        id INTEGER PRIMARY KEY, profile TEXT NOT NULL, node TEXT NOT NULL, first INTEGER NOT NULL,
        last INTEGER NOT NULL, UNIQUE (profile, node)
    )""",
    """CREATE TABLE IF NOT EXISTS history_figures (
        box INTEGER NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (box, name)
    ) WITHOUT ROWID""",
    # by time first: every second adds rows to one page, whatever the number of engines
    """CREATE TABLE IF NOT EXISTS history_seconds (
        start INTEGER NOT NULL, subject INTEGER NOT NULL, cells BLOB NOT NULL, PRIMARY KEY (start, subject)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS history_buckets (
        step INTEGER NOT NULL, subject INTEGER NOT NULL, start INTEGER NOT NULL, cells BLOB NOT NULL,
        PRIMARY KEY (step, subject, start)
    ) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS history_rolled (step INTEGER PRIMARY KEY, until INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS usage_hours (
        start INTEGER NOT NULL, profile TEXT NOT NULL, client TEXT NOT NULL, key TEXT NOT NULL,
        requests INTEGER NOT NULL, errors INTEGER NOT NULL, gone INTEGER NOT NULL, prompt INTEGER NOT NULL,
        cached INTEGER NOT NULL, output INTEGER NOT NULL, reasoning INTEGER NOT NULL, energy_wh REAL,
        waited INTEGER NOT NULL, wait_s REAL NOT NULL, waits BLOB, ttfts BLOB, rates BLOB,
        PRIMARY KEY (start, profile, client, key)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS notices (
        at REAL NOT NULL, level TEXT NOT NULL, code TEXT NOT NULL, text TEXT NOT NULL, profile TEXT
    )""",
)
_ADDED = {14: "ALTER TABLE requests ADD COLUMN session TEXT"}
"""Columns by the version that added them to an existing table; always at the end, so that rows keep their order."""

_KEPT = {
    "swaps": SWAPS_KEPT,
    "loads": LOADS_KEPT,
    "kills": KILLS_KEPT,
    "incidents": INCIDENTS_KEPT,
    "notices": NOTICES_KEPT,
}
_TRIM = (
    # by order of writing, as the clock may have been set; finding the rows does not read those that stay
    f"DELETE FROM requests WHERE rowid <= (SELECT max(rowid) FROM requests) - {REQUESTS_KEPT}",  # noqa: S608 - constant
    # rows of these tables are rewritten under a new number, so the numbers have gaps
    *(
        f"DELETE FROM {table} WHERE rowid <="  # noqa: S608 - constants
        f" (SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT 1 OFFSET {kept})"
        for table, kept in _KEPT.items()
    ),
)


# sqlite3 searches an adapter for every bound None and fails by an exception. With this adapter the row of a request,
# most of whose columns are None, costs a third less.
sqlite3.register_adapter(NoneType, lambda none: none)


def connect(path: Path) -> sqlite3.Connection:
    """Open the database; create or upgrade it in one transaction. Raises sqlite3.Error and OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)  # requests are private; the -wal and -shm files get the same mode
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=BUSY_S)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.create_function("merge_sketch", 2, merge_packed, deterministic=True)
        database.create_aggregate("sum_sketch", 1, SketchSum)  # type: ignore[arg-type]
        _bring_up_to_date(database)
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.close()
        raise
    return database


def trim(database: sqlite3.Connection) -> None:
    """Delete rows beyond the limits; takes milliseconds for a few rows."""
    for statement in _TRIM:
        database.execute(statement)


def passes(error: BaseException) -> bool:
    """Whether the cause may pass by itself (a full disk, another program's lock), so that a later write may succeed."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in _PASSING


def close_to_others(path: Path) -> int | None:
    """Remove other users' rights to the database; return the earlier mode, None if nothing was to be done."""
    mode = path.stat().st_mode & 0o777
    if not mode & 0o077:
        return None
    files = [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]
    try:
        for file in filter(Path.exists, files):
            file.chmod(0o600)
    except OSError:
        return None
    return mode


def _bring_up_to_date(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version not in (0, *range(OLDEST, VERSION + 1)):
        raise sqlite3.DatabaseError(f"its schema has version {version}, and this sparkdash knows {OLDEST} to {VERSION}")
    added = [statement for since, statement in _ADDED.items() if 0 < version < since]
    for statement in (*added, *_TABLES):
        database.execute(statement)
    trim(database)
    database.execute(f"PRAGMA user_version = {VERSION}")
    database.execute("COMMIT")

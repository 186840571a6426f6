"""The database file: its tables, its version, and how an older file becomes a newer one.

Owns: SQL. Must not know threads, nor what the rows are used for. All functions block; the store calls them in its thread.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from types import NoneType

VERSION = 8
"""Of the schema; kept in `PRAGMA user_version`. 1: swaps and requests. 2: each swap's steps, and the loads' memory. 3: what each access
key used. 4: parked profiles. 5: the requests' reasoning tokens. 6: servers that are not ours and are in use. 7: incidents
of engines that stood still. 8: free memory by block size before and after loads."""

REQUESTS_KEPT = 100_000
"""Requests that are kept; older ones are dropped when the database is opened, and while it is written; about 20 MB."""
SWAPS_KEPT = 10_000
"""Older swaps, too; about 10 MB, and all that times are learned from is read at each start."""
LOADS_KEPT = 2_000
"""Older loads are dropped too; a curve has at most 200 points, so about 8 MB."""
CONTIGUITY_KEPT = 2_000
"""Loads whose contiguity is kept; about 2 MB."""
KILLS_KEPT = 1_000
"""Kills by the memory guard that are kept."""
INCIDENTS_KEPT = 500
"""Incidents of engines that stood still; each has at most a few steps, so less than a megabyte."""

BUSY_S = 5.0
"""How long another program's lock is waited for."""
_PASSING = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}
)

_TABLES = (
    """CREATE TABLE IF NOT EXISTS swaps (
        id TEXT PRIMARY KEY, at REAL NOT NULL, profile TEXT NOT NULL, fingerprint TEXT NOT NULL, cause TEXT NOT NULL,
        outcome TEXT NOT NULL, took_s REAL NOT NULL, stage_s TEXT NOT NULL, failure TEXT, kin TEXT, steps TEXT
    )""",
    "CREATE INDEX IF NOT EXISTS swaps_by_fingerprint ON swaps (fingerprint, at)",
    """CREATE TABLE IF NOT EXISTS requests (
        id TEXT PRIMARY KEY, at REAL NOT NULL, profile TEXT NOT NULL, client TEXT NOT NULL, route TEXT NOT NULL,
        state TEXT NOT NULL, status INTEGER, finished_at REAL, ttft_s REAL, prompt_tokens INTEGER, cached_tokens INTEGER,
        completion_tokens INTEGER, decode_tok_s REAL, finish_reason TEXT, error TEXT,
        reasoning_tokens INTEGER
    )""",
    "DROP INDEX IF EXISTS requests_by_time",  # of earlier releases; every request paid for it, and nobody asked it
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
    """CREATE TABLE IF NOT EXISTS contiguity (
        id TEXT PRIMARY KEY, at REAL NOT NULL, profile TEXT NOT NULL, need_bytes INTEGER, outcome TEXT NOT NULL, before TEXT,
        after TEXT
    )""",
    "CREATE TABLE IF NOT EXISTS attached (profile TEXT PRIMARY KEY, fingerprint TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS incidents (
        id TEXT PRIMARY KEY, began REAL NOT NULL, named_at REAL NOT NULL, profile TEXT NOT NULL, fingerprint TEXT NOT NULL,
        why TEXT NOT NULL, steps TEXT NOT NULL, ended_at REAL, how TEXT, note TEXT NOT NULL, evidence TEXT
    )""",
    """CREATE TABLE IF NOT EXISTS key_usage (
        key TEXT NOT NULL, day INTEGER NOT NULL, requests INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL, PRIMARY KEY (key, day)
    )""",
)
_ADDED = {
    2: ("ALTER TABLE swaps ADD COLUMN kin TEXT", "ALTER TABLE swaps ADD COLUMN steps TEXT"),
    5: ("ALTER TABLE requests ADD COLUMN reasoning_tokens INTEGER",),
}
"""What a version added to tables that were there before it; columns are added at the end, so that rows keep their order."""

_KEPT = {
    "swaps": SWAPS_KEPT,
    "loads": LOADS_KEPT,
    "kills": KILLS_KEPT,
    "incidents": INCIDENTS_KEPT,
    "contiguity": CONTIGUITY_KEPT,
}
_TRIM = (
    # in the order in which they were written, whatever the clock said; finding them takes no look at those that stay
    f"DELETE FROM requests WHERE rowid <= (SELECT max(rowid) FROM requests) - {REQUESTS_KEPT}",  # noqa: S608 - a constant
    # rows of these are rewritten under a new number, so that the numbers have gaps
    *(
        f"DELETE FROM {table} WHERE rowid <= (SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT 1 OFFSET {kept})"  # noqa: S608 - constants
        for table, kept in _KEPT.items()
    ),
)


# Python asks of every None that is bound what it would rather be, and learns from an exception that there is no answer. Told at
# once that it is to stay one, a request's row, most of which is not known of most requests, costs a third less.
sqlite3.register_adapter(NoneType, lambda none: none)


def connect(path: Path) -> sqlite3.Connection:
    """The database in this file, made or brought up to this version; either whole or not at all.

    Raises:
        sqlite3.Error: it is no database, damaged, or of a newer version than this.
        OSError: its folder cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)  # who asked for what, and when, is nobody else's; its -wal and -shm get the same rights
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=BUSY_S)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        _bring_up_to_date(database)
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.close()
        raise
    return database


def trim(database: sqlite3.Connection) -> None:
    """Delete rows beyond the limits; takes milliseconds where there are few."""
    for statement in _TRIM:
        database.execute(statement)


def passes(error: BaseException) -> bool:
    """Is it the box's (a full disk, another program's lock), and the database may be written again later?"""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in _PASSING


def close_to_others(path: Path) -> int | None:
    """A database from before it was its owner's alone becomes so, with its -wal and -shm. The mode that it had; None when
    nothing had to be done, or could be as it is another user's."""
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
    if version not in range(VERSION + 1):
        raise sqlite3.DatabaseError(f"its schema has version {version}, and this sparkdash knows {VERSION}")
    added = [statement for since, group in _ADDED.items() if 0 < version < since for statement in group]
    for statement in (*added, *_TABLES):
        database.execute(statement)
    trim(database)
    database.execute(f"PRAGMA user_version = {VERSION}")
    database.execute("COMMIT")

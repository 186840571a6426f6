"""SQLite, in one named thread.

Owns: the database file, its schema and its version. Must not know what the rows are used for.

Rule 1: callers never wait: writing is handed to the thread, reading answers from memory.
Rule 2: a database that cannot be opened or written never stops serving: a Notice once, and on without.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from sparkdash.domain.event import Fact, Level, Notice
from sparkdash.domain.lease import Request
from sparkdash.domain.swap import Swap, SwapOutcome, SwapPhase

VERSION = 1
"""Of the schema; kept in `PRAGMA user_version`."""

LEARNED_FROM = 5
"""Swaps of one fingerprint that the expected time is the median of: enough to pass over one cold page cache, few
enough to follow a new disk."""

REQUESTS_KEPT = 100_000
"""Older requests are dropped when the database is opened; about 20 MB."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS swaps (
    id TEXT PRIMARY KEY, at REAL NOT NULL, profile TEXT NOT NULL, fingerprint TEXT NOT NULL, cause TEXT NOT NULL,
    outcome TEXT NOT NULL, took_s REAL NOT NULL, stage_s TEXT NOT NULL, failure TEXT
);
CREATE INDEX IF NOT EXISTS swaps_by_fingerprint ON swaps (fingerprint, at);
CREATE TABLE IF NOT EXISTS requests (
    id TEXT PRIMARY KEY, at REAL NOT NULL, profile TEXT NOT NULL, client TEXT NOT NULL, route TEXT NOT NULL,
    state TEXT NOT NULL, status INTEGER, finished_at REAL, ttft_s REAL, prompt_tokens INTEGER, cached_tokens INTEGER,
    completion_tokens INTEGER, decode_tok_s REAL, finish_reason TEXT, error TEXT
);
CREATE INDEX IF NOT EXISTS requests_by_time ON requests (at);
"""

_LEARN = "SELECT fingerprint, took_s FROM swaps WHERE outcome = 'done' ORDER BY at"
_FORGET = "DELETE FROM requests WHERE id NOT IN (SELECT id FROM requests ORDER BY at DESC LIMIT ?)"
_SWAP = "INSERT OR REPLACE INTO swaps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_REQUEST = "INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Store:
    """Use `Store.opened`. Owned by one event loop."""

    def __init__(self, publish: Callable[[Fact], object]) -> None:
        self._publish = publish
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        self._database: sqlite3.Connection | None = None
        self._learned: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LEARNED_FROM))

    @classmethod
    @asynccontextmanager
    async def opened(cls, path: Path, publish: Callable[[Fact], object]) -> AsyncIterator[Store]:
        """The store on this file, made when it is not there; closed, with all that was recorded, at the end."""
        store = cls(publish)
        await store._open(path)
        try:
            yield store
        finally:
            await store._close()

    def expected_s(self, fingerprint: str) -> float | None:
        """Median time of this launch's last swaps, the drain left out (it depends on who was served before); None before the first."""
        times = self._learned.get(fingerprint)
        return median(times) if times else None

    def record_swap(self, swap: Swap, fingerprint: str) -> None:
        """Keep a swap that ended. `fingerprint` is its target's."""
        took = sum(seconds for phase, seconds in swap.stage_s.items() if phase is not SwapPhase.DRAIN)
        if swap.outcome is SwapOutcome.DONE:
            self._learned[fingerprint].append(took)
        stages = json.dumps({phase.value: round(seconds, 3) for phase, seconds in swap.stage_s.items()})
        failure = swap.failure.code if swap.failure else None
        outcome = swap.outcome.value if swap.outcome else ""
        row = (
            swap.id, swap.started_at, swap.target or "", fingerprint, swap.cause.value, outcome, took, stages, failure,
        )  # fmt: skip
        self._write(_SWAP, row)

    def record_request(self, request: Request) -> None:
        """Keep a finished request: figures and names, never what was said."""
        r = request
        row = (
            r.id, r.started_at, r.profile, r.client, r.route, r.state.value, r.status, r.finished_at, r.ttft_s,
            r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.decode_tok_s, r.finish_reason, r.error,
        )  # fmt: skip
        self._write(_REQUEST, row)

    async def _open(self, path: Path) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._database, learned = await loop.run_in_executor(self._thread, _connect, path)
        except (sqlite3.Error, OSError) as error:
            self._give_up(f"The database {path} cannot be used ({error}).")
            return
        for fingerprint, took in learned:
            self._learned[fingerprint].append(took)

    def _write(self, statement: str, row: tuple[object, ...]) -> None:
        if self._database is None:
            return
        writing = self._thread.submit(_execute, self._database, statement, row)
        loop = asyncio.get_running_loop()
        writing.add_done_callback(lambda done: loop.call_soon_threadsafe(self._written, done.exception()))

    def _written(self, error: BaseException | None) -> None:
        if isinstance(error, sqlite3.Error) and self._database is not None:
            self._thread.submit(self._database.close)
            self._database = None
            self._give_up(f"The database could not be written ({error}).")

    def _give_up(self, what: str) -> None:
        text = f"{what} sparkdash serves on, and does not record swaps and requests. Move the file away to begin anew."
        self._publish(Notice(level=Level.WARNING, code="store_unusable", text=text))

    async def _close(self) -> None:
        loop = asyncio.get_running_loop()
        if self._database is not None:
            # behind all writes in the thread, and its callback behind theirs on the loop
            await loop.run_in_executor(self._thread, _execute, self._database, "SELECT 1", ())
        if self._database is not None:
            self._thread.submit(self._database.close)
        await asyncio.to_thread(self._thread.shutdown)


def _connect(path: Path) -> tuple[sqlite3.Connection, list[tuple[str, float]]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=5.0)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        _check_version(database)
        database.executescript(SCHEMA)
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute(_FORGET, (REQUESTS_KEPT,))
        return database, database.execute(_LEARN).fetchall()
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.close()
        raise


def _check_version(database: sqlite3.Connection) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        raise sqlite3.DatabaseError(f"its schema has version {version}, and this sparkdash knows {VERSION}")


def _execute(database: sqlite3.Connection, statement: str, row: tuple[object, ...]) -> None:
    database.execute(statement, row)

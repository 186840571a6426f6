"""Transactions of the store's thread: reading a database once, writing rows, and the journal of rows told at once."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import structlog

from sparkdash.domain.engine import Incident, Parked
from sparkdash.domain.memory import LoadContiguity
from sparkdash.store import key_usage, rows, schema
from sparkdash.store.figures import SecondRow
from sparkdash.store.past import RecentPast, read_recent_past
from sparkdash.store.usage import complete_sums
from sparkdash.store.writing import TRIM_EVERY_S, write_seconds

LOG = structlog.get_logger("sparkdash.store")
SUFFIX = "-marks"
MOST_BYTES = 16 * 2**20
"""Size at which nothing more is added: the database has been unwritable for long."""
_NAMES = {statement: name for name, statement in rows.REPLAYED.items()}


class MarkJournal:
    """Rows beside the database in `path`."""

    def __init__(self, path: Path) -> None:
        self._path = Path(f"{path}{SUFFIX}")
        self._file: int | None = None
        self._bytes = 0
        self.added = 0

    def read(self) -> list[tuple[str, rows.Row]]:
        """Read the rows that an earlier daemon left, with statements that write none of them twice."""
        with suppress(OSError):
            lines = self._path.read_bytes().splitlines()
            return [found for line in lines if (found := _parse(line)) is not None]
        return []

    def add(self, statement: str, row: rows.Row) -> None:
        """Append a row. A full disk is no error here: the row waits in memory, as all others do."""
        self.added += 1
        line = json.dumps([_NAMES[statement], row]).encode() + b"\n"
        if self._bytes + len(line) > MOST_BYTES:
            return
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._bytes += os.write(self._file, line)
        except OSError as error:
            LOG.debug("a row is not in the journal", path=str(self._path), why=str(error))

    def written(self, added: int) -> None:
        """Empty the file if no row came after the first `added` ones, which the database has."""
        if added == self.added:
            with suppress(OSError):
                os.truncate(self._path, 0)
            self._bytes = 0

    def close(self) -> None:
        """Close the file, and remove it if it is empty."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        with suppress(OSError):
            if not self._path.stat().st_size:
                self._path.unlink()


def _parse(line: bytes) -> tuple[str, rows.Row] | None:
    """Read a line; None for a torn one, and for one of another version."""
    with suppress(ValueError, KeyError, TypeError):
        name, row = json.loads(line)
        return rows.ONCE.get(name, rows.REPLAYED[name]), tuple(row)
    return None


AT_ONCE = 32
"""Requests in one statement: each statement costs the thread one release of the interpreter's lock."""
TRIM_EVERY = 1_000
"""Rows between two trims, by which tables may exceed their limits."""

UNUSABLE = (sqlite3.Error, OSError, ValueError)
Rows = tuple[list[rows.Row], list[tuple[str, rows.Row]], list[SecondRow]]


class StoredState(NamedTuple):
    """Content of the database when a daemon starts."""

    swaps: list[rows.SwapTimes]
    loads: list[rows.WeighedLoad]
    used: list[tuple[str, int, int]]
    parked: dict[str, Parked]
    attached: dict[str, str]
    incidents: list[Incident]
    contiguity: list[LoadContiguity]
    past: RecentPast
    exposed: int | None
    """Earlier mode of the file if others could read it."""


def read_database(path: Path, left: Sequence[tuple[str, rows.Row]] = ()) -> tuple[sqlite3.Connection, StoredState]:
    """Open the database, write rows that an earlier daemon `left`, and read all. Raises UNUSABLE."""
    database = schema.connect(path)
    try:
        _write_left(database, left)
        return database, StoredState(
            swaps=[rows.parse_swap_times(row) for row in database.execute(rows.GET_SWAPS)],
            loads=[rows.parse_load(row) for row in database.execute(rows.GET_LOADS)],
            used=database.execute(key_usage.GET_TOKENS).fetchall(),
            parked=dict(rows.parse_parked(row) for row in database.execute(rows.GET_PARKED)),
            attached=dict(database.execute(rows.GET_ATTACHED).fetchall()),
            incidents=[rows.parse_incident(row) for row in database.execute(rows.GET_INCIDENTS)],
            contiguity=[rows.parse_contiguity(row) for row in database.execute(rows.GET_CONTIGUITY)],
            past=read_recent_past(database),
            exposed=schema.close_to_others(path),
        )
    except BaseException:
        with suppress(sqlite3.Error):
            database.close()
        raise


def _write_left(database: sqlite3.Connection, left: Sequence[tuple[str, rows.Row]]) -> None:
    """Write rows of an earlier daemon; those that do not fit this version are left out."""
    if not left:
        return
    database.execute("BEGIN IMMEDIATE")
    for statement, row in left:
        try:
            _write_one(database, statement, row)
        except sqlite3.Error as error:
            if schema.passes(error):
                raise
            LOG.warning("a row that an earlier daemon left cannot be written", why=str(error))
    database.execute("COMMIT")


def write_rows(
    database: sqlite3.Connection,
    requests: Sequence[rows.Row],
    others: Sequence[tuple[str, rows.Row]],
    seconds: Sequence[SecondRow] = (),
    most_bytes: int = 2**63,
) -> None:
    """Write the rows in one transaction, and sometimes delete old rows. A row that SQLite cannot hold is skipped."""
    before = database.total_changes
    try:
        database.execute("BEGIN")
        try:
            for at in range(0, len(requests), AT_ONCE):
                _write_requests(database, requests[at : at + AT_ONCE])
            for statement, row in others:
                _write_one(database, statement, row)
            _write_figures(database, seconds, most_bytes)
            if database.total_changes // TRIM_EVERY > before // TRIM_EVERY:
                schema.trim(database)
        except sqlite3.Error as error:
            if database.in_transaction and not schema.passes(error):
                database.execute("COMMIT")
            raise
        database.execute("COMMIT")
    except sqlite3.Error:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _write_figures(database: sqlite3.Connection, seconds: Sequence[SecondRow], most_bytes: int) -> None:
    """Write figures; what is wrong with them costs no other row."""
    if not seconds:
        return
    database.execute("SAVEPOINT figures")
    try:
        write_seconds(database, seconds, most_bytes)
        newest = seconds[-1].second
        if newest // TRIM_EVERY_S != (seconds[0].second - 1) // TRIM_EVERY_S:
            complete_sums(database, newest)
    except sqlite3.Error:
        raise
    except Exception:
        LOG.exception("figures were not recorded")
        database.execute("ROLLBACK TO figures")
    database.execute("RELEASE figures")


def _write_one(database: sqlite3.Connection, statement: str, row: rows.Row) -> None:
    with suppress(OverflowError, UnicodeError):
        database.execute(statement, row)


def _write_requests(database: sqlite3.Connection, requests: Sequence[rows.Row]) -> None:
    try:
        database.execute(rows.put_requests(len(requests)), tuple(chain.from_iterable(requests)))
    except (OverflowError, UnicodeError):  # raised before any row is written
        for row in requests:
            _write_one(database, rows.PUT_REQUEST, row)

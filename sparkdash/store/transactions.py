"""Transactions of the store's thread: read a database once, and write to it.

Must not know threads, nor what is kept in memory. All functions block.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from sparkdash.domain.engine import Parked
from sparkdash.domain.incident import Incident
from sparkdash.domain.memory.contiguity import LoadContiguity
from sparkdash.store import rows, schema, usage

AT_ONCE = 32
"""Requests in one statement: for each statement the thread releases the interpreter's lock and must get it back."""
TRIM_EVERY = 1_000
"""Rows written between two trims; tables exceed their limits by no more than that."""

UNUSABLE = (sqlite3.Error, OSError, ValueError)
"""Exceptions that `read` raises."""
Rows = tuple[list[rows.Row], list[tuple[str, rows.Row]]]
"""Requests, and every other row with its statement."""


class StoredState(NamedTuple):
    """Content of the database when a daemon starts."""

    swaps: list[rows.Took]
    loads: list[rows.Held]
    used: list[tuple[str, int, int]]
    parked: dict[str, Parked]
    attached: dict[str, str]
    incidents: list[Incident]
    contiguity: list[LoadContiguity]
    exposed: int | None
    """Mode that the file had, when others could read it."""


def read(path: Path) -> tuple[sqlite3.Connection, StoredState]:
    """Open the database, and read what a daemon starts with.

    Raises sqlite3.Error, OSError, ValueError: a row that no daemon wrote.
    """
    database = schema.connect(path)
    try:
        return database, StoredState(
            swaps=[rows.took(row) for row in database.execute(rows.GET_SWAPS)],
            loads=[rows.held(row) for row in database.execute(rows.GET_LOADS)],
            used=database.execute(usage.GET_TOKENS).fetchall(),
            parked=dict(rows.parked(row) for row in database.execute(rows.GET_PARKED)),
            attached=dict(database.execute(rows.GET_ATTACHED).fetchall()),
            incidents=[rows.incident(row) for row in database.execute(rows.GET_INCIDENTS)],
            contiguity=[rows.contiguity(row) for row in database.execute(rows.GET_CONTIGUITY)],
            exposed=schema.close_to_others(path),
        )
    except BaseException:
        with suppress(sqlite3.Error):
            database.close()
        raise


def write(database: sqlite3.Connection, requests: Sequence[rows.Row], others: Sequence[tuple[str, rows.Row]]) -> None:
    """Write the rows as one transaction, and delete old rows now and then.

    Rows written before a failure are kept, but none before a failure that passes by itself. A row that SQLite has no
    form for (an engine that counts 2**63 tokens) is skipped.
    """
    before = database.total_changes
    try:
        database.execute("BEGIN")
        try:
            for at in range(0, len(requests), AT_ONCE):
                _write_requests(database, requests[at : at + AT_ONCE])
            for statement, row in others:
                _write_one(database, statement, row)
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


def _write_one(database: sqlite3.Connection, statement: str, row: rows.Row) -> None:
    with suppress(OverflowError, UnicodeError):
        database.execute(statement, row)


def _write_requests(database: sqlite3.Connection, requests: Sequence[rows.Row]) -> None:
    try:
        database.execute(rows.put_requests(len(requests)), tuple(chain.from_iterable(requests)))
    except (OverflowError, UnicodeError):  # told before anything of it is written
        for row in requests:
            _write_one(database, rows.PUT_REQUEST, row)

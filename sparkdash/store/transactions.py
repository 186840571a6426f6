"""Transactions of the store's thread: reading a database once, and writing rows.

A wider bucket of figures is made of the rows of the next finer tier, in the transaction that writes its last second.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

from sparkdash.domain.engine import Incident, Parked
from sparkdash.domain.request import Request
from sparkdash.log import LOG
from sparkdash.store import rows, schema, usage
from sparkdash.store.figures import (
    COARSE,
    HOUR_S,
    SECONDS,
    TIERS,
    Cell,
    SecondRow,
    Tier,
    merged,
    pack_cells,
    unpack_cells,
)
from sparkdash.store.past import RecentPast, read_recent_past
from sparkdash.store.usage import UsageSums, delete_usage

TRIM_EVERY_S = 60
"""Seconds of recorded time between two deletions of old rows."""
SHARE_CUT = 0.05
"""Share of the recorded period that is deleted at once when the file is full."""


def write_seconds(database: sqlite3.Connection, seconds: Sequence[SecondRow], most_bytes: int) -> None:
    if not seconds:
        return
    places = _Places(database)
    database.executemany(
        "INSERT OR REPLACE INTO history_seconds VALUES (?, ?, ?)",
        [
            (row.second, places.subject(row), pack_cells(places.by_position(row.profile, row.figures)))
            for row in seconds
        ],
    )
    places.close()
    first, newest = min(row.second for row in seconds), seconds[-1].second
    _roll_up(database, first, newest)
    if newest // TRIM_EVERY_S != (first - 1) // TRIM_EVERY_S:
        delete_old(database, newest, most_bytes)


class _Places:
    """Numbers of subjects, and positions of figures, read from the database once for each transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._subjects: dict[tuple[str, str], int] = {}
        self._positions: dict[int, dict[str, int]] = {0: {}, 1: {}}
        self._seen: dict[int, int] = {}
        for id_, profile, node in database.execute("SELECT id, profile, node FROM history_subjects"):
            self._subjects[profile, node] = id_
        for box, name, position in database.execute("SELECT box, name, position FROM history_figures"):
            self._positions[box][name] = position

    def subject(self, row: SecondRow) -> int:
        """Return the number of the row's engine or box, a new one if needed."""
        key = row.profile, row.node
        if key not in self._subjects:
            made = self._database.execute(
                "INSERT INTO history_subjects (profile, node, first, last) VALUES (?, ?, ?, ?)",
                (*key, row.second, row.second),
            )
            self._subjects[key] = made.lastrowid or 0
        number = self._subjects[key]
        self._seen[number] = row.second
        return number

    def by_position(self, profile: str, figures: dict[str, Cell]) -> dict[int, Cell]:
        box = int(not profile)
        positions = self._positions[box]
        for name in figures.keys() - positions.keys():
            positions[name] = len(positions)
            self._database.execute("INSERT INTO history_figures VALUES (?, ?, ?)", (box, name, positions[name]))
        return {positions[name]: cell for name, cell in figures.items()}

    def close(self) -> None:
        self._database.executemany(
            "UPDATE history_subjects SET last = ? WHERE id = ?",
            [(second, number) for number, second in self._seen.items()],
        )


def _roll_up(database: sqlite3.Connection, first: int, newest: int) -> None:
    """Complete the buckets of each tier that end at or before second `newest`; the rows since `first` are new."""
    known = dict(database.execute("SELECT step, until FROM history_rolled").fetchall())
    for finer, tier in pairwise(TIERS):
        end = newest // tier.step * tier.step
        begin = known.get(tier.step)
        if begin is None or begin > end:  # new, or the clock was set back
            begin = first // tier.step * tier.step
        if begin < end:
            _complete(database, finer, tier, begin, end)
        if known.get(tier.step) != end:
            database.execute("INSERT OR REPLACE INTO history_rolled VALUES (?, ?)", (tier.step, end))


def _complete(database: sqlite3.Connection, finer: Tier, tier: Tier, begin: int, end: int) -> None:
    made: dict[tuple[int, int], dict[int, Cell]] = {}
    for subject, start, cells in _rows(database, finer, begin, end):
        key = subject, start // tier.step * tier.step
        made[key] = merged(made.get(key, {}), unpack_cells(cells))
    database.executemany(
        "INSERT OR REPLACE INTO history_buckets VALUES (?, ?, ?, ?)",
        [(tier.step, subject, start, pack_cells(cells)) for (subject, start), cells in made.items()],
    )


def _rows(database: sqlite3.Connection, tier: Tier, begin: int, end: int) -> Iterable[tuple[int, int, bytes]]:
    if tier is SECONDS:
        return database.execute(
            "SELECT subject, start, cells FROM history_seconds WHERE start >= ? AND start < ?", (begin, end)
        )
    return database.execute(
        "SELECT subject, start, cells FROM history_subjects CROSS JOIN history_buckets ON subject = id"
        " WHERE step = ? AND start >= ? AND start < ?",
        (tier.step, begin, end),
    )


def delete_old(database: sqlite3.Connection, now: int, most_bytes: int) -> None:
    """Delete what is older than its tier keeps, then the oldest records while the file is larger than allowed."""
    database.execute("DELETE FROM history_seconds WHERE start < ?", (now - SECONDS.kept_s,))
    for tier in COARSE:
        _delete_before(database, (tier,), now - tier.kept_s)
    delete_usage(database, now - TIERS[-1].kept_s)
    for _ in range(20):
        if used_bytes(database) <= most_bytes:
            return
        oldest = _oldest(database, now)
        cut = oldest + max(int((now - oldest) * SHARE_CUT), HOUR_S)
        if cut >= now:
            _delete_before(database, COARSE[:1], now - HOUR_S)
            return
        _delete_before(database, COARSE, cut)
        delete_usage(database, cut)


def _oldest(database: sqlite3.Connection, now: int) -> int:
    """Return the beginning of the oldest record that is kept for years; `now` without one."""
    found = (
        database.execute("SELECT min(start) FROM history_buckets WHERE step = ?", (COARSE[1].step,)).fetchone()[0],
        database.execute("SELECT min(start) FROM usage_hours").fetchone()[0],
    )
    return min((int(start) for start in found if start is not None), default=now)


def used_bytes(database: sqlite3.Connection) -> int:
    """Bytes of the file that hold records; the file itself keeps its size, and new records fill what was deleted."""
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    (free,) = database.execute("PRAGMA freelist_count").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    return int((pages - free) * size)


def _delete_before(database: sqlite3.Connection, tiers: Iterable[Tier], before: int) -> None:
    subjects = [number for (number,) in database.execute("SELECT id FROM history_subjects")]
    for tier in tiers:
        database.executemany(
            "DELETE FROM history_buckets WHERE step = ? AND subject = ? AND start < ?",
            [(tier.step, subject, before) for subject in subjects],
        )


AT_ONCE = 32
"""Requests in one statement: each statement costs the thread one release of the interpreter's lock."""
TRIM_EVERY = 1_000
"""Rows between two trims, by which tables may exceed their limits."""

UNUSABLE = (sqlite3.Error, OSError, ValueError)
Rows = tuple[list[Request], list[tuple[str, rows.Row]], list[SecondRow]]


class StoredState(NamedTuple):
    """Content of the database when a daemon starts."""

    swaps: list[rows.SwapTimes]
    loads: list[rows.WeighedLoad]
    used: list[tuple[str, int, int]]
    parked: dict[str, Parked]
    attached: dict[str, str]
    incidents: list[Incident]
    past: RecentPast
    exposed: int | None
    """Earlier mode of the file if others could read it."""


def read_database(path: Path) -> tuple[sqlite3.Connection, StoredState]:
    """Open the database, and read all. Raises UNUSABLE."""
    database = schema.connect(path)
    try:
        return database, StoredState(
            swaps=[rows.parse_swap_times(row) for row in database.execute(rows.GET_SWAPS)],
            loads=[rows.parse_load(row) for row in database.execute(rows.GET_LOADS)],
            used=database.execute(usage.GET_TOKENS).fetchall(),
            parked=dict(rows.parse_parked(row) for row in database.execute(rows.GET_PARKED)),
            attached=dict(database.execute(rows.GET_ATTACHED).fetchall()),
            incidents=[rows.parse_incident(row) for row in database.execute(rows.GET_INCIDENTS)],
            past=read_recent_past(database),
            exposed=schema.close_to_others(path),
        )
    except BaseException:
        with suppress(sqlite3.Error):
            database.close()
        raise


def write_rows(
    database: sqlite3.Connection,
    sums: UsageSums,
    requests: Sequence[Request],
    others: Sequence[tuple[str, rows.Row]],
    seconds: Sequence[SecondRow] = (),
    most_bytes: int = 2**63,
) -> None:
    """Write the rows in one transaction, and sometimes delete old rows. A row that SQLite cannot hold is skipped.

    `sums` adds up the requests.
    """
    before = database.total_changes
    for request in requests:
        sums.add(request)
    summed = sums.take()
    try:
        database.execute("BEGIN")
        try:
            for at in range(0, len(requests), AT_ONCE):
                _write_requests(database, [rows.request_row(request) for request in requests[at : at + AT_ONCE]])
            for statement, row in (*others, *summed):
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
    except sqlite3.Error:
        raise
    except Exception:
        LOG.exception("figures were not recorded")
        database.execute("ROLLBACK TO figures")
    database.execute("RELEASE figures")


def _write_one(database: sqlite3.Connection, statement: str, row: rows.Row) -> None:
    try:
        database.execute(statement, row)
    except (OverflowError, UnicodeError) as error:
        LOG.warning("a row holds what the database cannot, and is left out", id=str(row[0]), why=str(error))


def _write_requests(database: sqlite3.Connection, requests: Sequence[rows.Row]) -> None:
    try:
        database.execute(rows.put_requests(len(requests)), tuple(chain.from_iterable(requests)))
    except (OverflowError, UnicodeError):  # raised before any row is written
        for row in requests:
            _write_one(database, rows.PUT_REQUEST, row)

"""Adding up requests further: hours to days, both over all clients and keys, and hours over all profiles, too.

Owns: when an hour or a day is complete. Must not know what is asked, nor threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import datetime

from sparkdash.store.history.tables import USAGE_TABLES
from sparkdash.store.history.tiers import DAY_S, HOUR_S
from sparkdash.store.history.usage_rows import SummedUsage, UsageRow, UsageSpan, group_rows, select_rows
from sparkdash.store.history.usage_sums import COLUMNS

LATE_S = HOUR_S
"""Pause after the end of an hour or a day before it is added up."""
AT_ONCE_S = 31 * DAY_S
"""Time whose hours are added up at once: an older file's two years take a second of the thread for each month."""
BOX_HOURS, PROFILE_HOURS, PROFILE_DAYS = -1, -HOUR_S, -DAY_S
"""Numbers under which `history_rolled` says how far these tables are complete."""


def complete_sums(database: sqlite3.Connection, now: int) -> None:
    """Add up the hours and days that are over."""
    days, hours = day_of(now - LATE_S), (now - LATE_S) // HOUR_S * HOUR_S
    _complete_days(database, days)
    _complete(database, UsageSpan("usage_days", 0, days), "usage_profile_days", PROFILE_DAYS)
    reached = _complete(database, UsageSpan("usage_hours", 0, hours), "usage_profile_hours", PROFILE_HOURS)
    _complete(database, UsageSpan("usage_profile_hours", 0, reached), "usage_box_hours", BOX_HOURS)


def delete_usage(database: sqlite3.Connection, before: int) -> None:
    """Delete what is older."""
    for table in USAGE_TABLES:
        database.execute(f"DELETE FROM {table} WHERE start < ?", (before,))  # noqa: S608 - constants


def day_of(second: int) -> int:
    """Return the first full hour of the day in this box's own time."""
    midnight = datetime.fromtimestamp(second).astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    return -int(-midnight.timestamp() // HOUR_S) * HOUR_S


def _complete_days(database: sqlite3.Connection, end: int) -> None:
    """Add up hours to days of this box's own time; the first day may have begun before the last one that is there."""
    begin = _begin(database, "usage_days", DAY_S, end)
    if begin == end:
        return
    starts: dict[int, int] = {}

    def name(row: UsageRow) -> tuple[object, ...]:
        if row[0] not in starts:
            starts[row[0]] = max(day_of(row[0]), begin)
        return (starts[row[0]], *row[1:4])

    _put(database, "usage_days", group_rows(select_rows(database, UsageSpan("usage_hours", begin, end)), name))
    _set_complete(database, DAY_S, end)


def _complete(database: sqlite3.Connection, source: UsageSpan, table: str, number: int) -> int:
    """Add up the rows of each hour or day over clients and keys, or over all; return how far the table is complete."""
    begin = _begin(database, table, number, source.end)
    if begin == source.end:
        return begin
    query = f"SELECT min(start) FROM {source.table} WHERE start >= ?"  # noqa: S608 - constants
    (first,) = database.execute(query, (begin,)).fetchone()
    end = source.end if first is None else min(source.end, first + AT_ONCE_S)
    rows = select_rows(database, UsageSpan(source.table, begin, end))
    of_box = number == BOX_HOURS
    _put(database, table, group_rows(rows, lambda row: (row[0], "" if of_box else row[1], "", "")))
    _set_complete(database, number, end)
    return end


def _begin(database: sqlite3.Connection, table: str, number: int, end: int) -> int:
    """Return how far the table is complete, without the rows after `end`."""
    known = database.execute("SELECT until FROM history_rolled WHERE step = ?", (number,)).fetchone()
    if known and known[0] > end:  # the clock was ahead: requests may still be added to that time
        database.execute(f"DELETE FROM {table} WHERE start >= ?", (end,))  # noqa: S608 - constants
        _set_complete(database, number, end)
        return end
    return int(known[0]) if known else 0


def _set_complete(database: sqlite3.Connection, number: int, end: int) -> None:
    database.execute("INSERT OR REPLACE INTO history_rolled VALUES (?, ?)", (number, end))


def _put(database: sqlite3.Connection, table: str, groups: Mapping[tuple[object, ...], SummedUsage]) -> None:
    places = ", ".join("?" * 17)
    database.executemany(
        f"INSERT OR REPLACE INTO {table} ({COLUMNS}) VALUES ({places})",  # noqa: S608 - constants
        [group.row(key) for key, group in groups.items()],
    )

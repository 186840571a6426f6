"""Reading the requests of a period, added up by group.

Owns: which rows an answer is made of: whole days where it may, hours elsewhere, without clients where none is asked
for. Must not know threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from sparkdash.domain.history.answers import UsageReport
from sparkdash.domain.history.figures import ENERGY_BUSY, ENERGY_IDLE
from sparkdash.domain.history.selections import UsageSelection
from sparkdash.store.figures import DAY_S, HOUR_S
from sparkdash.store.key_usage import (
    BOX_HOURS,
    PROFILE_DAYS,
    PROFILE_HOURS,
    SummedUsage,
    UsageRow,
    UsageSpan,
    group_rows,
    select_rows,
)
from sparkdash.store.series import read_increase


class _Tables(NamedTuple):
    """Tables of an answer, with the numbers under which `history_rolled` says how far they are complete."""

    hours: str
    hours_number: int
    days: str
    days_number: int


_WHOLE = _Tables("usage_hours", 0, "usage_days", DAY_S)
_OF_PROFILES = _Tables("usage_profile_hours", PROFILE_HOURS, "usage_profile_days", PROFILE_DAYS)
_OF_BOX = _OF_PROFILES._replace(hours="usage_box_hours", hours_number=BOX_HOURS)


def read_usage(database: sqlite3.Connection, asked: UsageSelection) -> UsageReport:
    """Add up the requests of a period."""
    begin = int(asked.since // HOUR_S) * HOUR_S
    end = -int(-asked.until // HOUR_S) * HOUR_S
    groups = group_rows(_rows(database, asked, _spans(database, begin, end, asked)), _grouping(asked))
    total = SummedUsage()
    if asked.by == "hour":  # days have the same requests in a twentieth of the rows
        for row in _rows(database, asked, _spans(database, begin, end, replace(asked, by="profile"))):
            total.add(row)
    else:
        for group in groups.values():
            total.plus(group)
    rows = [group.totals(name, start) for (name, start), group in groups.items()]
    rows.sort(key=lambda one: (one.start or 0.0, -one.requests, one.group))
    whole = asked.profile is None and asked.client is None and asked.visible is None
    busy, idle = (read_increase(database, name, begin, end) if whole else None for name in (ENERGY_BUSY, ENERGY_IDLE))
    return UsageReport(
        since=float(begin),
        until=float(end),
        by=asked.by,
        rows=tuple(rows),
        total=total.totals("all", None),
        busy_wh=busy,
        idle_wh=idle,
    )


def _grouping(asked: UsageSelection) -> Callable[[UsageRow], tuple[str, int | None]]:
    """Return the function that names a row's group, with its beginning for groups of time."""
    offset = asked.offset_s
    if asked.by == "hour":
        return lambda row: (_moment(row[0], offset, "%Y-%m-%d %H:%M"), row[0])
    if asked.by == "day":
        return lambda row: _day_group(row[0], offset)
    column = {"profile": 1, "client": 2, "key": 3}[asked.by]
    return lambda row: (row[column], None)


@lru_cache(maxsize=4096)
def _day_group(start: int, offset: int) -> tuple[str, int]:
    begin = (start + offset) // DAY_S * DAY_S - offset
    return _moment(begin, offset, "%Y-%m-%d"), begin


@lru_cache(maxsize=4096)
def _moment(start: int, offset: int, form: str) -> str:
    return datetime.fromtimestamp(start + offset, UTC).strftime(form)


def _spans(database: sqlite3.Connection, begin: int, end: int, asked: UsageSelection) -> list[UsageSpan]:
    """Split a period into whole days that are added up, and the hours around them."""
    tables = _tables(asked)
    rolled = dict(database.execute("SELECT step, until FROM history_rolled").fetchall())
    first, last = end, end
    if asked.by != "hour" and tables.days_number in rolled:
        offset = asked.offset_s if asked.by == "day" else None
        first, last = _days(database, UsageSpan(tables.days, begin, end), rolled[tables.days_number], offset)
    spans = [
        *_hours(tables, begin, first, rolled),
        UsageSpan(tables.days, first, last),
        *_hours(tables, last, end, rolled),
    ]
    return [span for span in spans if span.begin < span.end]


def _tables(asked: UsageSelection) -> _Tables:
    """Return the tables with the fewest rows that tell apart what is asked for."""
    if asked.client is not None or asked.by in ("client", "key"):
        return _WHOLE
    whole = asked.profile is None and asked.visible is None and asked.by != "profile"
    return _OF_BOX if whole else _OF_PROFILES


def _hours(tables: _Tables, begin: int, end: int, rolled: dict[int, int]) -> list[UsageSpan]:
    """Return the spans of hours: from where they are not added up yet, those of each client."""
    until = max(begin, min(end, rolled.get(tables.hours_number, begin)))
    return [UsageSpan(tables.hours, begin, until), UsageSpan(_WHOLE.hours, until, end)]


def _days(database: sqlite3.Connection, period: UsageSpan, rolled: int, offset_s: int | None) -> tuple[int, int]:
    """Return the beginning and the end of the whole days of a period; twice its end without any.

    `offset_s`: distance from UTC at which days must begin; None: any day will do.
    """
    query = f"SELECT DISTINCT start FROM {period.table} WHERE start >= ? AND start <= ? ORDER BY start"  # noqa: S608
    starts = [start for (start,) in database.execute(query, (period.begin, period.end))]
    if not starts:
        return period.end, period.end
    last = rolled if rolled <= period.end else starts[-1]
    if offset_s is not None and any((start + offset_s) % DAY_S for start in (*starts, last)):
        return period.end, period.end
    return starts[0], last


def _rows(database: sqlite3.Connection, asked: UsageSelection, spans: list[UsageSpan]) -> Iterator[UsageRow]:
    wanted = [(column, name) for column, name in (("profile", asked.profile), ("client", asked.client)) if name]
    for span in spans:
        for row in select_rows(database, span, wanted):
            if asked.visible is None or row[1] in asked.visible:
                yield row

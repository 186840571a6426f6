"""Reading the requests of a period, added up by group.

Owns: which rows an answer is made of: whole days where it may, hours elsewhere. Must not know threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from sparkdash.domain.history.answers import UsageReport, UsageTotals
from sparkdash.domain.history.figures import ENERGY_BUSY, ENERGY_IDLE
from sparkdash.domain.history.selections import UsageSelection
from sparkdash.domain.history.sketch import LogSketch, usual_quantiles
from sparkdash.store.history.series import read_increase
from sparkdash.store.history.tiers import DAY_S, HOUR_S
from sparkdash.store.history.usage_sums import COLUMNS

LATE_S = HOUR_S
"""Pause after the end of a day before its hours are added up."""
_SUMMED = 7
"""Columns of plain sums after the four of the key."""
UsageRow = tuple[Any, ...]
K = TypeVar("K")


class _Group:
    """Sum of the rows of one group."""

    __slots__ = ("energy_wh", "numbers", "sketches", "wait_s", "waited")

    def __init__(self) -> None:
        self.numbers = [0] * _SUMMED
        self.energy_wh: float | None = None
        self.waited = 0
        self.wait_s = 0.0
        self.sketches = (LogSketch(), LogSketch(), LogSketch())

    def add(self, row: UsageRow) -> None:
        """Add a row, without its key."""
        self.numbers = [mine + one for mine, one in zip(self.numbers, row[4:11], strict=True)]
        if row[11] is not None:
            self.energy_wh = (self.energy_wh or 0.0) + row[11]
        self.waited += row[12]
        self.wait_s += row[13]
        for sketch, packed in zip(self.sketches, row[14:], strict=True):
            if packed:
                sketch.merge_packed(packed)

    def plus(self, other: _Group) -> None:
        """Add another group."""
        packed = (sketch.pack() for sketch in other.sketches)
        self.add((None,) * 4 + (*other.numbers, other.energy_wh, other.waited, other.wait_s, *packed))

    def totals(self, group: str, start: float | None) -> UsageTotals:
        """Return the sum as a value."""
        requests, errors, gone, prompt, cached, output, reasoning = self.numbers
        waits, ttfts, rates = map(usual_quantiles, self.sketches)
        return UsageTotals(
            group=group,
            start=start,
            requests=requests,
            errors=errors,
            gone=gone,
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=output,
            reasoning_tokens=reasoning,
            energy_wh=self.energy_wh,
            waited=self.waited,
            wait_total_s=self.wait_s,
            wait_s=waits,
            ttft_s=ttfts,
            decode_tok_s=rates,
        )

    def row(self, key: tuple[object, ...]) -> UsageRow:
        """Return the row of a table, with the columns of COLUMNS."""
        packed = (sketch.pack() for sketch in self.sketches)
        return (*key, *self.numbers, self.energy_wh, self.waited, self.wait_s, *packed)


class _Span(NamedTuple):
    """Rows of one table."""

    table: str
    begin: int
    end: int


def read_usage(database: sqlite3.Connection, asked: UsageSelection) -> UsageReport:
    """Add up the requests of a period."""
    begin = int(asked.since // HOUR_S) * HOUR_S
    end = -int(-asked.until // HOUR_S) * HOUR_S
    spans = [_Span("usage_hours", begin, end)]
    if asked.by != "hour":
        spans = _spans(database, begin, end, asked.offset_s if asked.by == "day" else None)
    groups = _grouped(_rows(database, asked, spans), _grouping(asked))
    total = _Group()
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


def complete_days(database: sqlite3.Connection, now: int) -> None:
    """Add up the hours of days of this box's own time that are over into rows of days."""
    end = _day_of(now - LATE_S)
    known = database.execute("SELECT until FROM history_rolled WHERE step = ?", (DAY_S,)).fetchone()
    begin = known[0] if known else 0
    if begin == end:
        return
    if begin > end:  # the clock was ahead: hours may still be added to those days
        database.execute("DELETE FROM usage_days WHERE start >= ?", (end,))
    days = _sum_days(_select(database, _Span("usage_hours", begin, end), ()), begin)
    places = ", ".join("?" * 17)
    database.executemany(
        f"INSERT OR REPLACE INTO usage_days ({COLUMNS}) VALUES ({places})",  # noqa: S608 - constants
        [group.row(key) for key, group in days.items()],
    )
    database.execute("INSERT OR REPLACE INTO history_rolled VALUES (?, ?)", (DAY_S, end))


def _sum_days(hours: Iterable[UsageRow], begin: int) -> dict[tuple[object, ...], _Group]:
    """Add up rows of hours by day and group; the first day may have begun before `begin`."""
    starts: dict[int, int] = {}

    def name(row: UsageRow) -> tuple[object, ...]:
        if row[0] not in starts:
            starts[row[0]] = max(_day_of(row[0]), begin)
        return (starts[row[0]], *row[1:4])

    return _grouped(hours, name)


def _grouped(rows: Iterable[UsageRow], name: Callable[[UsageRow], K]) -> dict[K, _Group]:
    """Add up rows by their group's name."""
    groups: dict[K, _Group] = {}
    for row in rows:
        key = name(row)
        if key not in groups:
            groups[key] = _Group()
        groups[key].add(row)
    return groups


def _day_of(second: int) -> int:
    """Return the first full hour of the day in this box's own time."""
    midnight = datetime.fromtimestamp(second).astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    return -int(-midnight.timestamp() // HOUR_S) * HOUR_S


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


def _spans(database: sqlite3.Connection, begin: int, end: int, offset_s: int | None) -> list[_Span]:
    """Split a period into whole days that are added up, and the hours around them.

    `offset_s`: distance from UTC at which days must begin; None: any day will do.
    """
    hours = [_Span("usage_hours", begin, end)]
    rolled = database.execute("SELECT until FROM history_rolled WHERE step = ?", (DAY_S,)).fetchone()
    query = "SELECT DISTINCT start FROM usage_days WHERE start >= ? AND start <= ? ORDER BY start"
    starts = [start for (start,) in database.execute(query, (begin, end))]
    if not rolled or not starts:
        return hours
    last = rolled[0] if rolled[0] <= end else starts[-1]
    if offset_s is not None and any((start + offset_s) % DAY_S for start in (*starts, last)):
        return hours
    first = starts[0]
    return [_Span("usage_hours", begin, first), _Span("usage_days", first, last), _Span("usage_hours", last, end)]


def _rows(database: sqlite3.Connection, asked: UsageSelection, spans: list[_Span]) -> Iterator[UsageRow]:
    wanted = [(column, name) for column, name in (("profile", asked.profile), ("client", asked.client)) if name]
    for span in spans:
        for row in _select(database, span, wanted):
            if asked.visible is None or row[1] in asked.visible:
                yield row


def _select(database: sqlite3.Connection, span: _Span, wanted: list[tuple[str, str]] | tuple[()]) -> Iterator[UsageRow]:
    where = "".join(f" AND {column} = ?" for column, _ in wanted)
    query = f"SELECT {COLUMNS} FROM {span.table} WHERE start >= ? AND start < ?{where}"  # noqa: S608 - constants
    yield from database.execute(query, (span.begin, span.end, *(name for _, name in wanted)))

"""Reading the requests of a period, added up by group.

Owns: which rows an answer is made of: whole days where it may, hours elsewhere. Must not know threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sparkdash.domain.history.answers import UsageReport, UsageTotals
from sparkdash.domain.history.selections import UsageSelection
from sparkdash.domain.history.sketch import LogSketch, usual_quantiles
from sparkdash.store.history.tiers import DAY_S, HOUR_S
from sparkdash.store.history.usage_sums import COLUMNS

LATE_S = HOUR_S
"""Pause after the end of a day before its hours are added up."""
_SUMMED = 7
"""Columns of plain sums after the four of the key."""
UsageRow = tuple[Any, ...]


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
    name, width = _grouping(asked)
    groups: dict[tuple[str, int | None], _Group] = {}
    for row in _rows(database, asked, _spans(database, begin, end, hours_only=bool(width))):
        key = name(row)
        if key not in groups:
            groups[key] = _Group()
        groups[key].add(row)
    total = _Group()
    for group in groups.values():
        total.plus(group)
    rows = [group.totals(name, start) for (name, start), group in groups.items()]
    rows.sort(key=lambda one: (one.start or 0.0, -one.requests, one.group))
    return UsageReport(
        since=float(begin), until=float(end), by=asked.by, rows=tuple(rows), total=total.totals("all", None)
    )


def complete_days(database: sqlite3.Connection, now: int) -> None:
    """Add up the hours of days that are over into rows of days."""
    end = (now - LATE_S) // DAY_S * DAY_S
    known = database.execute("SELECT until FROM history_rolled WHERE step = ?", (DAY_S,)).fetchone()
    if known and known[0] <= end < known[0] + DAY_S:
        return
    begin = known[0] if known and known[0] <= end else _first_day(database, end)
    days: dict[tuple[object, ...], _Group] = {}
    for row in _select(database, _Span("usage_hours", begin, end), ()):
        key = (row[0] // DAY_S * DAY_S, *row[1:4])
        if key not in days:
            days[key] = _Group()
        days[key].add(row)
    places = ", ".join("?" * 17)
    database.executemany(
        f"INSERT OR REPLACE INTO usage_days ({COLUMNS}) VALUES ({places})",  # noqa: S608 - constants
        [group.row(key) for key, group in days.items()],
    )
    database.execute("INSERT OR REPLACE INTO history_rolled VALUES (?, ?)", (DAY_S, end))


def _first_day(database: sqlite3.Connection, end: int) -> int:
    (oldest,) = database.execute("SELECT min(start) FROM usage_hours").fetchone()
    return end if oldest is None else min(int(oldest) // DAY_S * DAY_S, end)


def _grouping(asked: UsageSelection) -> tuple[Callable[[UsageRow], tuple[str, int | None]], int]:
    """Return the function that names a row's group, and the width of groups of time; 0 for other groups."""
    if asked.by == "hour":
        return lambda row: (_moment(row[0], asked.offset_s, "%Y-%m-%d %H:%M"), row[0]), HOUR_S
    if asked.by == "day":
        offset = asked.offset_s

        def day(row: UsageRow) -> tuple[str, int | None]:
            start = (row[0] + offset) // DAY_S * DAY_S - offset
            return _moment(start, offset, "%Y-%m-%d"), start

        return day, DAY_S if offset % DAY_S else 0
    column = {"profile": 1, "client": 2, "key": 3}[asked.by]
    return lambda row: (row[column], None), 0


def _moment(start: int, offset: int, form: str) -> str:
    return datetime.fromtimestamp(start + offset, UTC).strftime(form)


def _spans(database: sqlite3.Connection, begin: int, end: int, *, hours_only: bool) -> list[_Span]:
    """Split a period into whole days that are added up, and the hours around them."""
    known = database.execute("SELECT until FROM history_rolled WHERE step = ?", (DAY_S,)).fetchone()
    first = -(-begin // DAY_S) * DAY_S
    last = min(end // DAY_S * DAY_S, known[0] if known else 0)
    if hours_only or first >= last:
        return [_Span("usage_hours", begin, end)]
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

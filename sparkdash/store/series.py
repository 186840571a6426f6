"""Reading recorded figures; finer tiers complete the running bucket that an answer's own tier lacks."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sparkdash.api.requests import RecentQuery, SeriesQuery
from sparkdash.domain import history
from sparkdash.domain.node import LOCAL
from sparkdash.store.figures import CELL, DAY_S, HOURS, MINUTES, SECONDS, TIERS, Cell, Period, choose

BRIDGED_S = 20
"""Longest pause between two measurements that is no gap: an unwatched daemon measures every 5 or 15 s."""
FINE_INCREASE_S = 60 * DAY_S
"""Longest period whose counters are read from buckets of minutes: a new start within a bucket may hide some growth."""
_SECONDS = (
    "SELECT start, substr(cells, :at, :size) FROM history_seconds"
    " WHERE start >= :begin AND start < :end AND subject = :subject"
)
_BUCKETS = (
    "SELECT start, substr(cells, :at, :size) FROM history_buckets"
    " WHERE step = :step AND subject = :subject AND start >= :begin AND start < :end"
)


def read_figures(database: sqlite3.Connection) -> history.FigureList:
    found = database.execute("SELECT profile, node, first, last FROM history_subjects ORDER BY profile, node")
    subjects = (
        history.RecordedSubject(profile=profile, node=node, first=first, last=last)
        for profile, node, first, last in found
    )
    return history.FigureList(figures=history.all_figures(), subjects=tuple(subjects))


def read_series(database: sqlite3.Connection, asked: SeriesQuery, period: Period, now: float) -> history.Series:
    """Read one figure; the answer is all gaps where nothing was recorded."""
    index, step = choose(*period, asked.points, now)
    series, profile, node = _Buckets(*period, step), asked.profile or "", asked.node or LOCAL
    place = _place(database, asked.figure, profile, node)
    if place is not None:
        series.add(_cells(database, index, place, series.begin, period[1]), TIERS[index].step)
    return series.answer(asked.figure, profile, node)


def read_recent(database: sqlite3.Connection, asked: RecentQuery, until: float) -> history.RecentFigures:
    """Read the last minutes of these figures, or of all, for every engine and box that has some."""
    period = until - asked.seconds, until
    subjects = {
        number: (profile, node)
        for number, profile, node in database.execute("SELECT id, profile, node FROM history_subjects")
    }
    places = _places(database, asked.figure)
    found: dict[tuple[str, str, str], list[tuple[int, Cell]]] = {}
    rows = database.execute(
        "SELECT subject, start, cells FROM history_seconds WHERE start >= ? AND start < ?",
        (int(period[0]), int(until) + 1),
    )
    for number, start, packed in rows:
        if number in subjects:
            profile, node = subjects[number]
            for name, cell in _cells_at(packed, places[not profile]):
                found.setdefault((profile, node, name), []).append((start, cell))
    step = int(asked.step_s)
    return history.RecentFigures(
        begin=float(int(period[0] // step) * step),
        step_s=float(step),
        series=tuple(_recent(period, step, key, found[key]) for key in sorted(found)),
    )


def _places(database: sqlite3.Connection, figures: Sequence[str] | None) -> dict[bool, list[tuple[str, int]]]:
    """Read names and offsets of these figures, or of all: those of engines, and under True those of boxes."""
    found: dict[bool, list[tuple[str, int]]] = {False: [], True: []}
    for box, name, position in database.execute("SELECT box, name, position FROM history_figures"):
        if not figures or name in figures:
            found[bool(box)].append((name, position * CELL.size))
    return found


def _cells_at(packed: bytes, places: list[tuple[str, int]]) -> Iterator[tuple[str, Cell]]:
    for name, offset in places:
        if offset < len(packed) and (cell := Cell._make(CELL.unpack_from(packed, offset))).n:
            yield name, cell


def _recent(
    period: Period, step: int, key: tuple[str, str, str], cells: list[tuple[int, Cell]]
) -> history.RecentSeries:
    buckets = _Buckets(*period, step)
    buckets.add(cells, 1)
    profile, node, figure = key
    return history.RecentSeries(figure=figure, profile=profile, node=node, mean=buckets.means())


def read_increase(database: sqlite3.Connection, figure: str, since: int, until: int) -> float | None:
    """Read how much a counter of this box grew in a period; a fall is a new start at 0. None without records."""
    place = _place(database, figure, "", LOCAL)
    if place is None:
        return None
    tier = MINUTES if until - since <= FINE_INCREASE_S else HOURS
    before, grown = None, 0.0
    for _, cell in _cells(database, TIERS.index(tier), place, since, until):
        low = cell.min if before is None else before
        grown += cell.max - low if cell.max >= low else cell.max
        before = cell.max
    return None if before is None else grown


def _place(database: sqlite3.Connection, figure: str, profile: str, node: str) -> tuple[int, int] | None:
    """Return the subject's number and the offset of the figure's cell; None without records."""
    subject = database.execute(
        "SELECT id FROM history_subjects WHERE profile = ? AND node = ?", (profile, node)
    ).fetchone()
    position = database.execute(
        "SELECT position FROM history_figures WHERE box = ? AND name = ?", (int(not profile), figure)
    ).fetchone()
    return (subject[0], position[0] * CELL.size + 1) if subject and position else None


def _cells(
    database: sqlite3.Connection, index: int, place: tuple[int, int], begin: float, end: float
) -> Iterator[tuple[int, Cell]]:
    """Read the cells of a tier, and after its last complete bucket those of the finer ones."""
    rolled = dict(database.execute("SELECT step, until FROM history_rolled").fetchall())
    subject, at = place
    for tier in TIERS[index::-1]:
        until = end if tier is SECONDS else min(end, rolled.get(tier.step, begin))
        if until <= begin:
            continue
        given = {"at": at, "size": CELL.size, "subject": subject, "step": tier.step, "begin": begin, "end": until}
        for start, packed in database.execute(_SECONDS if tier is SECONDS else _BUCKETS, given):
            if len(packed) == CELL.size and (cell := Cell._make(CELL.unpack(packed))).n:
                yield start, cell
        begin = until


class _Gap(NamedTuple):
    n: int = 0
    min: None = None
    mean: None = None
    max: None = None


_GAP = _Gap()


class _Buckets:
    def __init__(self, since: float, until: float, step: int) -> None:
        self.begin = int(since // step) * step
        self._since, self._until, self._step = since, until, step
        self._number = int((until - self.begin - 1e-9) // step) + 1
        self._cells: dict[int, Cell] = {}

    def add(self, cells: Iterable[tuple[int, Cell]], width: int) -> None:
        """Add cells in the order of time, each `width` seconds wide."""
        mine, step, begin = self._cells, self._step, self.begin
        last_start, last_cell = None, None
        for start, cell in cells:
            index = (start - begin) // step
            if last_start is not None and last_cell and width < start - last_start <= BRIDGED_S:
                for bridged in range((last_start - begin) // step + 1, index):
                    mine.setdefault(bridged, last_cell._replace(n=0))
            known = mine.get(index)
            mine[index] = cell if known is None or not known.n else known.plus(cell)
            last_start, last_cell = start, cell

    def means(self) -> tuple[float | None, ...]:
        cells = map(self._cells.get, range(self._number))
        return tuple(None if cell is None else float(f"{cell.mean:.5g}") for cell in cells)

    def answer(self, figure: str, profile: str, node: str) -> history.Series:
        places = range(self._number)
        cells = [self._cells.get(place, _GAP) for place in places]
        return history.Series.model_construct(
            figure=figure,
            unit=history.unit_of(figure) or "",
            profile=profile,
            node=node,
            since=self._since,
            until=self._until,
            step_s=float(self._step),
            start=tuple(float(self.begin + place * self._step) for place in places),
            count=tuple(cell.n for cell in cells),
            min=tuple(cell.min for cell in cells),
            mean=tuple(cell.mean for cell in cells),
            max=tuple(cell.max for cell in cells),
        )

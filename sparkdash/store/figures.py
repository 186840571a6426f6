"""Recorded figures: cells of one figure in one bucket, the running second, and the widths of buckets.

A row of the database holds one cell (count, minimum, mean, maximum) for each figure of an engine or a box. The figure's
position says where; a row that is too short, or a count of 0, means that the figure was not measured. Pure.
"""

import math
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sparkdash.domain.history import Measured

CELL = struct.Struct("<Hfff")
"""Count, minimum, mean and maximum in 14 bytes. Single precision: seven digits."""
_LARGEST = 3.4e38
_MOST = 65535
EMPTY = bytes(CELL.size)


class Cell(NamedTuple):
    """The `n` measurements of one figure in one bucket."""

    n: int
    min: float
    mean: float
    max: float

    def plus(self, other: "Cell") -> "Cell":
        """Add the measurements of another bucket; the mean weighs by count."""
        n = self.n + other.n
        mean = self.mean + (other.mean - self.mean) * other.n / n
        return Cell(n, min(self.min, other.min), mean, max(self.max, other.max))


def pack_cells(cells: Mapping[int, Cell]) -> bytes:
    """Pack cells by position, in one row's value."""
    packed = bytearray(EMPTY * (max(cells, default=-1) + 1))
    for position, cell in cells.items():
        count, low, mean, high = cell
        if count and -_LARGEST < low <= high < _LARGEST:  # false for NaN, too
            CELL.pack_into(packed, position * CELL.size, min(count, _MOST), low, mean, high)
    return bytes(packed)


def unpack_cells(packed: bytes) -> dict[int, Cell]:
    """Read the measured cells of a row by position."""
    return {position: Cell(*found) for position, found in enumerate(CELL.iter_unpack(packed)) if found[0]}


def merged(rows: Mapping[int, Cell], other: Mapping[int, Cell]) -> dict[int, Cell]:
    found = dict(rows)
    for position, cell in other.items():
        mine = found.get(position)
        found[position] = cell if mine is None else mine.plus(cell)
    return found


class SecondRow(NamedTuple):
    """Figures of one engine or box in one second, by name."""

    second: int
    profile: str
    node: str
    figures: dict[str, Cell]


class SecondBuckets:
    """Adds up samples by second."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._open: dict[tuple[str, str], dict[str, Cell]] = {}

    def begins(self, at: float) -> bool:
        return int(at) != self._second

    def add(self, at: float, measured: Iterable[Measured]) -> list[SecondRow]:
        """Add the figures of one moment; return the rows of its second so far, which replace earlier ones."""
        if self.begins(at):
            self._second, self._open = int(at), {}
        for one in measured:
            figures = self._open.setdefault((one.profile, one.node), {})
            for name, value in one.values.items():
                cell, mine = Cell(1, value, value, value), figures.get(name)
                figures[name] = cell if mine is None else mine.plus(cell)
        return [SecondRow(int(at), profile, node, dict(found)) for (profile, node), found in self._open.items()]


HOUR_S = 3600
DAY_S = 86400
YEARS_S = 2 * 365 * DAY_S
Period = tuple[float, float]
"""Beginning and end, Unix seconds."""


class Tier(NamedTuple):
    """Buckets of `step` seconds, kept for `kept_s` seconds."""

    step: int
    kept_s: int


SECONDS = Tier(1, HOUR_S)
MINUTES = Tier(300, YEARS_S)
HOURS = Tier(HOUR_S, YEARS_S)
TIERS = (SECONDS, Tier(10, 2 * DAY_S), MINUTES, HOURS, Tier(6 * HOUR_S, YEARS_S))
COARSE = TIERS[1:]


def choose(since: float, until: float, points: int, now: float) -> tuple[int, int]:
    """Choose the coarsest tier that is fine enough and reaches back to `since`; index in TIERS, and bucket seconds."""
    ideal = (until - since) / points
    fitting = max((n for n, tier in enumerate(TIERS) if tier.step <= ideal), default=0)
    reaching = next((n for n, tier in enumerate(TIERS) if since >= now - tier.kept_s), len(TIERS) - 1)
    index = max(fitting, reaching)
    step = TIERS[index].step
    return index, step * max(1, math.ceil(ideal / step - 1e-9))

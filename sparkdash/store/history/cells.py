"""Cells: count, minimum, mean and maximum of one figure in one bucket, packed side by side.

A row of the database holds one cell for each figure of an engine or a box. The figure's position says where; a row that
is too short, or a count of 0, means that the figure was not measured.

Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

CELL = struct.Struct("<Hfff")
"""Count, minimum, mean and maximum in 14 bytes. Single precision: seven digits."""
_LARGEST = 3.4e38
"""Largest number that single precision holds."""
_MOST = 65535
EMPTY = bytes(CELL.size)


class Cell(NamedTuple):
    """The `n` measurements of one figure in one bucket."""

    n: int
    min: float
    mean: float
    max: float

    def plus(self, other: Cell) -> Cell:
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
    """Add the cells of two rows."""
    found = dict(rows)
    for position, cell in other.items():
        mine = found.get(position)
        found[position] = cell if mine is None else mine.plus(cell)
    return found

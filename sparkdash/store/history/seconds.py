"""SecondBuckets: figures of the running second, added up until the second is over.

Owns: adding up several samples of one second. Must not know the database.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sparkdash.domain.history.figures import Measured
from sparkdash.store.history.cells import Cell


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
        """Whether this moment begins another second."""
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

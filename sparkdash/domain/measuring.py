"""Measuring: where a run of the bench is, as its process tells the daemon."""

from __future__ import annotations

from pydantic import Field

from sparkdash.domain.base import Frozen
from sparkdash.limits import COUNT, NAME, PRINTABLE, WORD

SILENT_S = 20.0
"""A run tells every five seconds, and its right lapses after fifteen: one that is silent for so long has died."""


class Measuring(Frozen):
    """One moment of a run."""

    run: str = Field(max_length=NAME, pattern=PRINTABLE)
    """Its id."""
    doing: str = Field(max_length=WORD, pattern=PRINTABLE)
    """launching, settling, measuring."""
    arm: str = Field(max_length=NAME, pattern=PRINTABLE)
    cell: str | None = Field(default=None, max_length=NAME, pattern=PRINTABLE)
    """In words: `ctx 2K x 150`; None while no cell is measured."""
    launch: int = Field(ge=0, le=COUNT)
    """Counted from 1."""
    launches: int = Field(ge=0, le=COUNT)
    done: int = Field(ge=0, le=COUNT)
    """Cells of launches that are measured, of `cells`."""
    cells: int = Field(ge=0, le=COUNT)
    share: float = Field(ge=0, le=1)
    """Of all work, by tokens."""
    left_s: float | None = Field(default=None, ge=0)
    at: float = 0.0
    """When the daemon was told, Unix seconds."""
    ends: bool = False
    """It was asked to stop, and will when it next asks."""

    def lives(self, now: float) -> bool:
        """Is it still measured, as far as was told? `now`: the daemon's Unix seconds."""
        return now - self.at < SILENT_S

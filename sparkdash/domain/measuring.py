"""Progress of a bench run, as its process reports it to the daemon.

Pure.
"""

from __future__ import annotations

from pydantic import Field

from sparkdash.domain.base import Frozen
from sparkdash.limits import COUNT, NAME, PRINTABLE, WORD

SILENT_S = 20.0
"""Silence after which a run counts as dead: it reports every 5 s, and its lease lapses after 15 s."""


class Measuring(Frozen):
    """Progress report of a bench run."""

    run: str = Field(max_length=NAME, pattern=PRINTABLE)
    """Id of the run."""
    doing: str = Field(max_length=WORD, pattern=PRINTABLE)
    """launching, settling or measuring."""
    arm: str = Field(max_length=NAME, pattern=PRINTABLE)
    cell: str | None = Field(default=None, max_length=NAME, pattern=PRINTABLE)
    """Label of the cell, such as `ctx 2K x 150`; None while no cell is measured."""
    launch: int = Field(ge=0, le=COUNT)
    """Number of the launch, counted from 1."""
    launches: int = Field(ge=0, le=COUNT)
    done: int = Field(ge=0, le=COUNT)
    """Measured cells of all launches, out of `cells`."""
    cells: int = Field(ge=0, le=COUNT)
    share: float = Field(ge=0, le=1)
    """Share of all work, by tokens."""
    left_s: float | None = Field(default=None, ge=0)
    at: float = 0.0
    """Time of the report by the daemon's clock, Unix seconds."""
    ends: bool = False
    """Whether the run was asked to stop and will do so at its next report."""

    def lives(self, now: float) -> bool:
        """Whether the last report is recent enough at `now` (Unix seconds of the daemon)."""
        return now - self.at < SILENT_S

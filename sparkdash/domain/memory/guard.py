"""State of the memory guard: its floors, its level, and its kills.

Bytes and Unix seconds throughout. A level is named after the action of the guard.
Pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from sparkdash.domain.base import Frozen


class GuardLevel(StrEnum):
    """Shortage of memory, mildest first."""

    OK = "ok"
    WARN = "warn"
    HOLD = "hold"
    """No load begins."""
    KILL = "kill"
    """The engine that costs least is killed."""

    @property
    def rank(self) -> int:
        """Number of the level: 0 for ok, one more for each worse level."""
        return _ORDER.index(self)

    @property
    def worse(self) -> GuardLevel:
        """Next worse level; the worst returns itself."""
        return _ORDER[min(self.rank + 1, len(_ORDER) - 1)]


_ORDER = tuple(GuardLevel)


class Floors(Frozen):
    """Available memory under which each level begins; kill <= hold <= warn."""

    warn: int
    hold: int
    kill: int

    def level(self, available: int, margin: float = 1.0) -> GuardLevel:
        """Return the level at `available` bytes, with every floor multiplied by `margin`."""
        floors = ((GuardLevel.KILL, self.kill), (GuardLevel.HOLD, self.hold), (GuardLevel.WARN, self.warn))
        return next((level for level, floor in floors if available < floor * margin), GuardLevel.OK)

    def of(self, level: GuardLevel) -> int:
        """Return the floor of a level; 0 for ok, which has none."""
        return {GuardLevel.WARN: self.warn, GuardLevel.HOLD: self.hold, GuardLevel.KILL: self.kill}.get(level, 0)


class GuardKill(Frozen):
    """An engine that the guard killed."""

    at: float
    profile: str
    available: int
    """Available memory at that moment."""
    pressure: float | None = None
    """PSI "full avg10" at that moment, as a share of time; None where the kernel has no PSI."""
    processes: int = 0
    """Number of killed processes; 0 when none could be signalled and the runtime was asked instead."""
    reason: str
    """Explanation as one sentence."""


class Guard(Frozen):
    """State of the memory guard."""

    mode: Literal["off", "warn", "act"]
    floors: Floors | None = None
    """Floors; None when the guard is off."""
    level: GuardLevel = GuardLevel.OK
    since: float | None = None
    """Time of the last change of level; None before the first."""
    kills: tuple[GuardKill, ...] = ()
    """Last kills of this daemon's life, newest first."""

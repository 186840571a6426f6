"""Guard: what the memory guard watches for, where it stands, and what it has done.

Bytes and Unix seconds throughout. A level is named after what the guard does there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from sparkdash.domain.base import Frozen


class GuardLevel(StrEnum):
    """How short memory is, mildest first."""

    OK = "ok"
    WARN = "warn"
    HOLD = "hold"
    """No load begins."""
    KILL = "kill"
    """The engine that costs least is killed."""

    @property
    def rank(self) -> int:
        """0 for ok, and one more for each level worse."""
        return _ORDER.index(self)

    @property
    def worse(self) -> GuardLevel:
        """The next one; the worst stays what it is."""
        return _ORDER[min(self.rank + 1, len(_ORDER) - 1)]


_ORDER = tuple(GuardLevel)


class Floors(Frozen):
    """Available memory under which each level begins; kill <= hold <= warn."""

    warn: int
    hold: int
    kill: int

    def level(self, available: int, margin: float = 1.0) -> GuardLevel:
        """Where `available` bytes are, every floor taken `margin` times as high."""
        floors = ((GuardLevel.KILL, self.kill), (GuardLevel.HOLD, self.hold), (GuardLevel.WARN, self.warn))
        return next((level for level, floor in floors if available < floor * margin), GuardLevel.OK)

    def of(self, level: GuardLevel) -> int:
        """The floor of a level; 0 for ok, which has none."""
        return {GuardLevel.WARN: self.warn, GuardLevel.HOLD: self.hold, GuardLevel.KILL: self.kill}.get(level, 0)


class GuardKill(Frozen):
    """One engine that the guard killed."""

    at: float
    profile: str
    available: int
    """What was left at that moment."""
    pressure: float | None = None
    """PSI "full avg10" then, as a share of time; None where the kernel does not tell."""
    processes: int = 0
    """How many went; 0 when none could be signalled, and the runtime was asked instead."""
    reason: str
    """The whole sentence."""


class Guard(Frozen):
    """The guard as everybody sees it."""

    mode: Literal["off", "warn", "act"]
    floors: Floors | None = None
    """None when it is off."""
    level: GuardLevel = GuardLevel.OK
    since: float | None = None
    """When it entered this level; None before the first change."""
    kills: tuple[GuardKill, ...] = ()
    """The last ones of this daemon's life, newest first."""

"""Rules of the memory guards: when memory is too short, and what the end of an engine costs.

Standard library alone, Python 3.10: this box's guard runs this module, and `nodes.programs` ships it to the guards of
other boxes. `guard_decisions` has the sources of the figures and the promise that they keep. Pure.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import NamedTuple

OK, WARN, HOLD, KILL = range(4)
"""Levels of a shortage, mildest first."""
MIB = 1 << 20
EVERY_S = 0.5
"""Interval of looks."""
QUICK_S = 0.1
"""Interval of looks while memory falls below the hold floor."""
KILL_S = 0.2
"""Time for which killed processes may go on taking memory; assumed, and unverified on a GB10."""
REACH_S = QUICK_S + KILL_S
"""A fall that reaches the kill floor sooner demands a kill now: one after the next look would come too late."""
FALL_S = 0.2
"""Window of a fall's measurement: two quick looks. A longer one underrates a fall that has just begun; a shorter one
overrates a single allocation.
"""
SAMPLES = 2
"""Looks in a row below the kill floor before a kill while memory does not fall; one suffices below half of it."""
MARGIN = 1.1
"""Hysteresis: a level is left only above its floor times this factor."""
PRESSED = 0.10
"""Rising PSI "full avg10" (all processes waited for a tenth of the time) that makes each level one worse. Alone it
kills nothing, as reading weights through a full page cache raises it too.
"""
RISE = 0.02
ROSE_S = 4.0
"""Window of the rise; the kernel renews its averages every 2 s."""
OWED_S = 60.0
"""Wait for a killed engine's memory before the next kill; on a GB10 it has taken minutes."""
WORSE = 256 * MIB
"""Further fall since a kill that shows another program taking memory, and demands the next kill now."""


class Floors(NamedTuple):
    """Available memory in bytes under which each level begins."""

    warn: int
    hold: int
    kill: int


@dataclass(frozen=True)
class GuardReading:
    """Reading of available memory. `at` is monotonic seconds, `pressure` a share of time or None."""

    at: float
    available: int
    pressure: float | None = None


class Judgement(NamedTuple):
    """Meaning of a reading."""

    level: int
    pressed: bool
    """Whether rising pressure made the level one worse."""
    kill: bool
    fall: float = 0.0
    """Bytes a second by which available memory falls; 0 without a fall."""
    again_s: float = EVERY_S
    """Seconds until the next look."""


class Rules:
    """Judges readings in order. Not thread-safe: the guard's thread owns it."""

    def __init__(self, floors: Floors) -> None:
        self.floors = floors
        self.reset()

    def reset(self) -> None:
        """Forget earlier readings, after a time without engines."""
        self.level = OK
        self._seen: deque[GuardReading] = deque()
        """Readings of the last ROSE_S, and the one before them."""
        self._in_a_row = 0
        self._killed: GuardReading | None = None

    def see(self, look: GuardReading) -> Judgement:
        self._seen.append(look)
        pressed, fall = self._pressed(look), self._fall(look)
        found = _raised(self._level(look.available, 1.0), pressed)
        reaches = fall > 0 and (look.available - self.floors.kill) / fall < REACH_S
        close = found >= HOLD and fall > 0
        if close and reaches:
            found = KILL
        left = _raised(self._level(look.available, MARGIN), pressed)
        self.level = found if found >= self.level else min(left, self.level)
        if self.level < HOLD:
            self._killed = None
        kill = self._must_kill(found, look, reaches)
        return Judgement(self.level, pressed, kill, fall, QUICK_S if close else EVERY_S)

    def killed(self, look: GuardReading) -> None:
        """Note a kill at this reading, whose memory is still to come back."""
        self._killed, self._in_a_row = look, 0

    def _must_kill(self, found: int, look: GuardReading, reaches: bool) -> bool:
        """Decide on a kill. With `reaches`, the fall reaches the kill floor within REACH_S."""
        if found != KILL:
            self._in_a_row = 0
            return False
        self._in_a_row += 1
        enough = reaches or self._in_a_row >= SAMPLES or look.available < self.floors.kill / 2
        return enough and self._may_kill_again(look)

    def _may_kill_again(self, look: GuardReading) -> bool:
        before = self._killed
        if before is None:
            return True
        if look.at - before.at < EVERY_S:  # until it is dead, what was killed may go on
            self._killed = replace(before, available=min(before.available, look.available))
            return False
        return look.at - before.at >= OWED_S or look.available <= before.available - WORSE

    def _level(self, available: int, margin: float) -> int:
        floors = ((KILL, self.floors.kill), (HOLD, self.floors.hold), (WARN, self.floors.warn))
        return next((level for level, floor in floors if available < floor * margin), OK)

    def _pressed(self, look: GuardReading) -> bool:
        while len(self._seen) > 1 and look.at - self._seen[1].at >= ROSE_S:
            self._seen.popleft()
        before = self._seen[0].pressure
        if look.pressure is None or before is None:
            return False
        return look.pressure >= PRESSED and look.pressure - before >= RISE

    def _fall(self, look: GuardReading) -> float:
        """Fall in bytes a second; 0 without a fall or an earlier reading."""
        # nine tenths: threads wake a little early or late
        before = next((old for old in reversed(self._seen) if look.at - old.at >= 0.9 * FALL_S), self._seen[0])
        since = look.at - before.at
        return max(0.0, (before.available - look.available) / since) if since > 0 else 0.0


def kill_cost(
    *, serves: bool, pinned: bool, in_flight: int, size: int | None, reload_s: float | None, lacking: int
) -> tuple[bool, bool, bool, bool, float, int]:
    """Rank the end of an engine for `lacking` bytes; the smallest rank is killed.

    An engine that does not serve goes first: mostly it loads, and takes the memory. Then in this order: large enough
    before too small, not pinned before pinned, idle before busy, quick to restart before slow, large before small.
    """
    too_small = size is not None and size < lacking
    late = float("inf") if reload_s is None else reload_s
    return (serves, too_small, pinned, in_flight > 0, late, -(size or 0))


def _raised(level: int, pressed: bool) -> int:
    return min(level + 1, KILL) if pressed and level != OK else level

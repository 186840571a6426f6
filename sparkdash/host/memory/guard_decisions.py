"""Decisions of the memory guard: when memory is too short, and which engine to kill.

Sources: GB10 owners kill under 8 GiB (HF nvidia/GLM-5.3-Flash-FP4-Local discussion 7) or guard with 8 GiB during loads
(tonyd2wild's field report). A floor of 2 GiB killed an engine that was steady at 1.5-1.9 GiB (model-serving-minefield
134). Available memory was seen to fall by 17-19 GiB in 10 s. The defaults (12, 8 and 5 GiB) lie between. They and the
use of PSI are unverified on a GB10.

Promise, on a Spark's floors, for available memory that falls steadily from above the hold floor: at 3 GiB a second or
less it stays above the kill floor, at 8 above FROZEN. So an engine is killed once the observed fall reaches the kill
floor sooner than a kill after the next look would take effect. A faster fall is seen too late: only the admission
before each start protects against it.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from sparkdash.domain.memory import Floors, GuardLevel
from sparkdash.host.memory.wedge_signs import Wedge
from sparkdash.settings import Settings
from sparkdash.units import GIB, MIB

DEFAULTS = {"warn": (12 * GIB, 0.12), "hold": (8 * GIB, 0.08), "kill": (5 * GIB, 0.05)}
"""Each floor, and its largest share of the box, as a Spark's floors would block a small box."""
FROZEN = 2 * GIB
"""Available memory below which boxes froze: by their owners' reports 1.5 to 2 GiB are too few."""
EVERY_S = 0.5
"""Interval of looks."""
SLOW_S = 5.0
"""Longest interval of looks while nothing loads and the kernel reports pressure by itself."""
FASTEST = 8 * GIB
"""Bytes a second of the fastest fall that must be seen before the hold floor."""
PRESSED_S = 10.0
"""Time for which looks stay at EVERY_S after the kernel reported pressure."""
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


class GuardTarget(Protocol):
    """Handle by which an engine is killed."""

    def kill(self) -> int:
        """Send SIGKILL to all processes of the engine; return their number."""
        ...


@dataclass(frozen=True, slots=True)
class GuardReading:
    """Reading of available memory. `at` is monotonic seconds, `pressure` a share of time or None."""

    at: float
    available: int
    pressure: float | None = None


@dataclass(frozen=True, slots=True)
class Victim:
    """Engine that may be killed, with the cost of that and the `target` to do it."""

    profile: str
    container: str
    target: GuardTarget
    serves: bool = True
    """False while the engine loads, and after a failure to stop."""
    loads: bool = False
    """Whether the engine is starting."""
    pinned: bool = False
    in_flight: int = 0
    bytes: int | None = None
    """Estimate of its memory; None if unknown."""
    reload_s: float | None = None
    """Time of a restart; None if unknown, which counts as long."""


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """Meaning of one reading."""

    level: GuardLevel
    pressed: bool
    """Whether rising pressure made the level one worse."""
    kill: bool
    fall: float = 0.0
    """Bytes a second by which available memory falls; 0 without a fall."""
    again_s: float = EVERY_S
    """Seconds until the next look."""


@dataclass(frozen=True, slots=True)
class GuardReport:
    """Report of the guard: a changed level, a kill, or a failed look."""

    look: GuardReading
    verdict: GuardVerdict
    killed: Victim | None = None
    processes: int | None = None
    """Killed processes; 0 if none could be signalled, None before the kill."""
    wedge: Wedge | None = None
    """Sign for which a load is stopped; None if memory itself is short."""
    blocks: int | None = None
    """Free blocks of 32 MiB at a sign; None if unknown."""
    error: str | None = None
    """Reason of a failed look or kill; reported once for each reason."""


def choose_floors(settings: Settings, total: int) -> Floors:
    """Choose the floors for a box of `total` bytes; the owner's values count, and raise milder floors if needed."""
    given = {"warn": settings.guard_warn_gib, "hold": settings.guard_hold_gib, "kill": settings.guard_kill_gib}
    found = {
        name: int(own * GIB) if (own := given[name]) is not None else min(default, int(total * share))
        for name, (default, share) in DEFAULTS.items()
    }
    hold = max(found["hold"], found["kill"])
    return Floors(warn=max(found["warn"], hold), hold=hold, kill=found["kill"])


class GuardJudge:
    """Judges readings in order. Not thread-safe: the guard's thread owns it."""

    def __init__(self, floors: Floors) -> None:
        self.floors = floors
        self.reset()

    def reset(self) -> None:
        """Forget earlier readings, after a time without engines."""
        self.level = GuardLevel.OK
        self._seen: deque[GuardReading] = deque()
        """Readings of the last ROSE_S, and the one before them."""
        self._in_a_row = 0
        self._killed: GuardReading | None = None

    def see(self, look: GuardReading) -> GuardVerdict:
        """Judge this reading after the earlier ones."""
        self._seen.append(look)
        pressed, fall = self._pressed(look), self._fall(look)
        found = _raised(self.floors.level(look.available), pressed)
        reaches = bool(fall) and (look.available - self.floors.kill) / fall < REACH_S
        close = found.rank >= GuardLevel.HOLD.rank and fall > 0
        if close and reaches:
            found = GuardLevel.KILL
        self.level = self._settled(found, look, pressed)
        if self.level.rank < GuardLevel.HOLD.rank:
            self._killed = None
        kill = self._must_kill(found, look, reaches=reaches)
        return GuardVerdict(self.level, pressed, kill, fall, QUICK_S if close else EVERY_S)

    def killed(self, look: GuardReading) -> None:
        """Note a kill at this reading, whose memory is still to come back."""
        self._killed, self._in_a_row = look, 0

    def _must_kill(self, found: GuardLevel, look: GuardReading, *, reaches: bool) -> bool:
        """Decide on a kill. With `reaches`, the fall reaches the kill floor within REACH_S."""
        if found is not GuardLevel.KILL:
            self._in_a_row = 0
            return False
        self._in_a_row += 1
        enough = reaches or self._in_a_row >= SAMPLES or look.available < self.floors.kill / 2
        return enough and self._may_kill_again(look)

    def _settled(self, found: GuardLevel, look: GuardReading, pressed: bool) -> GuardLevel:
        if found.rank >= self.level.rank:
            return found
        left = _raised(self.floors.level(look.available, MARGIN), pressed)
        return left if left.rank < self.level.rank else self.level

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

    def _may_kill_again(self, look: GuardReading) -> bool:
        before = self._killed
        if before is None:
            return True
        if look.at - before.at < EVERY_S:  # until it is dead, what was killed may go on
            self._killed = replace(before, available=min(before.available, look.available))
            return False
        return look.at - before.at >= OWED_S or look.available <= before.available - WORSE


def pause(verdict: GuardVerdict, look: GuardReading, floors: Floors) -> float:
    """Seconds until the next look while nothing loads and the kernel has reported no pressure lately.

    As long as the fastest fall takes to the hold floor, so that it is seen as early as with EVERY_S.
    """
    if verdict.level is not GuardLevel.OK:
        return verdict.again_s
    return max(EVERY_S, min(SLOW_S, (look.available - floors.hold) / FASTEST))


def _raised(level: GuardLevel, pressed: bool) -> GuardLevel:
    return level.worse if pressed and level is not GuardLevel.OK else level


def cheapest_victim(victims: Iterable[Victim], lacking: int) -> Victim | None:
    """Choose the engine to kill for `lacking` bytes; None without engines.

    An engine that does not serve goes first: mostly it loads, and takes the memory. Then in this order: large enough
    before too small, not pinned before pinned, idle before busy, quick to restart before slow, large before small.
    """
    return min(victims, key=lambda victim: _cost(victim, lacking), default=None)


def _cost(victim: Victim, lacking: int) -> tuple[bool, bool, bool, bool, float, int]:
    late = float("inf") if victim.reload_s is None else victim.reload_s
    too_small = victim.bytes is not None and victim.bytes < lacking
    return (victim.serves, too_small, victim.pinned, victim.in_flight > 0, late, -(victim.bytes or 0))

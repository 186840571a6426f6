"""PURE: when memory is too short, and which engine goes.

Owns: the floors of a box, the level that a look at memory means, when to kill and whom. Must not know how memory is
read, how an engine is killed, or what a thread is.

Sources: GB10 owners kill under 8 GiB (HF nvidia/GLM-5.3-Flash-FP4-Local discussion 7) or guard with 8 GiB during loads
(tonyd2wild's field report), and a floor of 2 GiB killed an engine that was steady at 1.5-1.9 GiB (model-serving-minefield
134); available memory was seen to fall by 17-19 GiB in 10 s. The defaults (12, 8 and 5 GiB) lie between and are
unverified on a GB10, and so is the part of PSI.

What is promised, on a Spark's floors: available memory that falls steadily, and begins to fall above the hold floor, does not
come under the kill floor when it loses 3 GiB a second or less, and not under FROZEN when it loses 8. So an engine goes once
the fall that was seen reaches the kill floor sooner than a kill after the next look would take hold. What takes more than
that between two looks is seen afterwards: against that there is only the admission before each start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from sparkdash.domain.memory.guard import Floors, GuardLevel
from sparkdash.host.memory_guard.wedge_signs import Wedge
from sparkdash.settings import Settings
from sparkdash.units import GIB, MIB

DEFAULTS = {"warn": (12 * GIB, 0.12), "hold": (8 * GIB, 0.08), "kill": (5 * GIB, 0.05)}
"""Each floor, and the share of the box that it takes at most: a small box must not stand still for a Spark's floors."""
FROZEN = 2 * GIB
"""Boxes were seen to stand still with less available: owners' 1.5 to 2 GiB are "too few". What must never be crossed."""
EVERY_S = 0.5
"""Between two looks."""
SLOW_S = 5.0
"""The longest between two looks while nothing loads and the kernel itself would tell of pressure."""
FASTEST = 8 * GIB
"""Bytes a second of the quickest fall that is still seen before the hold floor, however long ago the last look was."""
PRESSED_S = 10.0
"""How long looks stay at EVERY_S after the kernel told of pressure."""
QUICK_S = 0.1
"""Between two looks while memory falls under the hold floor."""
KILL_S = 0.2
"""How long killed processes may go on taking memory; assumed, and unverified on a GB10."""
REACH_S = QUICK_S + KILL_S
"""A fall that reaches the kill floor in less is not waited for: a kill after the next look would come too late."""
FALL_S = 0.2
"""Over which a fall is measured: two quick looks. Longer, and a fall that has just begun looks slower than it is; shorter, and
one allocation looks like a landslide."""
SAMPLES = 2
"""Looks in a row under the kill floor before an engine goes while memory does not fall; one is enough under half of it."""
MARGIN = 1.1
"""A level is left only when this much more than its floor is there, so that it does not flap."""
PRESSED = 0.10
"""PSI "full avg10" from which each floor counts as the next one, if it also rises: all processes stood still for memory
for a tenth of the time. Alone it kills nobody: reading weights through a full page cache raises it too."""
RISE = 0.02
ROSE_S = 4.0
"""Over which pressure must have risen; the kernel renews its averages every 2 s."""
OWED_S = 60.0
"""How long a killed engine's memory may take to come back (on a GB10 it has been minutes) before the next one goes."""
WORSE = 256 * MIB
"""Falling by this much below what there was at the kill means that somebody else takes memory: the next one goes now."""


class GuardTarget(Protocol):
    """How an engine is killed."""

    def kill(self) -> int:
        """SIGKILL to all of it; how many processes go."""
        ...


@dataclass(frozen=True, slots=True)
class GuardReading:
    """One look at memory. `at` is monotonic seconds, `pressure` a share of time or None."""

    at: float
    available: int
    pressure: float | None = None


@dataclass(frozen=True, slots=True)
class Victim:
    """An engine that may be killed, and what that would cost. `target` is how."""

    profile: str
    container: str
    target: GuardTarget
    serves: bool = True
    """False while it loads, and when it failed and would not stop."""
    loads: bool = False
    """It is coming up."""
    pinned: bool = False
    in_flight: int = 0
    bytes: int | None = None
    """What it is thought to hold; None is unknown."""
    reload_s: float | None = None
    """How long it takes to come back; None is unknown, and counts as long."""


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """What a look means."""

    level: GuardLevel
    pressed: bool
    """Rising pressure made it one level worse than memory alone."""
    kill: bool
    fall: float = 0.0
    """Bytes a second by which available memory fell of late; 0 when it did not."""
    again_s: float = EVERY_S
    """When to look again."""


@dataclass(frozen=True, slots=True)
class GuardReport:
    """What the guard has to tell: a level that changed, a kill, or that it could not look."""

    look: GuardReading
    verdict: GuardVerdict
    killed: Victim | None = None
    processes: int | None = None
    """How many went with it; 0 when none could be signalled, None before the kill."""
    wedge: Wedge | None = None
    """The sign on which a load is stopped; None: memory itself is short."""
    blocks: int | None = None
    """Free blocks of 32 MiB at a sign; None: not looked at, or not known."""
    error: str | None = None
    """Why it could not look or kill; told once for each reason."""


def floors(settings: Settings, total: int) -> Floors:
    """The floors for a box of `total` bytes. One that the owner sets counts as it is, and no milder one lies under it."""
    given = {"warn": settings.guard_warn_gib, "hold": settings.guard_hold_gib, "kill": settings.guard_kill_gib}
    found = {
        name: int(own * GIB) if (own := given[name]) is not None else min(default, int(total * share))
        for name, (default, share) in DEFAULTS.items()
    }
    hold = max(found["hold"], found["kill"])
    return Floors(warn=max(found["warn"], hold), hold=hold, kill=found["kill"])


class GuardJudge:
    """Judges one look after another. Not thread-safe: the guard's thread owns it."""

    def __init__(self, floors: Floors) -> None:
        self.floors = floors
        self.reset()

    def reset(self) -> None:
        """Nothing was watched for a while: what was seen before it says nothing any more."""
        self.level = GuardLevel.OK
        self._seen: deque[GuardReading] = deque()
        """The looks of the last ROSE_S, and the one before them."""
        self._in_a_row = 0
        self._killed: GuardReading | None = None

    def see(self, look: GuardReading) -> GuardVerdict:
        """What this look means, after those before it."""
        self._seen.append(look)
        pressed, fall = self._pressed(look), self._fall(look)
        found = _raised(self.floors.level(look.available), pressed)
        left_s = (look.available - self.floors.kill) / fall if fall else float("inf")
        close = found.rank >= GuardLevel.HOLD.rank and fall > 0
        if close and left_s < REACH_S:
            found = GuardLevel.KILL
        self.level = self._settled(found, look, pressed)
        critical = found is GuardLevel.KILL
        self._in_a_row = self._in_a_row + 1 if critical else 0
        if self.level.rank < GuardLevel.HOLD.rank:
            self._killed = None
        enough = left_s < REACH_S or self._in_a_row >= SAMPLES or look.available < self.floors.kill / 2
        kill = critical and enough and self._may_kill_again(look)
        return GuardVerdict(self.level, pressed, kill, fall, QUICK_S if close else EVERY_S)

    def killed(self, look: GuardReading) -> None:
        """An engine was killed at this look; its memory is owed."""
        self._killed, self._in_a_row = look, 0

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
        """Bytes a second; 0 when it does not fall, or nothing was seen before."""
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
    """Seconds until the next look where nothing loads, the kernel tells of pressure, and it has told of none of late.

    As long as the quickest fall takes to the hold floor: from there on nothing is seen later than with EVERY_S.
    """
    if verdict.level is not GuardLevel.OK:
        return verdict.again_s
    return max(EVERY_S, min(SLOW_S, (look.available - floors.hold) / FASTEST))


def _raised(level: GuardLevel, pressed: bool) -> GuardLevel:
    return level.worse if pressed and level is not GuardLevel.OK else level


def cheapest(victims: Iterable[Victim], lacking: int) -> Victim | None:
    """Whom to kill to win `lacking` bytes; None when there is nobody.

    One that serves nobody goes first: most often it loads, and then it is what takes memory. Then one that gives enough before one
    that does not, not pinned before pinned, idle before busy, soon back before late, big before small.
    """
    return min(victims, key=lambda victim: _cost(victim, lacking), default=None)


def _cost(victim: Victim, lacking: int) -> tuple[bool, bool, bool, bool, float, int]:
    late = float("inf") if victim.reload_s is None else victim.reload_s
    too_small = victim.bytes is not None and victim.bytes < lacking
    return (victim.serves, too_small, victim.pinned, victim.in_flight > 0, late, -(victim.bytes or 0))

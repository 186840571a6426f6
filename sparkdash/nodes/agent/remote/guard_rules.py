"""Rules of a node's memory guard: when memory is too short, and which engine to kill.

Owns: the rules of `host.memory.guard_decisions`, stated once more for a script that runs without this project. All
figures come from there, as the guard's lease; a test compares every decision of the two. Must not know how memory is
read or an engine killed. Runs on nodes: see `remote`.

Pure.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

OK, WARN, HOLD, KILL = range(4)


class Look(NamedTuple):
    """Reading of available memory. `at` is seconds, `pressure` a share of time or None."""

    at: float
    available: int
    pressure: float | None


class Judgement(NamedTuple):
    """Meaning of a look: whether to kill now, the fall in bytes a second, and seconds until the next look."""

    level: int
    kill: bool
    fall: float
    again_s: float


class Rules:
    """Judges looks in order. `figures` are the constants of the local guard by name, `floors` its floors in bytes."""

    def __init__(self, floors: dict[str, int], figures: dict[str, float]) -> None:
        self.floors, self.figures = floors, figures
        self.reset()

    def reset(self) -> None:
        """Forget earlier looks, after a time without engines."""
        self.level = OK
        self._seen: deque[Look] = deque()
        self._in_a_row = 0
        self._killed: Look | None = None

    def see(self, look: Look) -> Judgement:
        """Judge this look after the earlier ones."""
        figures = self.figures
        self._seen.append(look)
        pressed, fall = self._pressed(look), self._fall(look)
        found = _raised(self._floor_level(look.available, 1.0), pressed)
        reaches = fall > 0 and (look.available - self.floors["kill"]) / fall < figures["REACH_S"]
        close = found >= HOLD and fall > 0
        if close and reaches:
            found = KILL
        left = _raised(self._floor_level(look.available, figures["MARGIN"]), pressed)
        self.level = found if found >= self.level else min(left, self.level)
        if self.level < HOLD:
            self._killed = None
        kill = self._must_kill(found, look, reaches)
        return Judgement(self.level, kill, fall, figures["QUICK_S"] if close else figures["EVERY_S"])

    def killed(self, look: Look) -> None:
        """Note a kill at this look, whose memory is still to come back."""
        self._killed, self._in_a_row = look, 0

    def _must_kill(self, found: int, look: Look, reaches: bool) -> bool:
        if found != KILL:
            self._in_a_row = 0
            return False
        self._in_a_row += 1
        enough = reaches or self._in_a_row >= self.figures["SAMPLES"] or look.available < self.floors["kill"] / 2
        return enough and self._may_kill_again(look)

    def _may_kill_again(self, look: Look) -> bool:
        before = self._killed
        if before is None:
            return True
        if look.at - before.at < self.figures["EVERY_S"]:
            self._killed = before._replace(available=min(before.available, look.available))
            return False
        late = look.at - before.at >= self.figures["OWED_S"]
        return late or look.available <= before.available - self.figures["WORSE"]

    def _floor_level(self, available: int, margin: float) -> int:
        for level, name in ((KILL, "kill"), (HOLD, "hold"), (WARN, "warn")):
            if available < self.floors[name] * margin:
                return level
        return OK

    def _pressed(self, look: Look) -> bool:
        figures = self.figures
        while len(self._seen) > 1 and look.at - self._seen[1].at >= figures["ROSE_S"]:
            self._seen.popleft()
        before = self._seen[0].pressure
        if look.pressure is None or before is None:
            return False
        return look.pressure >= figures["PRESSED"] and look.pressure - before >= figures["RISE"]

    def _fall(self, look: Look) -> float:
        least = 0.9 * self.figures["FALL_S"]
        before = next((old for old in reversed(self._seen) if look.at - old.at >= least), self._seen[0])
        since = look.at - before.at
        return max(0.0, (before.available - look.available) / since) if since > 0 else 0.0


class KillCandidate(NamedTuple):
    """Container that may be killed, with what the daemon last said of it ({} if nothing)."""

    container: str
    known: dict[str, Any]
    resident: int
    """Host memory of its processes, seen here."""
    start: int
    """Start of its first process in clock ticks since boot."""


def worst(candidates: Iterable[KillCandidate], lacking: int) -> KillCandidate | None:
    """Choose the container to kill for `lacking` bytes, as `cheapest_victim` does; None without candidates.

    A container that the daemon has not named was started last, and counts as one that loads. Of equal ones the
    youngest goes first.
    """
    return min(candidates, key=lambda each: _cost(each, lacking), default=None)


def _cost(each: KillCandidate, lacking: int) -> tuple[bool, bool, bool, bool, float, float, int]:
    known = each.known
    told = known.get("bytes")
    size = told if isinstance(told, int) else None
    reload_s = known.get("reload_s")
    return (
        bool(known.get("serves", False)),
        size is not None and size < lacking,
        bool(known.get("pinned", False)),
        int(known.get("in_flight") or 0) > 0,
        float("inf") if reload_s is None else float(reload_s),
        -(size or 0),
        -each.start,
    )


def _raised(level: int, pressed: bool) -> int:
    return min(level + 1, KILL) if pressed and level != OK else level

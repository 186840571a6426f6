"""PURE: signs that a box is about to stand still while an engine loads, with memory still available.

Owns: what each sign is, and its thresholds. Must not know how figures are read, or what is done about a sign.

Available memory alone does not announce a wedge, and neither does any one figure beside it:
* RECLAIM: the kernel looks at pages and wins hardly any. 97 pages were looked at for each one won in the 232 s before a
  GB10 wedged, and 1.07 over the 22 h before (MiaAI-Lab/DeepSeek-v4.1-Flash-DGX-Sparks#23). The kernel's own word for 20
  is "critical" (95 % of what was looked at was not won; mm/vmpressure.c), twice the geometric mean of the two.
* DRIVER: the driver was refused memory while what is available falls. Alone its line means nothing (vllm#56824 has ten,
  and healthy starts too); there MemAvailable fell by 22.7 GiB in 11 s beside them.
* LIVELOCK: hardly any memory free, nothing read, no page fault and not a line in the log, for minutes. A load by mmap of
  90 GB stood so for 80 min (vllm PR 53906). A compiler is as silent, and causes page faults by the ten thousands.
* None of them: 1.2 to 1.5 GiB free for 5 s with 7 GiB available and no line was healthy
  (MiaAI-Lab/Qwen3.8-Flash-Next-Single-DGX-Spark PR 54); so little free memory needs witnesses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from sparkdash.units import GIB, MIB, duration, gib, size

CRITICAL = 20.0
"""Pages that were looked at for each one won."""
HALF_S = 15.0
"""The ratio must be critical over two such times in a row: reading through a full page cache raises it for seconds."""
PAGES = 16_384
"""Looked at in each of them, for the ratio to mean anything."""
APART_S = 0.9
"""Between two looks that are remembered; only they are compared with."""
LINE_S = 60.0
"""How long a line of the driver counts."""
FALL_S = 5.0
FALLEN = GIB
"""By how much available memory must have fallen over FALL_S: its own noise there is 107 MiB, with spikes."""
SILENT_S = 300.0
SCARCE = GIB
"""Free memory under which a load may be in a livelock."""
READ = 64 * MIB
"""Bytes that a box reads in SILENT_S beside a load that stands still. The slowest disk that was reported reads 36 MB a second."""
TAKEN = GIB // 2
"""Available memory that a load takes and one in a livelock does not: weights that come over a network count as no read."""
FAULTS = 1000.0
"""Page faults a second of a box on which no program gets on."""


class Sign(StrEnum):
    """What announces a wedge."""

    RECLAIM = "reclaim"
    DRIVER = "driver"
    LIVELOCK = "livelock"


@dataclass(frozen=True, slots=True)
class Vitals:
    """The kernel's figures at one moment of a load; counts since boot. None is what it does not tell."""

    at: float
    """Monotonic seconds."""
    available: int
    free: int | None = None
    scanned: int | None = None
    """Pages that were looked at to be taken back."""
    reclaimed: int | None = None
    """Pages of them that were."""
    stalls: int | None = None
    """How often a program had to take pages back itself before it got one."""
    read_bytes: int | None = None
    faults: int | None = None
    driver_lines: int = 0
    """Lines since the load began in which the driver was refused memory."""
    said_at: float | None = None
    """When a load last wrote a line, monotonic seconds; None: not known."""


@dataclass(frozen=True, slots=True)
class Wedge:
    """A sign, with its figures in words."""

    sign: Sign
    evidence: str


class Signs:
    """Sees the vitals of a load one after another. Not thread-safe: the guard's thread owns it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Another load: what was seen before says nothing any more."""
        self._past: deque[Vitals] = deque()
        """About one a second, over 2 * HALF_S and the one before."""
        self._lines: deque[tuple[float, int]] = deque()
        """When the driver's lines became more, and by how many."""
        self._last_lines: int | None = None
        self._scarce_from: Vitals | None = None

    def see(self, now: Vitals, low: int) -> Wedge | None:
        """The sign that this look completes, if any. Under `low` bytes available memory is short."""
        if not self._past or now.at - self._past[-1].at >= APART_S:
            self._past.append(now)
        while len(self._past) > 2 and now.at - self._past[1].at >= 2 * HALF_S:
            self._past.popleft()
        return self._driver(now, low) or self._reclaim(now) or self._livelock(now)

    def _before(self, now: Vitals, seconds: float) -> Vitals | None:
        """The newest look that is at least so old; nine tenths of it, as threads wake early or late."""
        return next((old for old in reversed(self._past) if now.at - old.at >= 0.9 * seconds), None)

    def _driver(self, now: Vitals, low: int) -> Wedge | None:
        last = self._last_lines or 0
        new = now.driver_lines - (last if now.driver_lines >= last else 0)  # another load counts from 0
        self._last_lines = now.driver_lines
        if new > 0:
            self._lines.append((now.at, new))
        while self._lines and now.at - self._lines[0][0] > LINE_S:
            self._lines.popleft()
        before = self._before(now, FALL_S)
        if not self._lines or before is None or now.available >= low:
            return None
        fallen = before.available - now.available
        if fallen < FALLEN:
            return None
        count = sum(number for _, number in self._lines)
        lines = "1 line" if count == 1 else f"{count} lines"
        return Wedge(
            Sign.DRIVER,
            f"the driver was refused memory ({lines} in the kernel's log within {duration(LINE_S)}) while "
            f"{gib(now.available)} were available and {gib(fallen)} went in {duration(now.at - before.at)}",
        )

    def _reclaim(self, now: Vitals) -> Wedge | None:
        middle, first = self._before(now, HALF_S), self._before(now, 2 * HALF_S)
        if middle is None or first is None:
            return None
        ratios = [_ratio(first, middle), _ratio(middle, now)]
        waited = now.stalls is None or first.stalls is None or now.stalls > first.stalls
        if not waited or any(ratio is None or ratio < CRITICAL for ratio in ratios):
            return None
        whole = _ratio(first, now)
        about = "none of the pages that it looked at" if whole == float("inf") else f"one page of {whole:.0f}"
        return Wedge(Sign.RECLAIM, f"the kernel won back {about} in the last {duration(now.at - first.at)}")

    def _livelock(self, now: Vitals) -> Wedge | None:
        start = self._scarce_from
        if now.free is None or now.read_bytes is None or now.faults is None or now.free >= SCARCE:
            self._scarce_from = None
            return None
        if start is None or start.read_bytes is None or start.faults is None or _moved(start, now):
            self._scarce_from = now
            return None
        lasted = now.at - start.at
        if lasted < SILENT_S or now.said_at is None or now.at - now.said_at < SILENT_S:
            return None
        return Wedge(
            Sign.LIVELOCK,
            f"{size(now.free)} were free, and for {duration(lasted)} nothing was read, no program got a page, and no line was logged",
        )


def _ratio(before: Vitals, now: Vitals) -> float | None:
    """Pages looked at for each one won; None where that is not told, or too few were looked at."""
    if None in (before.scanned, before.reclaimed, now.scanned, now.reclaimed):
        return None
    scanned, reclaimed = (now.scanned or 0) - (before.scanned or 0), (now.reclaimed or 0) - (before.reclaimed or 0)
    if scanned < PAGES:
        return None
    return scanned / reclaimed if reclaimed > 0 else float("inf")


def _moved(start: Vitals, now: Vitals) -> bool:
    """Whether the box has read, or its programs got on, since `start`; a little of both is always there."""
    allowed = FAULTS * max(now.at - start.at, 10.0)
    if start.available - now.available >= TAKEN:
        return True
    return (now.read_bytes or 0) - (start.read_bytes or 0) >= READ or (now.faults or 0) - (start.faults or 0) >= allowed

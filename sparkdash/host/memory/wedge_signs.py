"""Signs that a box is about to freeze while an engine loads, with memory still available.

Available memory alone does not announce a freeze ("wedge"), and neither does any other single figure:
* RECLAIM: the kernel scans pages and reclaims hardly any. It scanned 97 pages for each reclaimed one in the 232 s
  before a GB10 froze, and 1.07 over the 22 h before (MiaAI-Lab/DeepSeek-v4.1-Flash-DGX-Sparks#23). The kernel itself
  calls 20 "critical" (95 % of the scanned pages were not reclaimed; mm/vmpressure.c), twice the geometric mean of the
  two.
* DRIVER: the driver was refused memory while available memory falls. Its log line alone means nothing (vllm#56824 has
  ten, and healthy starts have some too); there MemAvailable fell by 22.7 GiB in 11 s at the same time.
* LIVELOCK: hardly any free memory, no read, no page fault and no line in the log, for minutes. A load by mmap of 90 GB
  stood so for 80 min (vllm PR 53906). A compiler is as silent, but causes tens of thousands of page faults.
* None of them: 1.2 to 1.5 GiB free for 5 s with 7 GiB available and no line was healthy
  (MiaAI-Lab/Qwen3.8-Flash-Next-Single-DGX-Spark PR 54), so little free memory alone is no sign. Pure.
"""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from sparkdash.units import GIB, MIB, duration, gib, size

CRITICAL = 20.0
"""Scanned pages for each reclaimed one."""
HALF_S = 15.0
"""Half of the time for which the ratio must be critical: reading through a full page cache raises it for seconds."""
PAGES = 16_384
"""Least scanned pages in each half, for a meaningful ratio."""
APART_S = 0.9
"""Least interval of the readings that are kept for comparison."""
LINE_S = 60.0
"""Time for which a line of the driver counts."""
FALL_S = 5.0
FALLEN = GIB
"""Least fall of available memory over FALL_S: its noise is 107 MiB, with spikes."""
SILENT_S = 300.0
SCARCE = GIB
"""Free memory under which a load may be in a livelock."""
READ = 64 * MIB
"""Bytes that a box may read in SILENT_S during a livelock. The slowest reported disk reads 36 MB a second."""
TAKEN = GIB // 2
"""Least memory taken by a load that makes progress, as weights from a network count as no read."""
FAULTS = 1000.0
"""Most page faults a second during a livelock."""


class Sign(StrEnum):
    """Sign of a coming freeze."""

    RECLAIM = "reclaim"
    DRIVER = "driver"
    LIVELOCK = "livelock"


@dataclass(frozen=True, slots=True)
class Vitals:
    """Kernel figures at one moment of a load; counts since boot, None if not reported."""

    at: float
    """Monotonic seconds."""
    available: int
    free: int | None = None
    scanned: int | None = None
    """Pages scanned for reclaim."""
    reclaimed: int | None = None
    """Pages reclaimed."""
    stalls: int | None = None
    """Times that a program had to reclaim pages itself."""
    read_bytes: int | None = None
    faults: int | None = None
    driver_lines: int = 0
    """Log lines since the start of the load in which the driver was refused memory."""
    said_at: float | None = None
    """Monotonic seconds of the last log line of a load; None if unknown."""


@dataclass(frozen=True, slots=True)
class Wedge:
    """Observed sign, with its figures in words."""

    sign: Sign
    evidence: str


class Signs:
    """Detects signs in the vitals of a load. Not thread-safe: the guard's thread owns it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._past: deque[Vitals] = deque()
        """Vitals about once a second, over 2 * HALF_S and the one before."""
        self._lines: deque[tuple[float, int]] = deque()
        """Times and counts of new lines of the driver."""
        self._last_lines: int | None = None
        self._scarce_from: Vitals | None = None

    def see(self, now: Vitals, low: int) -> Wedge | None:
        """Return the sign that these vitals complete, if any. Available memory is short below `low` bytes."""
        if not self._past or now.at - self._past[-1].at >= APART_S:
            self._past.append(now)
        while len(self._past) > 2 and now.at - self._past[1].at >= 2 * HALF_S:
            self._past.popleft()
        return self._driver(now, low) or self._reclaim(now) or self._livelock(now)

    def _before(self, now: Vitals, seconds: float) -> Vitals | None:
        """Find the newest vitals of at least nine tenths of this age, as threads wake early or late."""
        return next((old for old in reversed(self._past) if now.at - old.at >= 0.9 * seconds), None)

    def _driver(self, now: Vitals, low: int) -> Wedge | None:
        self._note_driver_lines(now)
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

    def _note_driver_lines(self, now: Vitals) -> None:
        """Note new lines of the driver, and forget those older than LINE_S."""
        last = self._last_lines or 0
        new = now.driver_lines - (last if now.driver_lines >= last else 0)  # another load counts from 0
        self._last_lines = now.driver_lines
        if new > 0:
            self._lines.append((now.at, new))
        while self._lines and now.at - self._lines[0][0] > LINE_S:
            self._lines.popleft()

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
        if now.free is None or now.read_bytes is None or now.faults is None or now.free >= SCARCE:
            self._scarce_from = None
            return None
        if self._scarce_from is None or _moved(self._scarce_from, now):
            self._scarce_from = now
        lasted = now.at - self._scarce_from.at
        if lasted < SILENT_S or now.said_at is None or now.at - now.said_at < SILENT_S:
            return None
        return Wedge(
            Sign.LIVELOCK,
            f"{size(now.free)} were free, and for {duration(lasted)} nothing was read, no program got a page, "
            "and no line was logged",
        )


def _ratio(before: Vitals, now: Vitals) -> float | None:
    """Scanned pages for each reclaimed one; None if not reported, or if too few were scanned."""
    if None in (before.scanned, before.reclaimed, now.scanned, now.reclaimed):
        return None
    scanned, reclaimed = (now.scanned or 0) - (before.scanned or 0), (now.reclaimed or 0) - (before.reclaimed or 0)
    if scanned < PAGES:
        return None
    return scanned / reclaimed if reclaimed > 0 else float("inf")


def _moved(start: Vitals, now: Vitals) -> bool:
    """Whether the box has read more, or its programs have progressed more, than a livelock would allow."""
    allowed = FAULTS * max(now.at - start.at, 10.0)
    if start.available - now.available >= TAKEN:
        return True
    return (now.read_bytes or 0) - (start.read_bytes or 0) >= READ or (now.faults or 0) - (start.faults or 0) >= allowed

"""Recent figures of each engine, for the sparklines.

Rule: buckets stand at fixed times, so that a bar keeps its height once the next one has begun. Pure.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkdash.domain.metric import Gpu, Memory, Metric, Sample
from sparkdash.domain.node import LOCAL
from sparkdash.tui.choices import farthest

if TYPE_CHECKING:
    from sparkdash.domain.history import RecentFigures

STEP_S = 2.0
"""Seconds of one bar: the 30 bars that fit beside the figures at 80 columns show a minute."""
KEPT = 600
"""Buckets of a ring: twenty minutes fill the widest chart, which has two buckets per cell."""
MEMORY_STEP_S = 5.0
MEMORY_KEPT = 360
"""Half an hour."""
SHOWN = (Metric.DECODE, Metric.DECODE_EACH, Metric.PROMPT_SPEED, Metric.PREFIX_HIT, Metric.KV_USED)
BOX_MEMORY = ("memory_available_bytes", "memory_free_bytes", "page_cache_bytes")
"""Recorded figures of a box from which its memory is drawn."""

BOX_CHARTED = ("gpu_power_w", "gpu_clock_mhz")


class BucketRing:
    """Ring of a figure's buckets of STEP_S each; None where nothing was measured.

    A bucket is drawn by its extreme that lies farther from the bucket before, so that a spike of one second survives.
    """

    def __init__(self) -> None:
        self._buckets: deque[tuple[int, float, float, float]] = deque(maxlen=KEPT)
        """Number, lowest and highest value of each bucket, and the one that is drawn."""

    def add(self, at: float, value: float) -> None:
        index, low, high = int(at // STEP_S), value, value
        if self._buckets and self._buckets[-1][0] >= index:
            index, low, high, _ = self._buckets.pop()
            low, high = min(low, value), max(high, value)
        self._append(index, low, high)

    def _append(self, index: int, low: float, high: float) -> None:
        before = self._buckets[-1] if self._buckets else (0, 0.0, 0.0, 0.0)
        drawn = farthest(before[3] if before[0] == index - 1 else None, low, high)
        self._buckets.append((index, low, high, drawn))

    def recall(self, begin: int, means: Sequence[float | None]) -> None:
        """Put recorded means where none were seen; the first is of bucket `begin`."""
        recorded = {index: (mean, mean) for index, mean in enumerate(means, begin) if mean is not None}
        known = recorded | {index: (low, high) for index, low, high, _ in self._buckets}
        self._buckets.clear()
        for index in sorted(known):
            self._append(index, *known[index])

    def last(self, count: int, now: float) -> list[float | None]:
        """Return the `count` buckets up to the one that contains `now`, oldest first."""
        end = int(now // STEP_S)
        known = {index: drawn for index, _, _, drawn in self._buckets}
        return [known.get(index) for index in range(end - count + 1, end + 1)]


class FigureHistory:
    """Rings by engine, "" for the box, and figure."""

    def __init__(self) -> None:
        self._rings: defaultdict[tuple[str, str], BucketRing] = defaultdict(BucketRing)
        self._at: dict[str, float] = {}
        self._memory: deque[tuple[int, Memory]] = deque(maxlen=MEMORY_KEPT)

    def add(self, sample: Sample) -> None:
        """Remember one tick; an engine that was silent since the last one adds nothing."""
        if sample.memory is not None:
            self._add_memory(sample.at, sample.memory)
        gpu = sample.gpu or Gpu()
        for figure, reading in zip(BOX_CHARTED, (gpu.power_w, gpu.sm_clock_mhz), strict=True):
            if reading is not None:
                self._rings["", figure].add(sample.at, reading)
        for profile, engine in sample.engines.items():
            if engine.at <= self._at.get(profile, 0.0):
                continue
            self._at[profile] = engine.at
            for metric in SHOWN:
                value = engine.figure(metric).value
                if value is not None:
                    self._rings[profile, metric].add(engine.at, value)

    def recall(self, figures: "RecentFigures") -> None:
        begin = int(figures.begin // STEP_S)
        for series in figures.series:
            if series.node == LOCAL and series.figure in (SHOWN if series.profile else BOX_CHARTED):
                self._rings[series.profile, series.figure].recall(begin, series.mean)

    def recall_memory(self, figures: "RecentFigures", now: Memory) -> None:
        """Put the recorded memory where none was seen; what is not recorded is as `now`."""
        held: dict[int, dict[str, int | None]] = {}
        box: dict[str, dict[int, int]] = {}
        for series in figures.series:
            for index, value in enumerate(series.mean, int(figures.begin // MEMORY_STEP_S)):
                if value is not None and series.node == LOCAL and series.profile:
                    held.setdefault(index, {})[series.profile] = int(value)
                elif value is not None and series.node == LOCAL:
                    box.setdefault(series.figure, {})[index] = int(value)
        available, free, cache = (box.get(name, {}) for name in BOX_MEMORY)
        recorded = {
            index: now.replace(
                available=available[index],
                free=free.get(index, now.free),
                page_cache=cache.get(index),
                engines=held.get(index, {}),
                strangers=(),
            )
            for index in available
        }
        self._memory = deque(
            sorted((recorded | dict(self._memory)).items(), key=lambda one: one[0]), maxlen=MEMORY_KEPT
        )

    def last(self, profile: str, figure: str, count: int, now: float) -> Sequence[float | None]:
        """Return the last `count` buckets of one figure; all None if never seen."""
        ring = self._rings.get((profile, figure))
        return ring.last(count, now) if ring else [None] * count

    def memory(self, count: int, now: float) -> list[Memory | None]:
        """Return the box's memory in the last `count` steps of MEMORY_STEP_S, oldest first."""
        end = int(now // MEMORY_STEP_S)
        known = dict(self._memory)
        return [known.get(index) for index in range(end - count + 1, end + 1)]

    def _add_memory(self, at: float, memory: Memory) -> None:
        index = int(at // MEMORY_STEP_S)
        if self._memory and self._memory[-1][0] >= index:
            self._memory[-1] = (self._memory[-1][0], memory)
        else:
            self._memory.append((index, memory))

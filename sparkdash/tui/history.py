"""Recent figures of each engine, for the sparklines.

Owns: rings of buckets. Must not know: widgets, clocks; the time comes with each sample.
Rule: buckets stand at fixed times, so that a bar keeps its height once the next one has begun.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sparkdash.domain.metric import Memory, Metric, Sample

STEP_S = 2.0
"""Seconds of one bar: the 30 bars that fit beside the figures at 80 columns show a minute."""
KEPT = 600
"""Buckets of a ring: twenty minutes fill the widest chart, which has two buckets per cell."""
MEMORY_STEP_S = 5.0
"""Seconds of one cell of the memory's chart."""
MEMORY_KEPT = 360
"""Half an hour."""
SHOWN = (Metric.DECODE, Metric.PROMPT_SPEED, Metric.PREFIX_HIT, Metric.KV_USED)


class BucketRing:
    """Means of one figure over STEP_S; None where nothing was measured."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[int, float, int]] = deque(maxlen=KEPT)

    def add(self, at: float, value: float) -> None:
        """Add a measurement at `at` Unix seconds; times never go back by more than the current bucket."""
        index = int(at // STEP_S)
        if self._buckets and self._buckets[-1][0] >= index:
            last, total, count = self._buckets[-1]
            self._buckets[-1] = (last, total + value, count + 1)
        else:
            self._buckets.append((index, value, 1))

    def last(self, count: int, now: float) -> list[float | None]:
        """Return the `count` buckets up to the one that contains `now`, oldest first."""
        end = int(now // STEP_S)
        known = {index: total / n for index, total, n in self._buckets}
        return [known.get(index) for index in range(end - count + 1, end + 1)]


class FigureHistory:
    """Rings by engine and figure."""

    def __init__(self) -> None:
        self._rings: dict[tuple[str, Metric], BucketRing] = {}
        self._at: dict[str, float] = {}
        self._memory: deque[tuple[int, Memory]] = deque(maxlen=MEMORY_KEPT)

    def add(self, sample: Sample) -> None:
        """Remember one tick; an engine that was silent since the last one adds nothing."""
        if sample.memory is not None:
            self._add_memory(sample.at, sample.memory)
        for profile, engine in sample.engines.items():
            if engine.at <= self._at.get(profile, 0.0):
                continue
            self._at[profile] = engine.at
            for metric in SHOWN:
                value = engine.figure(metric).value
                if value is not None:
                    self._rings.setdefault((profile, metric), BucketRing()).add(engine.at, value)

    def last(self, profile: str, metric: Metric, count: int, now: float) -> Sequence[float | None]:
        """Return the last `count` buckets of one figure; all None if never seen."""
        ring = self._rings.get((profile, metric))
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

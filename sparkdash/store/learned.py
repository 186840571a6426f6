"""Times and memory learned from earlier swaps and loads, held in memory only.

Owns: which swaps and loads count, and how many. Must not know where they are stored.

Pure.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from statistics import median

from sparkdash.domain.memory import footprint
from sparkdash.domain.memory.contiguity import LoadContiguity
from sparkdash.domain.memory.footprint import Footprint, Weighing
from sparkdash.domain.swap import Step
from sparkdash.store.rows import SwapTimes, WeighedLoad

LEARNED_FROM = 5
"""Swaps of one fingerprint that count: enough to outvote one cold page cache, few enough to follow a new disk."""
CONTIGUITY_HELD = 100
"""Loads whose contiguity stays in memory, for the verdict on the next one."""
Steps = tuple[Step, ...]


class Learned:
    """Figures of the last swaps and loads by fingerprint; steps also by kin."""

    def __init__(self) -> None:
        self._took: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LEARNED_FROM))
        self._steps: defaultdict[str, deque[Steps]] = defaultdict(lambda: deque(maxlen=LEARNED_FROM))
        self._loads: defaultdict[str, dict[str, Weighing]] = defaultdict(dict)
        """Loads by fingerprint, then by id, oldest first."""

        self._contiguity: deque[LoadContiguity] = deque(maxlen=CONTIGUITY_HELD)

    @classmethod
    def of(
        cls, swaps: Iterable[SwapTimes], loads: Iterable[WeighedLoad], contiguity: Iterable[LoadContiguity]
    ) -> Learned:
        """Learn from everything stored of earlier swaps and loads, oldest first."""
        learned = cls()
        for swap in swaps:
            learned.learn_times(*swap)
        for load in loads:
            learned.learn_memory(*load)
        learned._contiguity.extend(contiguity)
        return learned

    @property
    def contiguity(self) -> tuple[LoadContiguity, ...]:
        """Free blocks before and after the last loads, oldest first."""
        return tuple(self._contiguity)

    def learn_contiguity(self, load: LoadContiguity) -> None:
        """Add a load, failed or not."""
        self._contiguity.append(load)

    def learn_times(self, fingerprint: str, kin: str, took_s: float, steps: Steps) -> None:
        """Add a successful swap."""
        self._took[fingerprint].append(took_s)
        for key in filter(None, (fingerprint, kin)):
            if steps:
                self._steps[key].append(steps)

    def learn_memory(self, fingerprint: str, seen: Weighing) -> None:
        """Add a load, complete or still running; one that does not count is ignored."""
        loads = self._loads[fingerprint]
        if seen.spoilt is None and seen.steady_bytes is not None:
            loads[seen.id] = seen  # a load that is reported again keeps its position
        for id_ in list(loads)[: -footprint.LEARNED_FROM]:
            del loads[id_]

    def learn_newer(self, newer: Learned) -> None:
        """Add all figures of `newer`, which are younger."""
        for key, times in newer._took.items():
            self._took[key].extend(times)
        for key, steps in newer._steps.items():
            self._steps[key].extend(steps)
        self._contiguity.extend(newer._contiguity)
        for key, loads in newer._loads.items():
            for seen in loads.values():
                self.learn_memory(key, seen)

    def expected_s(self, fingerprint: str) -> float | None:
        """Median time of the last swaps with this launch; None before the first."""
        times = self._took.get(fingerprint)
        return median(times) if times else None

    def steps(self, key: str) -> tuple[Steps, ...]:
        """Steps of the last swaps of this fingerprint, or of this kin; oldest first."""
        return tuple(self._steps.get(key, ()))

    def footprint(self, fingerprint: str) -> Footprint | None:
        """Memory of this launch; None before the first load that counts."""
        return footprint.learn_footprint(list(self._loads.get(fingerprint, {}).values()))

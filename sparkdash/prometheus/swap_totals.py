"""SwapTotals: ended swaps as counters, and what a request waited for.

Owns: which wait a swap explains. Must not know how a page of metrics is written.
Pure.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from sparkdash.domain.memory import Guard
from sparkdash.domain.swap import Swap, SwapPhase
from sparkdash.telemetry.totals import LatencyHistogram

REMEMBERED = 64
"""Ended swaps that may explain the wait of a request that ends later, and whose ids are known."""
QUEUE, SWAP, DRAIN, MEMORY = "queue", "swap", "drain", "memory"
WAITS = {SwapPhase.DRAIN: DRAIN, SwapPhase.RECLAIM: MEMORY, SwapPhase.PREFLIGHT: MEMORY}
"""Phases in which requests wait for something else than the load."""


class SwapTotals:
    """Totals since the daemon started."""

    def __init__(self, ended: Iterable[Swap] = ()) -> None:
        self.swaps: defaultdict[tuple[str, str], int] = defaultdict(int)
        """By target and outcome."""
        self.stages: defaultdict[tuple[str, str], LatencyHistogram] = defaultdict(LatencyHistogram)
        """By target and phase."""
        self.kills = 0
        self._last_kill = 0.0
        self._recent: deque[Swap] = deque(ended, maxlen=REMEMBERED)

    def copy(self) -> SwapTotals:
        """Return counters that later swaps leave alone, for a thread to write."""
        made = SwapTotals()
        made.swaps.update(self.swaps)
        made.stages.update((key, histogram.copy()) for key, histogram in self.stages.items())
        made.kills = self.kills
        return made

    def add(self, swap: Swap) -> None:
        """Add an ended swap, once."""
        if swap.ended_at is None or any(swap.id == known.id for known in self._recent):
            return
        self._recent.append(swap)
        profile = swap.target or ""
        self.swaps[profile, swap.outcome or ""] += 1
        for phase, seconds in swap.stage_s.items():
            self.stages[profile, phase].observe(seconds)

    def see_guard(self, guard: Guard) -> None:
        """Count the guard's kills that are new."""
        new = [kill.at for kill in guard.kills if kill.at > self._last_kill]
        self.kills += len(new)
        self._last_kill = max((self._last_kill, *new))

    def reason(self, profile: str, began: float, ended: float) -> str:
        """Say what a request for this profile waited for between two moments (Unix seconds)."""
        for swap in reversed(self._recent):
            if swap.target == profile and swap.ended_at and swap.started_at < ended and began < swap.ended_at:
                return _longest_wait(swap)
        return QUEUE


def _longest_wait(swap: Swap) -> str:
    for phases, reason in (((SwapPhase.DRAIN,), DRAIN), ((SwapPhase.RECLAIM, SwapPhase.PREFLIGHT), MEMORY)):
        if sum(swap.stage_s.get(phase, 0.0) for phase in phases) > sum(swap.stage_s.values()) / 2:
            return reason
    return SWAP

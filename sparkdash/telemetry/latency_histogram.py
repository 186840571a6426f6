"""LatencyHistogram: durations counted by upper bounds, as Prometheus wants them.

Owns: the buckets. Must not know what is timed.
Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds in seconds of requests, waits and loads."""
TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 1.0)
"""Upper bounds in seconds of the time per output token: 1,000 down to 1 tok/s."""


class LatencyHistogram:
    """Histogram with fixed bounds; `observe` costs one bisection."""

    __slots__ = ("_bounds", "_counts", "sum_s")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_S) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum_s += seconds

    def copy(self) -> LatencyHistogram:
        """Return a histogram that later durations leave alone."""
        made = LatencyHistogram(self._bounds)
        made._counts, made.sum_s = self._counts.copy(), self.sum_s
        return made

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yield each upper bound as text, `+Inf` last, with the number of durations up to it."""
        total = 0
        for bound, count in zip((*map(_text, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield bound, total


def _text(bound: float) -> str:
    return repr(float(bound))

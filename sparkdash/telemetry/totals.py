"""EngineTotals: counts of one profile's engines since the daemon started, over all restarts, without warm-ups. Pure."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from sparkdash.telemetry.reading import Counters, Reading

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
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum_s += seconds

    def copy(self) -> "LatencyHistogram":
        made = LatencyHistogram(self._bounds)
        made._counts, made.sum_s = self._counts.copy(), self.sum_s
        return made

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yield each upper bound as text, `+Inf` last, with the number of durations up to it."""
        total = 0
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield bound, total


_ZERO = Counters(*(0.0 for _ in Counters._fields))


class EngineTotals:
    """Totals of one profile. A counter that no engine has told is None, never 0."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.accepted_at: dict[int, float] = {}
        """Accepted draft tokens by position, from 0."""
        self.failed_scrapes = 0
        self.scrapes = LatencyHistogram()
        """Answered scrapes by their duration."""
        self._base: Counters | None = None
        self._base_at: Mapping[int, float] = {}

    def copy(self) -> "EngineTotals":
        made = EngineTotals()
        made.counters, made.accepted_at = self.counters, dict(self.accepted_at)
        made.failed_scrapes, made.scrapes = self.failed_scrapes, self.scrapes.copy()
        return made

    def rebase(self) -> None:
        """Count from the next reading on: what an engine counted before it is another's work or a warm-up."""
        self._base, self._base_at = None, {}

    def restart(self) -> None:
        """Count the next reading whole: the engine began anew under the daemon's eyes."""
        self._base, self._base_at = _ZERO, {}

    def add(self, reading: Reading) -> None:
        counters, before = reading.counters, self._base
        self._base = counters.known_or(before or Counters())
        growth = counters.since(counters if before is None else before.known_or_zero())
        self.counters = self.counters.plus(growth)
        if before is not None:
            for position, count in reading.accepted_at.items():
                grown = max(0.0, count - self._base_at.get(position, 0.0))
                self.accepted_at[position] = self.accepted_at.get(position, 0.0) + grown
        self._base_at = {**self._base_at, **reading.accepted_at}

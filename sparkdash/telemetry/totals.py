"""EngineTotals: counts of one profile's engines since the daemon started, over all restarts.

Owns: adding up the growth of counters that begin anew with each engine. The warm-up of an engine is left out. Must not
know names of metrics, nor who reads the totals.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkdash.telemetry.latency_histogram import LatencyHistogram
from sparkdash.telemetry.reading import Counters, Reading

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
        """Counters up to which the growth is in the totals; None before an engine's first reading."""
        self._base_at: Mapping[int, float] = {}

    def copy(self) -> EngineTotals:
        """Return the totals of now, which later readings leave alone, for a thread to write."""
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
        """Add the growth since the last reading."""
        counters, before = reading.counters, self._base
        self._base = counters.known_or(before or Counters())
        growth = counters.since(counters if before is None else before.known_or_zero())
        self.counters = self.counters.plus(growth)
        if before is not None:
            for position, count in reading.accepted_at.items():
                grown = max(0.0, count - self._base_at.get(position, 0.0))
                self.accepted_at[position] = self.accepted_at.get(position, 0.0) + grown
        self._base_at = {**self._base_at, **reading.accepted_at}

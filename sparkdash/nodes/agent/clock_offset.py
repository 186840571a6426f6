"""Clock offset: how far a node's clock is ahead of ours, from questions and their answers.

Owns: the estimate. The answer's clock was read between question and answer, so the estimate is wrong by half of the
round trip at most; the shortest of the last round trips counts (as NTP does, RFC 5905 section 10).
Pure.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

KEPT = 8
"""Round trips that are compared: with one per minute or more, a clock that was set counts soon."""
LEAP_S = 1.0
"""Change by more than this and both round trips' errors: the clock was set, and earlier round trips mean nothing."""


class RoundTrip(NamedTuple):
    """Question and answer: `asked` and `heard` by our clock, `clock` by the node's; Unix seconds."""

    asked: float
    heard: float
    clock: float

    @property
    def offset_s(self) -> float:
        """Node's clock less ours."""
        return self.clock - (self.asked + self.heard) / 2

    @property
    def error_s(self) -> float:
        """Largest error of the offset."""
        return max(self.heard - self.asked, 0.0) / 2


class ClockOffset:
    """Offset of one node's clock."""

    def __init__(self) -> None:
        self._trips: deque[RoundTrip] = deque(maxlen=KEPT)

    def add(self, trip: RoundTrip) -> None:
        """Count one round trip; one during which our own clock went back is left out."""
        if trip.heard < trip.asked:
            return
        best = self.best
        if best is not None and abs(trip.offset_s - best.offset_s) > LEAP_S + trip.error_s + best.error_s:
            self._trips.clear()
        self._trips.append(trip)

    @property
    def best(self) -> RoundTrip | None:
        """Shortest of the last round trips; None before the first."""
        return min(self._trips, key=lambda trip: trip.error_s, default=None)

    @property
    def offset_s(self) -> float | None:
        """Node's clock less ours; None before the first answer."""
        return None if self.best is None else self.best.offset_s

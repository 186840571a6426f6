"""Progress of a run: the measured share and the seconds left. The clock is an argument.

Owns: the estimate. Must not know: what is measured.
Work is counted by `run_plan.token_cost`. Its rounding keeps the parts from adding up to the whole, so the remaining
work has a floor of zero.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable


class RunTimeLeft:
    """Counts the work that is done and the time that it took."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._whole = self._left = self._seen = 0.0
        self._measuring_s = 0.0
        self._since = clock()
        self._launch_s: list[float] = []

    def begin(self, *, whole: float, left: float) -> None:
        """Set the work of the whole run, and the part of it that is not measured yet."""
        self._whole, self._left = whole, left

    def launched(self, seconds: float) -> None:
        """Count one start of an engine; measuring begins now."""
        self._launch_s.append(seconds)
        self._since = self._clock()

    def worked(self, work: float) -> None:
        """Count a measured cell and the time since the one before it."""
        now = self._clock()
        self._measuring_s += now - self._since
        self._since = now
        self._left = max(0.0, self._left - work)
        self._seen += work

    @property
    def share(self) -> float:
        """Work that is done over the whole, 0..1."""
        return min(1.0, max(0.0, 1.0 - self._left / self._whole)) if self._whole else 1.0

    def left_s(self, launches: int) -> float | None:
        """Seconds to the end with `launches` more starts; None before the first measured cell."""
        if not self._seen or not self._launch_s:
            return None
        start_s = sum(self._launch_s) / len(self._launch_s)
        return self._left / self._seen * self._measuring_s + max(0, launches) * start_s

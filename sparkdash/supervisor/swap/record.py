"""A swap under way as people see it: its phases, its progress and the time left, published at each change.

Owns: the Swap value and its publication. Must not know why anything happens, nor other swaps.
"""

from __future__ import annotations

from collections.abc import Callable

from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.event import Fact, SwapChanged
from sparkdash.domain.swap import Swap, SwapOutcome, SwapPhase
from sparkdash.supervisor.clock import Clock
from sparkdash.supervisor.swap.eta import SwapEta

MOVED = 0.01
MOVED_S = 2.0
"""An estimate is published when its fraction rose by MOVED, or its time is off by MOVED_S and by that share of
itself.
"""
HEARD_S = 2.0
"""Age of the last line at which a newer one is published by itself."""
STILL_S = 30.0
"""Seconds without progress after which a load counts as still: importing, mapping and compiling are mostly silent for
less.
"""
LIMIT_MOVED_S = 1.0
"""A limit on standing still is published again when it has moved by more: it was extended, or its setting edited."""


class SwapRecord:
    """Published state of one swap, from its first phase to `end`. `course`: the course of earlier swaps like it."""

    def __init__(self, publish: Callable[[Fact], object], clock: Clock, swap: Swap, course: SwapEta) -> None:
        self._publish = publish
        self._clock = clock
        self._course = course
        self._heard_at: float | None = None
        self.extended_at: float | None = None
        """Time of the last `extend`, in monotonic seconds."""
        self._phase_began = clock.monotonic()
        course.enter(swap.phase, self._phase_began)
        self.swap = swap
        self._tell(swap.replace(learned_from=course.learned_from, similar=course.similar))

    def phase(self, phase: SwapPhase) -> None:
        """Enter the next phase."""
        if self.swap.phase is not phase:
            times = self._times()
            self._phase_began = self._clock.monotonic()
            self._course.enter(phase, self._phase_began)
            self._tell(
                self.swap.replace(
                    phase=phase,
                    phase_at=self._clock.now(),
                    stage_s=times,
                    waits_for=None,
                    until=None,
                    progress=None,
                    still_since=None,
                    gives_up_at=None,
                )
            )

    def waits(self, what: str | None, until: float | None = None) -> None:
        """Set what the present phase waits for, and until when at most; Unix seconds."""
        if (what, until) != (self.swap.waits_for, self.swap.until):
            self._tell(self.swap.replace(waits_for=what, until=until))

    def progress(self, progress: LoadProgress) -> None:
        """Set how far the load has come, by its log."""
        self._course.heard(progress, self._clock.monotonic())
        self._tell(self.swap.replace(progress=progress))

    def took(self, taken: int) -> None:
        """Set the bytes that the load holds now. Published when they, or the passed time, move the estimate."""
        self._course.took(taken)
        if self._moved():
            self._tell(self.swap)

    def heard(self) -> None:
        """Note a line of the engine's log; published with the next change, or HEARD_S later."""
        self._heard_at = self._clock.now()

    def extend(self) -> None:
        """Count a load that stands still as moving from now on, as far as its limit goes."""
        self.extended_at = self._clock.monotonic()

    def still(self, seconds: float, left_s: float) -> None:
        """Set for how long the load has shown no progress, and for how long it still may.

        Published when that becomes long, when the limit moves, and when it ends.
        """
        is_still = seconds >= STILL_S
        gives_up_at = self._clock.now() + left_s
        moved = abs(gives_up_at - (self.swap.gives_up_at or gives_up_at)) > LIMIT_MOVED_S
        if is_still != (self.swap.still_since is not None) or (is_still and moved):
            since = self._clock.now() - seconds if is_still else None
            self._tell(self.swap.replace(still_since=since, gives_up_at=gives_up_at if is_still else None))
        elif (self._heard_at or 0.0) - (self.swap.heard_at or 0.0) >= HEARD_S:
            self._tell(self.swap)

    def waiting(self, count: int) -> None:
        """Set how many requests wait for the target."""
        if self.swap.waiting != count:
            self._tell(self.swap.replace(waiting=count))

    def end(
        self, outcome: SwapOutcome, failure: Failure | None, record: Callable[[Swap], object] | None = None
    ) -> Swap:
        """End the swap: hand it to `record`, publish and return it with its outcome."""
        ended = self.swap.replace(
            waits_for=None,
            until=None,
            eta_s=None,
            eta_low_s=None,
            eta_high_s=None,
            eta_at=None,
            still_since=None,
            gives_up_at=None,
            fraction=1.0 if outcome is SwapOutcome.DONE else self.swap.fraction,
            steps=self._course.steps(self._clock.monotonic()),
            ended_at=self._clock.now(),
            outcome=outcome,
            failure=failure,
            stage_s=self._times(),
        )
        if record is not None:
            record(ended)
        self._publish(SwapChanged(swap=ended))
        return ended

    def _times(self) -> dict[SwapPhase, float]:
        return {**self.swap.stage_s, self.swap.phase: self._clock.monotonic() - self._phase_began}

    def _tell(self, swap: Swap) -> None:
        """Publish the swap with an estimate made now."""
        estimate = self._course.estimate(self._clock.monotonic())
        self.swap = swap.replace(
            heard_at=self._heard_at,
            fraction=estimate.fraction,
            eta_s=estimate.eta_s,
            eta_low_s=estimate.low_s,
            eta_high_s=estimate.high_s,
            eta_at=None if estimate.eta_s is None else self._clock.now(),
        )
        self._publish(SwapChanged(swap=self.swap))

    def _moved(self) -> bool:
        """Whether the estimate differs from what a reader derives from the last one published."""
        told, now = self.swap, self._course.estimate(self._clock.monotonic())
        if (now.fraction is None) is not (told.fraction is None):
            return True
        if (now.fraction or 0.0) - (told.fraction or 0.0) >= MOVED:
            return True
        if now.eta_s is None or told.eta_s is None or told.eta_at is None:
            return False
        counted = max(0.0, told.eta_s - (self._clock.now() - told.eta_at))
        return abs(now.eta_s - counted) >= max(MOVED_S, MOVED * counted)

"""Recovery: whether an engine works again after its requests were cancelled, one look after another.

Some engines that stood still were free again 94 to 105 s after the last of their requests had been aborted. Those whose
processes are stopped, or whose HTTP server answers nothing, cannot even learn that a request was aborted.

Pure.
"""

from __future__ import annotations

from enum import Enum, auto

from sparkdash.supervisor.liveness.judge import LivenessJudge, Thresholds
from sparkdash.supervisor.liveness.signals import EngineSignals, HealthAnswer
from sparkdash.units import duration

SILENT_S = 20.0
"""Time without an answer, or with some processes stopped, after which nothing more is expected of the engine."""
AGAIN_S = 30.0
"""Least time between two short generations that prove that the engine works."""


class RecoveryOutlook(Enum):
    """Prospect of a recovery after one look at the engine, which decides what follows."""

    WAIT = auto()
    TRY = auto()
    """The engine looks free: a short generation shows whether it works."""
    HOPELESS = auto()
    """Waiting longer helps nothing: the engine cannot recover, or its time is up."""


class Recovery:
    """Judges the recovery of one engine after its requests were cancelled. Monotonic seconds."""

    def __init__(self, began: float, thresholds: Thresholds) -> None:
        self._began = began
        self._limit_s = thresholds.recovery_s
        self._judge = LivenessJudge(began, thresholds)
        self._first = True
        self._dumb_since: float | None = None
        """Since when the engine answers nothing, or has stopped processes."""
        self._tried_at: float | None = None
        self._is_last_try = False
        self.why = f"nothing moved for {duration(self._limit_s)}"
        """Why nothing more is expected of the engine."""

    def see(self, look: EngineSignals) -> RecoveryOutlook:
        """Judge this look, which is later than those before."""
        if self._is_dumb(look):
            return RecoveryOutlook.HOPELESS
        verdict, first = self._judge.see(look), self._first
        self._first = False
        free = verdict is None or (not first and verdict.still_s == 0.0)
        if self._is_over(look.at):
            return self._last_outlook(may_work=free or look.answers is not True)
        if self._dumb_since is not None or not free or self._tried_lately(look.at):
            return RecoveryOutlook.WAIT
        return RecoveryOutlook.TRY

    def _last_outlook(self, *, may_work: bool) -> RecoveryOutlook:
        if self._is_last_try or not may_work:
            return RecoveryOutlook.HOPELESS
        self._is_last_try = True
        return RecoveryOutlook.TRY

    def blind(self, at: float) -> RecoveryOutlook:
        """Judge a moment at which the engine could not be looked at."""
        return RecoveryOutlook.HOPELESS if self._is_over(at) else RecoveryOutlook.WAIT

    def tried(self, at: float) -> None:
        """Note that a short generation failed."""
        self._tried_at = at

    def _is_dumb(self, look: EngineSignals) -> bool:
        stopped = look.stopped or 0
        if not stopped and look.health is not HealthAnswer.SILENT:
            self._dumb_since = None
            return False
        if self._dumb_since is None:
            self._dumb_since = look.at
        if 0 < stopped == look.processes:
            self.why = "its processes are stopped"
            return True
        if look.at - self._dumb_since < SILENT_S:
            return False
        self.why = "some of its processes are stopped" if stopped else "its server does not answer"
        return True

    def _is_over(self, at: float) -> bool:
        return at - self._began >= self._limit_s

    def _tried_lately(self, at: float) -> bool:
        return self._tried_at is not None and at - self._tried_at < AGAIN_S

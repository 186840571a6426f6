"""DefaultReturn: when an unused box returns to its default profile.

Owns: how long the engines in its way must have been unused, and that a person's stop holds. Must not know whether the
default fits: `decisions` asks.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.swap import DefaultProfile
from sparkdash.supervisor.scheduling import fit
from sparkdash.supervisor.scheduling.moves import (
    Adopted,
    Cancel,
    EngineDied,
    Evicted,
    Move,
    PolicyRead,
    Stop,
    SwapCancelled,
    SwapDone,
    SwapFailed,
    Use,
)
from sparkdash.supervisor.scheduling.records import SchedulerRecords

_CHANGES = (Adopted, EngineDied, Evicted, PolicyRead, SwapCancelled, SwapDone, SwapFailed)


class DefaultReturn:
    """Keeps the time of the return for one scheduler."""

    def __init__(self, records: SchedulerRecords) -> None:
        self.policy: DefaultProfile | None = None
        self._records = records
        self._changed_at = 0.0
        """Time at which engines last came or went, monotonic seconds."""
        self._held = False
        """Whether a person stopped or cancelled something, and nothing was loaded since."""

    def note(self, move: Move, now: float) -> None:
        """Take note of a move."""
        match move:
            case PolicyRead(default=default):
                self.policy = default
            case Stop() | Cancel():
                self._held = True
            case Use():
                self._held = False
            case SwapDone(target=target) if target is not None:
                self._held = False
        if isinstance(move, _CHANGES):
            self._changed_at = now

    @property
    def wanted(self) -> DefaultProfile | None:
        """The policy, where its profile is not there and may come back by itself."""
        policy = self.policy
        if policy is None or self._held or policy.profile in self._records.residents:
            return None
        return policy

    def due_at(self, choice: fit.Choice, now: float) -> float:
        """Time from which `wanted` may come, `choice` being who leaves for it: each unused for as long as it takes."""
        policy, records = self.policy, self._records
        after_s = policy.after_s if policy is not None else 0.0
        ends = [self._changed_at]
        for name in choice.names:
            resident = records.residents.get(name)
            if records.in_flight(name):
                ends.append(now)
            elif resident is not None:
                ends.append(max(resident.ready_at, resident.used_at or resident.ready_at))
        return max(ends) + after_s

"""Incident: one standstill of an engine that held requests, and its repair.

Times are Unix seconds, durations seconds.
Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from statistics import fmean

from sparkdash.domain.base import Frozen
from sparkdash.domain.liveness import RepairStep

RECENT_INCIDENTS = 20
"""Incidents in a snapshot; GET /api/incidents returns all that are kept."""


class IncidentEnd(StrEnum):
    """Outcome of an incident."""

    MOVED = "moved"
    """The engine moved again by itself."""
    RECOVERED = "recovered"
    """The engine moved again once its requests were cancelled."""
    RESTARTED = "restarted"
    """The engine was ended, and its profile serves again."""
    FAILED = "failed"
    """The engine ended, and its profile did not come up again."""
    STOPPED = "stopped"
    """A person, or a swap to another profile, ended the engine."""
    TOLD = "told"
    """Report without a repair: the requests left, and the engine moved again with the next ones."""
    UNKNOWN = "unknown"
    """The daemon ended meanwhile."""


REPAIRS = frozenset({IncidentEnd.RECOVERED, IncidentEnd.RESTARTED})
"""Ends that count into the mean time to repair."""


class TakenStep(Frozen):
    """Step of a repair, with the time of its start."""

    step: RepairStep
    at: float


class Incident(Frozen):
    """A standstill of an engine that held requests."""

    id: str
    profile: str
    fingerprint: str
    began: float
    """Time of the last progress that was seen."""
    named_at: float
    """Time when the engine was found stuck."""
    why: str
    """Signals that showed the standstill, as one sentence."""
    steps: tuple[TakenStep, ...] = ()
    ended_at: float | None = None
    """Time when the profile served again or was given up; None while the incident is open."""
    end: IncidentEnd | None = None
    note: str = ""
    """Outcome as one sentence; empty while the incident is open."""
    evidence: str | None = None
    """Folder with the evidence that was taken before the engine was ended."""

    @property
    def repaired_s(self) -> float | None:
        """Time from the last progress until the profile served again; None unless something repaired it."""
        return None if self.ended_at is None or self.end not in REPAIRS else self.ended_at - self.began


class RepairTime(Frozen):
    """Mean time to repair, over `n` incidents."""

    n: int
    mean_s: float


class Repairs(Frozen):
    """Mean time to repair over all profiles, and for each."""

    every: RepairTime | None = None
    """Mean over all profiles; None before the first repair."""
    by_profile: dict[str, RepairTime] = {}


class IncidentList(Frozen):
    """Incidents, newest first, and the mean time to repair over all that are kept."""

    incidents: tuple[Incident, ...] = ()
    repairs: Repairs = Repairs()


def summarize_repairs(incidents: Iterable[Incident]) -> Repairs:
    """Compute the mean time to repair of these incidents."""
    took: defaultdict[str, list[float]] = defaultdict(list)
    for incident in incidents:
        if incident.repaired_s is not None:
            took[incident.profile].append(incident.repaired_s)
    if not took:
        return Repairs()
    by_profile = {name: RepairTime(n=len(times), mean_s=fmean(times)) for name, times in took.items()}
    every = [one for times in took.values() for one in times]
    return Repairs(every=RepairTime(n=len(every), mean_s=fmean(every)), by_profile=by_profile)

"""Incident: one time that an engine stood still while it held requests, and what was done about it.

Unix seconds and seconds throughout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from statistics import fmean

from sparkdash.domain.base import Frozen
from sparkdash.domain.liveness import RepairStep

RECENT_INCIDENTS = 20
"""Incidents that a snapshot has; GET /api/incidents tells all that are kept."""


class IncidentEnd(StrEnum):
    """How an incident ended."""

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
    """Nothing was done but telling: its requests left, and it moved when the next ones came."""
    UNKNOWN = "unknown"
    """The daemon ended meanwhile."""


REPAIRS = frozenset({IncidentEnd.RECOVERED, IncidentEnd.RESTARTED})
"""Ends that count into the mean time to repair."""


class TakenStep(Frozen):
    """One step of a repair, and when it began."""

    step: RepairStep
    at: float


class Incident(Frozen):
    """One time that an engine stood still while it held requests."""

    id: str
    profile: str
    fingerprint: str
    began: float
    """Time of the last progress that was seen."""
    named_at: float
    """When the engine was found stuck."""
    why: str
    """What was seen, as one sentence."""
    steps: tuple[TakenStep, ...] = ()
    ended_at: float | None = None
    """When the profile served again, or was given up; None while the incident is open."""
    end: IncidentEnd | None = None
    note: str = ""
    """How it ended, as one sentence; empty while the incident is open."""
    evidence: str | None = None
    """Folder with what was found out about the engine before it was ended."""

    @property
    def repaired_s(self) -> float | None:
        """Time from the last progress until the profile served again; None unless something repaired it."""
        return None if self.ended_at is None or self.end not in REPAIRS else self.ended_at - self.began


class RepairTime(Frozen):
    """Mean time to repair, over `n` incidents."""

    n: int
    mean_s: float


class Repairs(Frozen):
    """Mean time to repair: over all profiles, and of each."""

    every: RepairTime | None = None
    """None before the first repair."""
    by_profile: dict[str, RepairTime] = {}


class IncidentList(Frozen):
    """Incidents, newest first, and the mean time to repair over all that are kept."""

    incidents: tuple[Incident, ...] = ()
    repairs: Repairs = Repairs()


def summarize_repairs(incidents: Iterable[Incident]) -> Repairs:
    """Mean time to repair of these incidents."""
    took: defaultdict[str, list[float]] = defaultdict(list)
    for incident in incidents:
        if incident.repaired_s is not None:
            took[incident.profile].append(incident.repaired_s)
    if not took:
        return Repairs()
    by_profile = {name: RepairTime(n=len(times), mean_s=fmean(times)) for name, times in took.items()}
    every = [one for times in took.values() for one in times]
    return Repairs(every=RepairTime(n=len(every), mean_s=fmean(every)), by_profile=by_profile)

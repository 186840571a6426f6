"""Incident: one standstill of an engine that held requests, and its repair.

Times are Unix seconds, durations seconds.
Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any

from sparkdash.domain.base import Frozen
from sparkdash.domain.engine import RepairStep
from sparkdash.domain.profile import EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRequest:
    """Request for evidence about one engine. Times are Unix seconds; `looks` are JSON-ready, without prompts."""

    profile: str
    kind: EngineKind
    reason: str
    """Reason to suspect the engine, in one sentence."""
    pids: frozenset[int] = frozenset()
    """Host pids of the engine's processes, as last known; empty when the runtime lists none."""
    container: str | None = None
    fingerprint: str = ""
    version: str | None = None
    started_at: float | None = None
    """Start of the engine; kernel log lines count from here."""
    looks: Sequence[Mapping[str, Any]] = ()
    """Last looks at the engine, oldest first."""
    log: Sequence[str] = ()
    """Last lines of the engine's raw log; secrets and prompts are removed when the lines are kept."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Location of evidence. Without `folder`, `problem` says why; with both, only part was written."""

    folder: str | None
    problem: str | None = None


TakeEvidence = Callable[[EvidenceRequest], Awaitable[Evidence]]
"""Callback that takes evidence within 20 s, and raises only when cancelled."""


async def no_evidence(_request: EvidenceRequest) -> Evidence:
    """Take none: the default where no folder is kept, as on a simulated box."""
    return Evidence(None, "No evidence is kept here.")


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

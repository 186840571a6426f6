"""Incidents: the record of engines that stood still, kept over restarts, with its words."""

import secrets
from collections.abc import Callable, Mapping

from sparkdash.domain.engine import Incident, IncidentEnd, IncidentList, RepairStep, TakenStep, summarize_repairs
from sparkdash.domain.event import Level
from sparkdash.store import Store
from sparkdash.store.schema import INCIDENTS_KEPT
from sparkdash.supervisor.state.clock import Clock
from sparkdash.supervisor.state.registry import EngineRegistry
from sparkdash.units import duration

MOVED = "It moved again by itself."
LEFT = "Its requests had left, and nothing was done."
RECOVERED = "It worked again once its requests were cancelled."
RELAPSED = "it had been stuck a short time before"


def stuck_words(name: str, why: str) -> str:
    return f"{name} stopped making progress: {why}."


def stuck_notice(name: str, why: str) -> str:
    return f"{stuck_words(name, why)} Evidence is taken, then its requests are cancelled."


def only_told(name: str, why: str, *, ours: bool) -> str:
    if ours:
        return f"{stuck_words(name, why)} Nothing is done (`on_stuck: tell`); `sparkdash stop {name}` ends it."
    return f"{stuck_words(name, why)} The server is not ours, so it is left alone."


def ended_words(name: str, why: str, why_not: str) -> str:
    return f"{stuck_words(name, why)} Cancelling its requests did not free it ({why_not}), so it was ended."


def left_for(target: str | None) -> str:
    return "It was stopped." if target is None else f"It left for {target}."


def over_notice(incident: Incident) -> str:
    """Word the notice at the end of an incident; empty where nobody needs one."""
    name, took = incident.profile, duration((incident.ended_at or incident.named_at) - incident.began)
    match incident.end:
        case IncidentEnd.RECOVERED | IncidentEnd.RESTARTED:
            return f"{name} serves again {took} after its last progress. {incident.note}"
        case IncidentEnd.MOVED:
            return f"{name} moves again after {took} without progress."
        case IncidentEnd.TOLD:
            return f"{name} moves again. {incident.note}"
        case IncidentEnd.FAILED:
            return f"{name} was stuck and does not serve again. {incident.note}"
        case _:
            return ""


class Incidents:
    """At most one open incident per profile."""

    def __init__(self, registry: EngineRegistry, store: Store | None, clock: Clock) -> None:
        self._registry = registry
        self._store = store
        self._clock = clock
        self._all: dict[str, Incident] = {}
        self._open: dict[str, str] = {}
        self.interrupted: set[str] = set()
        """Profiles whose engines an earlier daemon had found stuck when it ended."""

    @property
    def list(self) -> IncidentList:
        return IncidentList(
            incidents=tuple(reversed(self._all.values())), repairs=summarize_repairs(self._all.values())
        )

    def recall(self) -> None:
        for incident in self._store.incidents if self._store else ():
            self._all[incident.id] = incident
            if incident.ended_at is None:
                self.interrupted.add(incident.profile)
                last = max([incident.named_at, *(step.at for step in incident.steps)])
                self._put(incident.replace(ended_at=last, end=IncidentEnd.UNKNOWN, note="The daemon ended meanwhile."))
        if self._all:
            self._publish()

    def open(self, profile: str) -> Incident | None:
        return self._all.get(self._open.get(profile, ""))

    def begin(self, profile: str, fingerprint: str, began: float, why: str, step: RepairStep) -> Incident:
        """Open an incident; an older one of the profile that is still open has failed."""
        self.end(profile, IncidentEnd.FAILED, "It stood still again before it was repaired.")
        now = self._clock.now()
        incident = Incident(
            id=secrets.token_hex(4),
            profile=profile,
            fingerprint=fingerprint,
            began=min(began, now),
            named_at=now,
            why=why,
            steps=(TakenStep(step=step, at=now),),
        )
        self._open[profile] = incident.id
        self._put(incident)
        self._publish()
        return incident

    def step(self, profile: str, step: RepairStep, evidence: str | None = None) -> None:
        if incident := self.open(profile):
            if incident.steps[-1].step is not step:
                incident = incident.replace(steps=(*incident.steps, TakenStep(step=step, at=self._clock.now())))
            self._put(incident.replace(evidence=evidence or incident.evidence))
            self._publish()

    def end(self, profile: str, end: IncidentEnd, note: str) -> None:
        """Close the open incident of this profile, if there is one, and tell how it ended."""
        incident = self.open(profile)
        if incident is None:
            return
        del self._open[profile]
        ended_at = max(self._clock.now(), incident.began)  # the box's clock may have been set back
        incident = incident.replace(ended_at=ended_at, end=end, note=note)
        self._put(incident)
        self._publish()
        if text := over_notice(incident):
            level = Level.WARNING if end is IncidentEnd.FAILED else Level.INFO
            self._registry.notice(level, f"stuck_{end.value}", text, profile)

    # What happens to an engine with an open incident.

    def ends(self, profile: str) -> None:
        self.step(profile, RepairStep.END)

    def serves(self, profile: str) -> None:
        """An engine of this profile is ready: the one of the incident has ended before."""
        self.end(profile, IncidentEnd.RESTARTED, "It was started again.")

    def left(self, profile: str, target: str | None) -> None:
        """A swap to `target` ends the engine; None: it only stops."""
        if target == profile:  # a person restarts it
            self.ends(profile)
        else:
            self.end(profile, IncidentEnd.STOPPED, left_for(target))

    def stopped(self, profile: str | None) -> None:
        """A person wants this profile, or every one (None), gone: one that has ended is not brought up again."""
        for name in [name for name in self._open if profile in (None, name) and self._is_ending(name)]:
            self.end(name, IncidentEnd.STOPPED, left_for(None))

    def not_started(self, profile: str, why: str | None) -> None:
        """Close the incident, as the next start of this profile failed; None: it was cancelled."""
        if not self._is_ending(profile):
            return
        if why is None:
            self.end(profile, IncidentEnd.STOPPED, "Its start was cancelled.")
        else:
            self.end(profile, IncidentEnd.FAILED, f"It did not come up again: {why}")

    def settle(self, parked: Mapping[str, object], expected: Callable[[str], bool]) -> None:
        """Close incidents of ended engines whose profile is parked, or not `expected` to come up again."""
        for name in [name for name in self._open if self._is_ending(name)]:
            if name in parked:
                self.end(name, IncidentEnd.FAILED, "Its profile is parked.")
            elif not expected(name):
                self.end(name, IncidentEnd.FAILED, "It was not started again.")

    def _is_ending(self, name: str) -> bool:
        incident = self.open(name)
        return incident is not None and incident.steps[-1].step is RepairStep.END

    def _put(self, incident: Incident) -> None:
        self._all[incident.id] = incident
        while len(self._all) > INCIDENTS_KEPT:
            del self._all[next(iter(self._all))]
        if self._store is not None:
            self._store.record_incident(incident)

    def _publish(self) -> None:
        self._registry.tell_incidents(self.list)

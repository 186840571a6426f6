"""Incidents: the record of engines that stood still, kept over restarts, and the mean time to repair.

Owns: which incidents are open, and their publication. Must not decide what is done about an engine: `repair` does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from sparkdash.domain.event import Level
from sparkdash.domain.incident import Incident, IncidentEnd, IncidentList, TakenStep, summarize_repairs
from sparkdash.domain.liveness import RepairStep
from sparkdash.store import Store
from sparkdash.store.schema import INCIDENTS_KEPT
from sparkdash.supervisor.books import Books
from sparkdash.supervisor.clock import Clock
from sparkdash.supervisor.repair import words


def _new_id() -> str:
    return secrets.token_hex(4)


class Incidents:
    """At most one open incident per profile."""

    def __init__(self, books: Books, store: Store | None, clock: Clock, new_id: Callable[[], str] = _new_id) -> None:
        self._books = books
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._all: dict[str, Incident] = {}
        """Incidents by id, oldest first."""
        self._open: dict[str, str] = {}
        """Ids of open incidents by profile."""
        self.interrupted: set[str] = set()
        """Profiles whose engines an earlier daemon had found stuck when it ended."""

    @property
    def list(self) -> IncidentList:
        """All that are kept, newest first."""
        return IncidentList(
            incidents=tuple(reversed(self._all.values())), repairs=summarize_repairs(self._all.values())
        )

    def recall(self) -> None:
        """Take over the incidents of earlier daemons. How an open one went on is not known."""
        for incident in self._store.incidents if self._store else ():
            self._all[incident.id] = incident
            if incident.ended_at is None:
                self.interrupted.add(incident.profile)
                last = max([incident.named_at, *(step.at for step in incident.steps)])
                self._put(incident.replace(ended_at=last, end=IncidentEnd.UNKNOWN, note=words.DAEMON_ENDED))
        if self._all:
            self._publish()

    def open(self, profile: str) -> Incident | None:
        """Return the open incident of this profile."""
        return self._all.get(self._open.get(profile, ""))

    def begin(self, profile: str, fingerprint: str, began: float, why: str, step: RepairStep) -> Incident:
        """Open an incident; an older one of the profile that is still open has failed."""
        self.end(profile, IncidentEnd.FAILED, words.AGAIN)
        now = self._clock.now()
        incident = Incident(
            id=self._new_id(),
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
        """Note the next step of an open incident, and where its evidence is."""
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
        if text := words.over(incident):
            level = Level.WARNING if end is IncidentEnd.FAILED else Level.INFO
            self._books.notice(level, f"stuck_{end.value}", text, profile)

    # What happens to an engine with an open incident.

    def ends(self, profile: str) -> None:
        """Note that the engine has ended, for whatever reason."""
        self.step(profile, RepairStep.END)

    def serves(self, profile: str) -> None:
        """An engine of this profile is ready: the one of the incident has ended before."""
        self.end(profile, IncidentEnd.RESTARTED, words.RESTARTED)

    def left(self, profile: str, target: str | None) -> None:
        """A swap to `target` ends the engine; None: it only stops."""
        if target == profile:  # a person restarts it
            self.ends(profile)
        else:
            self.end(profile, IncidentEnd.STOPPED, words.left_for(target))

    def stopped(self, profile: str | None) -> None:
        """A person wants this profile, or every one (None), gone: one that has ended is not brought up again."""
        for name in [name for name in self._open if profile in (None, name) and self._is_ending(name)]:
            self.end(name, IncidentEnd.STOPPED, words.left_for(None))

    def not_started(self, profile: str, why: str | None) -> None:
        """Close the incident, as the next start of this profile failed; None: it was cancelled."""
        if not self._is_ending(profile):
            return
        if why is None:
            self.end(profile, IncidentEnd.STOPPED, words.CANCELLED)
        else:
            self.end(profile, IncidentEnd.FAILED, words.not_started(why))

    def settle(self, parked: Mapping[str, object], expected: Callable[[str], bool]) -> None:
        """Close incidents of ended engines whose profile is parked, or not `expected` to come up again."""
        for name in [name for name in self._open if self._is_ending(name)]:
            if name in parked:
                self.end(name, IncidentEnd.FAILED, words.PARKED)
            elif not expected(name):
                self.end(name, IncidentEnd.FAILED, words.NOT_RESTARTED)

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
        self._books.tell_incidents(self.list)

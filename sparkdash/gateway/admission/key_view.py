"""KeyView: the part of facts and snapshots that a key for some models may see.

Owns: which part of each fact concerns which models. Rule: a value that names no model stays hidden, unless it plainly
concerns everybody. Rule: numbers of facts stay gapless, so that a reader misses none: `Withheld` replaces a hidden
fact.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from sparkdash.access.key import Key
from sparkdash.domain.engine import Engine, Failure, Parked
from sparkdash.domain.event import (
    AlertsChanged,
    EngineChanged,
    Event,
    Fact,
    GuardChanged,
    IncidentsChanged,
    NodesChanged,
    Notice,
    ParkedChanged,
    ProfilesChanged,
    RequestChanged,
    SampleTaken,
    SwapChanged,
    ToggleChanged,
    TrafficChanged,
    Withheld,
)
from sparkdash.domain.incident import Incident, Repairs
from sparkdash.domain.lease import Request
from sparkdash.domain.live.active_alert import ActiveAlert
from sparkdash.domain.memory.guard import Guard
from sparkdash.domain.metric import Memory, Sample
from sparkdash.domain.node import NodeState
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, Swap
from sparkdash.gateway.admission.access import may_see

T = TypeVar("T")
OTHERS_COUNT = "Engines that this key may not see were counted too."
"""Verdict of a plan that concerns hidden models."""


@dataclass(frozen=True, slots=True)
class KeyView:
    """Profiles and requests that one key may see."""

    key: Key
    profiles: frozenset[str]

    @classmethod
    def of(cls, key: Key, profiles: Iterable[ProfileSummary]) -> KeyView:
        """Make the sight of that key, among these profiles."""
        return cls(key, frozenset(each.name for each in profiles if may_see(key, each)))

    def snapshot(self, whole: Snapshot) -> Snapshot:
        """Cut a snapshot to the visible part. Every field is named here; a field without a name stays hidden."""
        swaps = self._swaps(whole.swaps_under_way)
        return Snapshot(
            seq=whole.seq,
            at=whole.at,
            daemon=whole.daemon,
            profiles=self._summaries(whole.profiles),
            engines=self._engines(whole.engines),
            parked=self._parked(whole.parked),
            swap=swaps[0] if swaps else None,
            swaps_beside=swaps[1:],
            swaps=self._swaps(whole.swaps),
            requests={number: one for number, one in whole.requests.items() if self.sees(one)},
            recent=tuple(one for one in whole.recent if self.sees(one)),
            sample=self._sample(whole.sample) if whole.sample else None,
            figures=self._by_name(whole.figures),
            toggle_a=self._name(whole.toggle_a),
            toggle_b=self._name(whole.toggle_b),
            guard=self._guard(whole.guard) if whole.guard else None,
            incidents=self.incidents(whole.incidents),
            repairs=self.repairs(whole.repairs),
            traffic=whole.traffic,
            nodes=_nodes(whole.nodes),
            alerts=self._alerts(whole.alerts),
            notices=tuple(notice for notice in whole.notices if notice.profile in self.profiles),
        )

    def event(self, event: Event) -> Event:
        """Cut an event to its visible part."""
        return Event(event.seq, event.at, self._fact(event.fact))

    def plan(self, whole: Plan) -> Plan:
        """Cut a visible profile's plan: names of hidden profiles are left out."""
        hidden = {*whole.evict, *whole.beside} - self.profiles
        if not hidden:
            return whole
        return whole.replace(
            evict=self._names(whole.evict),
            reasons=self._by_name(whole.reasons),
            beside=self._names(whole.beside),
            verdict=OTHERS_COUNT,
            held=whole.held and OTHERS_COUNT,
        )

    def incidents(self, whole: Iterable[Incident]) -> tuple[Incident, ...]:
        """Cut incidents to those of visible profiles, without the folders of their evidence."""
        return tuple(one.replace(evidence=None) for one in whole if one.profile in self.profiles)

    def repairs(self, whole: Repairs) -> Repairs:
        """Mean time to repair of visible profiles; that of all profiles is hidden."""
        return Repairs(by_profile=self._by_name(whole.by_profile))

    def sees(self, request: Request) -> bool:
        """Whether the request is for a visible profile, or this key's own."""
        return request.profile in self.profiles or request.key == self.key.name

    def covers(self, swap: Swap) -> bool:
        """Whether all profiles concerned are visible."""
        return {*swap.evict, *([swap.target] if swap.target else [])} <= self.profiles

    def _alerts(self, alerts: Iterable[ActiveAlert]) -> tuple[ActiveAlert, ...]:
        return tuple(one for one in alerts if one.profile in self.profiles)

    def _fact(self, fact: Fact) -> Fact:
        return self._passed(fact) or self._cut(fact) or Withheld()

    def _passed(self, fact: Fact) -> Fact | None:
        """Return a fact that needs no cut, if it is visible; None for any other."""
        match fact:
            case RequestChanged(request=request):
                visible = self.sees(request)
            case Notice(profile=profile):
                visible = profile in self.profiles
            case _:
                visible = isinstance(fact, TrafficChanged)
        return fact if visible else None

    def _cut(self, fact: Fact) -> Fact | None:
        """Return the visible part of a fact; None for a hidden one, and for a fact that needs no cut."""
        match fact:
            case EngineChanged(engine=engine):
                return EngineChanged(engine=_engine(engine)) if engine.profile in self.profiles else None
            case SwapChanged(swap=swap):
                part = self._swap(swap)
                return SwapChanged(swap=part) if part else None
            case SampleTaken(sample=sample):
                return SampleTaken(sample=self._sample(sample))
            case NodesChanged(nodes=nodes):
                return NodesChanged(nodes=_nodes(nodes))
            case ProfilesChanged(profiles=profiles):
                return ProfilesChanged(profiles=self._summaries(profiles))
            case ToggleChanged(a=a, b=b):
                return ToggleChanged(a=self._name(a), b=self._name(b))
            case AlertsChanged(alerts=alerts):
                return AlertsChanged(alerts=self._alerts(alerts))
            case GuardChanged(guard=guard):
                return GuardChanged(guard=self._guard(guard))
            case ParkedChanged(parked=parked):
                return ParkedChanged(parked=self._parked(parked))
            case IncidentsChanged(incidents=incidents, repairs=repairs):
                return IncidentsChanged(incidents=self.incidents(incidents), repairs=self.repairs(repairs))
        return None

    def _summaries(self, profiles: Iterable[ProfileSummary]) -> tuple[ProfileSummary, ...]:
        return tuple(self._summary(each) for each in profiles if may_see(self.key, each))

    def _summary(self, profile: ProfileSummary) -> ProfileSummary:
        """Cut a visible profile: a speed-up over a hidden one is left out."""
        gained = profile.speed_up
        return profile if gained is None or gained.plain in self.profiles else profile.replace(speed_up=None)

    def _engines(self, engines: Mapping[str, Engine]) -> dict[str, Engine]:
        return {name: _engine(one) for name, one in self._by_name(engines).items()}

    def _swaps(self, swaps: Iterable[Swap]) -> tuple[Swap, ...]:
        return tuple(seen for swap in swaps if (seen := self._swap(swap)))

    def _swap(self, swap: Swap | None) -> Swap | None:
        """Cut a swap; None unless at least one profile that comes or goes is visible."""
        if swap is None or not ({swap.target, *swap.evict} & self.profiles):
            return None
        swap = swap.replace(failure=_failure(swap.failure)) if swap.failure else swap
        if self.covers(swap):
            return swap
        part = swap.replace(
            evict=self._names(swap.evict), reasons=self._by_name(swap.reasons), waits_for=None, until=None
        )
        if swap.target in self.profiles:
            return part
        return part.replace(target=None, progress=None, failure=None, steps=())

    def _parked(self, parked: Mapping[str, Parked]) -> dict[str, Parked]:
        return {name: one.replace(failure=_failure(one.failure)) for name, one in self._by_name(parked).items()}

    def _sample(self, sample: Sample) -> Sample:
        nodes = {name: one.replace(memory=self._memory(one.memory)) for name, one in sample.nodes.items()}
        return sample.replace(
            engines=self._by_name(sample.engines),
            memory=self._memory(sample.memory),
            nodes=nodes,
            requests={number: one for number, one in sample.requests.items() if one.profile in self.profiles},
            energy=None,  # tells of every engine's work
        )

    def _memory(self, memory: Memory | None) -> Memory | None:
        return memory and memory.replace(engines=self._by_name(memory.engines), strangers=())

    def _guard(self, guard: Guard) -> Guard:
        return guard.replace(kills=tuple(kill for kill in guard.kills if kill.profile in self.profiles))

    def _by_name(self, told: Mapping[str, T]) -> dict[str, T]:
        return {name: one for name, one in told.items() if name in self.profiles}

    def _names(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name in self.profiles)

    def _name(self, name: str | None) -> str | None:
        return name if name in self.profiles else None


def _engine(engine: Engine) -> Engine:
    return engine if engine.failure is None else engine.replace(failure=_failure(engine.failure))


def _failure(failure: Failure) -> Failure:
    """Cut a failure: the folder of its evidence is a path of the box."""
    return failure.replace(evidence=None)


def _nodes(nodes: Mapping[str, NodeState]) -> dict[str, NodeState]:
    """Cut the nodes to their names and states: reasons, addresses and owed containers are the owner's."""
    return {name: NodeState(name=one.name, status=one.status, since=one.since) for name, one in nodes.items()}

"""Occupancy: the nodes as `fit` sees them once the swaps under way are done, and on which of them an engine comes.

A placement that evicts nobody goes before one that evicts. Of several the preferred one is taken: nodes where no swap
moves memory, then those where the profile ran last, then this box, then the others in their order. Of placements that
evict, the one whose evictions cost least. Of several numbers of nodes the largest is taken that needs nobody to leave,
else the largest that stops no pinned and no busy engine. A node without a box (silent, refused) is no place. Pure.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from sparkdash.domain.cluster import Cables, Topology, groups
from sparkdash.domain.memory import Basis, Need
from sparkdash.domain.node import LOCAL
from sparkdash.domain.request import Task
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.decide import fit, refusals
from sparkdash.supervisor.decide.fit import BoxMemory, Occupant
from sparkdash.supervisor.decide.records import PendingSwap, SchedulerRecords, Stage

Nodes = tuple[str, ...]
NO_CABLES: Cables = MappingProxyType({})
NO_NEEDS: Mapping[int, Need] = MappingProxyType({})


def placements(
    names: Sequence[str],
    *,
    count: int,
    pinned: str | None,
    last: Nodes = (),
    moving: Collection[str] = (),
    cables: Cables = NO_CABLES,
    topologies: Collection[Topology] = (),
) -> list[Nodes]:
    """List the sets of `count` nodes that an engine may run on, each in the order of its ranks; the preferred first."""
    alone: list[Nodes] = [(name,) for name in names if pinned in (None, name)]
    found = alone if count == 1 else groups(names, count, cables, topologies)
    return sorted(found, key=lambda some: (not set(some).isdisjoint(moving), some != last))


def place(
    comer: Occupant,
    occupants: Iterable[Occupant],
    boxes: Mapping[str, BoxMemory],
    places: Sequence[Nodes],
    *,
    person: bool,
    needs: Mapping[int, Need] = NO_NEEDS,
) -> fit.Choice:
    """Choose the nodes of `comer`, and who leaves there. Without any place it is known not to fit.

    `needs`: its need by the number of nodes, where it differs.
    """
    there = list(occupants)
    if not comer.managed:
        return fit.choose(comer, there, boxes, person=person)
    if not places:
        return fit.Choice(needs=comer.need.room_bytes, fits=False)
    comers = (replace(comer, nodes=some, need=needs.get(len(some), comer.need)) for some in places)
    choices = [fit.choose(each, there, boxes, person=person) for each in comers]
    others = [one for one in there if one.profile != comer.profile]
    return min(choices, key=lambda choice: _rank(choice, [one for one in others if one.profile in choice.names]))


def _rank(choice: fit.Choice, gone: Sequence[Occupant]) -> tuple[Any, ...]:
    """Sort key of a choice, the best first; `gone` are those who leave for it, without its own older engine."""
    if choice.refused:  # a person may still say that a pinned engine leaves
        return (True, not choice.pinned, -(choice.available or 0))
    pinned, busy = any(one.pinned for one in gone), any(one.busy for one in gone)
    return (False, bool(gone), choice.fits is not True, pinned, busy, -len(choice.nodes), len(gone), fit.price(gone))


class DecisionFacts(Protocol):
    """Facts about the nodes that decisions need; answered at once, from memory."""

    def boxes(self) -> Mapping[str, BoxMemory]: ...

    def unusable(self) -> Mapping[str, str]: ...

    def differing(self) -> Mapping[str, str]:
        """Nodes that came back other than they were, with the reason: no engine over several nodes comes there."""
        ...

    def cables(self) -> Cables: ...

    def need(self, profile: str, count: int | None = None) -> Need:
        """Memory need of this profile's engine on each of its nodes: the running one, else the one that would come.

        `count`: on that many nodes.
        """
        ...

    def tasks(self, profile: str) -> frozenset[Task] | None: ...

    def reload_s(self, profile: str) -> float | None: ...

    def short(self, profile: str) -> SparkdashError | None:
        """Return why memory lets no load of the profile begin here while nobody leaves for it; None: it may begin."""
        ...


class Occupancy:
    """Answers, from the records, which engines would leave for which."""

    def __init__(self, records: SchedulerRecords, facts: DecisionFacts) -> None:
        self._records = records
        self._facts = facts
        self._before: dict[str, BoxMemory] = {}
        """Memory of each node before the loads under way there took any of it."""

    def choice(self, comer: str, now: float, *, person: bool) -> fit.Choice:
        """Choose where `comer` would come and who leaves. `person`: asked for by name, outside a request."""
        if (swap := self._records.coming(comer)) is not None:
            return swap.choice
        records = self._records
        going = {name for swap in records.swaps.values() for name in swap.evict}
        there = [self._occupant(name, now) for name in records.residents if name not in going]
        there += [self._newcomer(name) for name in records.swaps if name is not None and records.coming(name)]
        boxes = {node: self._forecast_of(node, box) for node, box in self._facts.boxes().items()}
        counts = self._counts(comer)
        places = [place for count in counts for place in self._places(comer, boxes, count)]
        needs = {count: self._facts.need(comer, count) for count in counts} if len(counts) > 1 else NO_NEEDS
        return place(self._occupant(comer, now), there, boxes, places, person=person, needs=needs)

    def _counts(self, comer: str) -> tuple[int, ...]:
        known = self._records.profiles.get(comer)
        return known.counts if known else (max(1, len(self._records.ran_on.get(comer, ()))),)

    def _places(self, comer: str, boxes: Iterable[str], count: int) -> list[Nodes]:
        records = self._records
        known = records.profiles.get(comer)
        differing = self._facts.differing() if count > 1 else ()
        return placements(
            [name for name in boxes if name not in differing],
            count=count,
            pinned=known.node if known else None,
            last=records.ran_on.get(comer, ()),
            moving=frozenset().union(*(swap.nodes for swap in records.swaps.values())),
            cables=self._facts.cables() if count > 1 else NO_CABLES,
            topologies=known.topologies if known else (),
        )

    def auto(self, task: Task | None, client: str | None) -> str | None:
        return self._records.auto(task, client, self._facts.tasks)

    def refusal(self, comer: str, choice: fit.Choice) -> SparkdashError | None:
        if not choice.refused:
            return None if choice.leaving else self.hold(comer, choice)
        known = self._records.profiles.get(comer)
        if not choice.nodes and known is not None:
            unusable = {**self._facts.unusable(), **(self._facts.differing() if max(known.counts) > 1 else {})}
            usable = [name for name in self._facts.boxes() if name not in unusable]
            return refusals.unplaced(comer, known, usable, unusable, self._facts.cables())
        return refusals.no_room(comer, self._need(comer, choice), choice, self._facts.boxes())

    def hold(self, comer: str, choice: fit.Choice) -> SparkdashError | None:
        """Return why memory lets no load of the profile begin now; None when it may, or has begun."""
        if self._records.coming(comer) or not self._records.managed(comer) or LOCAL not in choice.nodes:
            return None
        return self._facts.short(comer)

    def beside(self, comer: str, choice: fit.Choice) -> bool:
        """Whether the profile may load beside the loads on its nodes: all engines stay, and each need is known."""
        moving = self._records.moving_on(choice.nodes)
        loads = [swap.target for swap in moving if swap.target is not None]
        return choice.fits is True and not choice.leaving and all(map(self._predictable, (comer, *loads)))

    def _need(self, comer: str, choice: fit.Choice) -> Need:
        return self._facts.need(comer, len(choice.nodes)) if len(self._counts(comer)) > 1 else self._facts.need(comer)

    def _predictable(self, name: str) -> bool:
        known = self._records.profiles.get(name)
        sure = self._facts.need(name).basis in (Basis.LEARNED, Basis.DECLARED)
        return sure and known is not None and not known.loads_alone

    def begun(self, swap: PendingSwap) -> None:
        """Remember the memory of its nodes before this swap moves any, unless other swaps move it already."""
        if not swap.moves_memory:
            return
        swap.nodes = self._records.touched(swap.choice)
        swap.frees = {node: self._held_on(node, swap.evict) for node in swap.nodes}
        swap.takes = self._need(swap.target, swap.choice).total_bytes or 0 if swap.target is not None else 0
        boxes = self._facts.boxes()
        self._before |= {node: boxes[node] for node in swap.nodes if node in boxes and node not in self._before}

    def ended(self, swap: PendingSwap, *, came: bool) -> None:
        """Account for what a finished swap has left behind, for as long as others move memory."""
        for node in swap.nodes & self._before.keys():
            if not self._records.moving_on([node]):
                del self._before[node]
            else:
                took = swap.takes if came and node in swap.choice.nodes else 0
                self._before[node] = _with(self._before[node], swap.frees[node] - took)

    def _forecast_of(self, node: str, box: BoxMemory) -> BoxMemory:
        """Forecast a node's memory once coming engines are loaded, and stopping ones have given back theirs."""
        swaps = self._records.moving_on([node])
        loads = [swap for swap in swaps if _loads_on(swap, node)]
        takes = sum(swap.takes for swap in loads)
        if not loads or node not in self._before:  # a load whose node told nothing when it began may count twice
            return _with(box, sum(self._held_on(node, swap.evict) for swap in swaps) - takes)
        return _with(self._before[node], sum(swap.frees[node] for swap in swaps) - takes)

    def _held_on(self, node: str, names: Iterable[str]) -> int:
        """Return the bytes that these engines hold on a node, without those that have left it."""
        residents = self._records.residents
        return sum(self._held(name) for name in names if name in residents and node in residents[name].nodes)

    def _newcomer(self, name: str) -> Occupant:
        waiting, choice = self._records.waiting_for(name), self._records.swaps[name].choice
        return Occupant(name, self._need(name, choice), choice.nodes, self._records.managed(name), busy=waiting)

    def _held(self, name: str) -> int:
        return self._facts.need(name).total_bytes or 0

    def _occupant(self, name: str, now: float) -> Occupant:
        known, resident = self._records.profiles.get(name), self._records.residents.get(name)
        return Occupant(
            name,
            need=self._facts.need(name),
            nodes=resident.nodes if resident else (),
            managed=resident.managed if resident else self._records.managed(name),
            pinned=known is not None and known.pinned,
            unstopped=resident is not None and not resident.ready,
            stuck=resident is not None and resident.stuck,
            busy=self._records.in_flight(name),
            idle_s=now - max(resident.ready_at, resident.used_at or resident.ready_at) if resident else 0.0,
            reload_s=self._facts.reload_s(name),
        )


def _loads_on(swap: PendingSwap, node: str) -> bool:
    return swap.target is not None and node in swap.choice.nodes and swap.stage is not Stage.CANCELLING


def _with(box: BoxMemory, more: int) -> BoxMemory:
    return box if box.available is None else replace(box, available=box.available + more)

"""Occupancy: the box as `fit` sees it, once the swaps under way are done.

Owns: how residents, leases and swaps become occupants, and the forecast of memory behind the swaps. Must not decide
which profiles leave: `fit` does.

Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from sparkdash.domain.memory.need import Basis, Need
from sparkdash.domain.task import Task
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.scheduling import fit, refusals
from sparkdash.supervisor.scheduling.records import PendingSwap, SchedulerRecords, Stage


class BoxFacts(Protocol):
    """Facts about the box that decisions need; answered at once, from memory."""

    def box(self) -> fit.BoxMemory:
        """Memory of the box now."""
        ...

    def need(self, profile: str) -> Need:
        """Memory need of this profile's engine: the running one, else the one that would come."""
        ...

    def tasks(self, profile: str) -> frozenset[Task] | None:
        """Tasks that the profile's engine can do; None: not known."""
        ...

    def reload_s(self, profile: str) -> float | None:
        """Seconds to bring the profile up; None is unknown."""
        ...

    def short(self, profile: str) -> SparkdashError | None:
        """Why no load of it may begin while nobody leaves for it: memory is short. None: it may."""
        ...


class Occupancy:
    """Answers, from the records, which engines would leave for which."""

    def __init__(self, records: SchedulerRecords, facts: BoxFacts) -> None:
        self._records = records
        self._facts = facts
        self._before: fit.BoxMemory | None = None
        """Memory of the box before the loads under way took any of it."""

    def choice(self, comer: str, now: float, *, person: bool) -> fit.Choice:
        """Choose who leaves if `comer` were next. `person`: asked for by name, outside a request."""
        if (swap := self._records.coming(comer)) is not None:
            return swap.choice
        records = self._records
        going = {name for swap in records.swaps.values() for name in swap.evict}
        there = [self._occupant(name, now) for name in records.residents if name not in going]
        there += [self._newcomer(name) for name in records.swaps if name is not None and records.coming(name)]
        return fit.choose(self._occupant(comer, now), there, self._forecast(), person=person)

    def auto(self, task: Task | None, client: str | None) -> str | None:
        """Choose the profile that `auto` means for this request; None: nothing that runs or comes can do it."""
        return self._records.auto(task, client, self._facts.tasks)

    def refusal(self, comer: str, choice: fit.Choice) -> SparkdashError | None:
        """Why it cannot come, in words; None when nothing is known that is against it."""
        if choice.refused:
            return refusals.no_room(comer, self._facts.need(comer), choice, self._facts.box())
        return None if choice.leaving else self.hold(comer)

    def hold(self, comer: str) -> SparkdashError | None:
        """Why no load of it may begin as memory is now; None when one may, or begins already, or takes nothing here."""
        if self._records.coming(comer) or not self._records.managed(comer):
            return None
        return self._facts.short(comer)

    def beside(self, comer: str, choice: fit.Choice) -> bool:
        """Whether the profile may load beside the loads under way: all of them stay, and the need of each is known."""
        loads = [swap.target for swap in self._records.swaps.values() if swap.moves_memory and swap.target is not None]
        return choice.fits is True and not choice.leaving and all(map(self._predictable, (comer, *loads)))

    def _predictable(self, name: str) -> bool:
        known = self._records.profiles.get(name)
        sure = self._facts.need(name).basis in (Basis.LEARNED, Basis.DECLARED)
        return sure and known is not None and not known.loads_alone

    def begun(self, swap: PendingSwap) -> None:
        """Remember the box's memory before this swap moves any, unless other swaps move it already."""
        swap.frees = sum(self._held(name) for name in swap.evict)
        swap.takes = self._held(swap.target) if swap.target is not None and swap.moves_memory else 0
        if swap.moves_memory and self._before is None:
            self._before = self._facts.box()

    def ended(self, swap: PendingSwap, *, came: bool) -> None:
        """Account for what a finished swap has left behind, for as long as others move memory."""
        if self._records.at_rest:
            self._before = None
        elif self._before is not None:
            self._before = _with(self._before, swap.frees - (swap.takes if came else 0))

    def _forecast(self) -> fit.BoxMemory:
        """Forecast of the box's memory once coming engines are loaded, and stopping ones have given back theirs."""
        swaps = [swap for swap in self._records.swaps.values() if swap.moves_memory]
        loads = [swap for swap in swaps if swap.target is not None and swap.stage is not Stage.CANCELLING]
        if not loads or self._before is None:
            return _with(self._facts.box(), sum(map(self._still_held, swaps)))
        return _with(self._before, sum(swap.frees for swap in swaps) - sum(swap.takes for swap in loads))

    def _still_held(self, swap: PendingSwap) -> int:
        """Bytes of evicted engines that are still there."""
        return sum(self._held(name) for name in swap.evict if name in self._records.residents)

    def _newcomer(self, name: str) -> fit.Occupant:
        waiting = self._records.waiting_for(name)
        return fit.Occupant(name, self._facts.need(name), self._records.managed(name), busy=waiting)

    def _held(self, name: str) -> int:
        return self._facts.need(name).total_bytes or 0

    def _occupant(self, name: str, now: float) -> fit.Occupant:
        known, resident = self._records.profiles.get(name), self._records.residents.get(name)
        return fit.Occupant(
            name,
            need=self._facts.need(name),
            managed=resident.managed if resident else self._records.managed(name),
            pinned=known is not None and known.pinned,
            unstopped=resident is not None and not resident.ready,
            stuck=resident is not None and resident.stuck,
            busy=self._records.in_flight(name),
            idle_s=now - max(resident.ready_at, resident.used_at or resident.ready_at) if resident else 0.0,
            reload_s=self._facts.reload_s(name),
        )


def _with(box: fit.BoxMemory, more: int) -> fit.BoxMemory:
    return box if box.available is None else replace(box, available=box.available + more)

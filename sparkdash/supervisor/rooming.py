"""The world as `fit` wants it: who is there once the swap under way is done, and what the box has then. Pure.

Owns: how residents, leases and the swap become occupants, and the forecast of memory behind a swap. Must not decide
who leaves: `fit` does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from sparkdash.domain.need import Need
from sparkdash.errors import SparkdashError
from sparkdash.supervisor import fit, refusals
from sparkdash.supervisor.records import Records, Stage


class Scales(Protocol):
    """What decisions ask the world for; answered at once, from memory."""

    def box(self) -> fit.Box:
        """The box's memory now."""
        ...

    def need(self, profile: str) -> Need:
        """What this profile's engine takes: the one that runs, else the one that would come."""
        ...

    def reload_s(self, profile: str) -> float | None:
        """How long bringing it up takes; None is unknown."""
        ...

    def short(self, profile: str) -> SparkdashError | None:
        """Why no load of it may begin while nobody leaves for it: memory is short. None: it may."""
        ...


class Rooming:
    """Who would leave for whom, asked of the books at one moment."""

    def __init__(self, records: Records, scales: Scales) -> None:
        self._records = records
        self._scales = scales
        self._after: fit.Box | None = None
        """The box once the target of the swap under way has come."""

    def choice(self, comer: str, now: float, *, person: bool) -> fit.Choice:
        """Who leaves if `comer` were to come next. `person`: someone asked for it by name, outside a request."""
        swap = self._records.swap
        if swap is not None and self._comes(comer):
            return swap.choice
        coming = swap.target if swap and swap.stage is not Stage.CANCELLING else None
        there = [self._occupant(name, now) for name in self._records.residents if not (swap and name in swap.evict)]
        if coming is not None:
            waiting = self._records.waiting_for(coming)
            there.append(fit.Occupant(coming, self._scales.need(coming), self._records.managed(coming), busy=waiting))
        box = self._after if coming is not None and self._after is not None else self._scales.box()
        if swap is not None and coming is None:  # what only goes gives back what it holds
            box = _with(box, sum(self._held(name) for name in swap.evict if name in self._records.residents))
        return fit.choose(self._occupant(comer, now), there, box, person=person)

    def refusal(self, comer: str, choice: fit.Choice) -> SparkdashError | None:
        """Why it cannot come, in words; None when nothing is known that is against it."""
        if choice.refused:
            return refusals.no_room(comer, self._scales.need(comer), choice, self._scales.box())
        return None if choice.leaving else self.hold(comer)

    def hold(self, comer: str) -> SparkdashError | None:
        """Why no load of it may begin as memory is now; None when one may, or begins already, or takes nothing here."""
        if self._comes(comer) or not self._records.managed(comer):
            return None
        return self._scales.short(comer)

    def begun(self, target: str | None, choice: fit.Choice) -> None:
        """A swap begins: remember what the box will have behind it."""
        if target is None:
            self._after = None
            return
        freed = sum(self._held(name) for name in choice.names)
        taken = self._held(target) if self._records.managed(target) else 0
        self._after = _with(self._scales.box(), freed - taken)

    def _comes(self, name: str) -> bool:
        swap = self._records.swap
        return swap is not None and swap.target == name and swap.stage is not Stage.CANCELLING

    def _held(self, name: str) -> int:
        return self._scales.need(name).total_bytes or 0

    def _occupant(self, name: str, now: float) -> fit.Occupant:
        known, resident = self._records.profiles.get(name), self._records.residents.get(name)
        return fit.Occupant(
            name,
            need=self._scales.need(name),
            managed=resident.managed if resident else self._records.managed(name),
            pinned=known is not None and known.pinned,
            stuck=resident is not None and not resident.ready,
            busy=self._records.in_flight(name),
            idle_s=now - max(resident.ready_at, resident.used_at or resident.ready_at) if resident else 0.0,
            reload_s=self._scales.reload_s(name),
        )


def _with(box: fit.Box, more: int) -> fit.Box:
    return box if box.available is None else replace(box, available=box.available + more)

"""Who leaves for whom on one box, as decided before there were nodes: what `fit` is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from sparkdash.domain.memory import Basis
from sparkdash.supervisor.decide.fit import BoxMemory, Occupant, must_be_free
from sparkdash.units import duration, gib

RESTARTED = "it is started again from its newer file"
REPAIRED = "it is stuck, so it is started again"
MINUTE = 60.0
"""Engines whose last use lies within the same minute count as equally old."""


@dataclass(frozen=True, slots=True)
class Leaver:
    """An engine that has to leave, and why."""

    profile: str
    reason: str


@dataclass(frozen=True, slots=True)
class BoxChoice:
    """Engines that leave for a newcomer, and the memory that results, in bytes."""

    leaving: tuple[Leaver, ...] = ()
    needs: int | None = None
    available: int | None = None
    """Memory for the newcomer once they have left, less the reserve; a lower bound while one of them is unknown."""
    fits: bool | None = None
    """Whether the newcomer fits; None: not known, and the start is tried."""
    pinned: tuple[str, ...] = ()
    """Pinned engines that would have to leave: only a person evicts them."""

    @property
    def names(self) -> tuple[str, ...]:
        """Profiles that leave."""
        return tuple(one.profile for one in self.leaving)

    @property
    def refused(self) -> bool:
        """Whether the newcomer is known not to come."""
        return self.fits is False or bool(self.pinned)


def choose_on_one_box(comer: Occupant, occupants: Iterable[Occupant], box: BoxMemory, *, person: bool) -> BoxChoice:
    """Choose which of `occupants` leave so that `comer` can come. `person`: asked for by name, outside a request.

    The comer is among those who leave when it is there already: this is a restart.
    """
    if not comer.managed:
        again = [Leaver(o.profile, _again(o)) for o in occupants if o.profile == comer.profile]
        return BoxChoice(tuple(again), fits=True)
    ask = _BoxQuestion(comer, [o for o in occupants if o.managed], box)
    if held := ask.pinned_that_must_leave(person=person):
        return ask.choice((), pinned=held)
    for candidates in ask.candidates(person=person):
        if (found := ask.smallest(candidates)) is not None:
            return ask.choice([*ask.must, *found])
    return ask.everyone(person=person)


class _BoxQuestion:
    """A decision about room: the newcomer, the engines that are there, and the box's memory."""

    def __init__(self, comer: Occupant, there: Sequence[Occupant], box: BoxMemory) -> None:
        self._comer, self._there, self._box = comer, there, box
        self._needs = comer.need.room_bytes
        self.must = [o for o in there if self._why_it_must(o) is not None]
        """Engines that must leave, whatever the figures say."""
        self._rest = [o for o in there if o not in self.must]

    def pinned_that_must_leave(self, *, person: bool) -> tuple[str, ...]:
        """Name the pinned engines that must leave; none for a person, who may evict them."""
        if person:
            return ()
        return tuple(o.profile for o in self.must if o.pinned and o.profile != self._comer.profile)

    def candidates(self, *, person: bool) -> list[list[Occupant]]:
        """Return the sets to choose from, in order: idle engines, unpinned ones, and for a person all."""
        unpinned = [o for o in self._rest if not o.pinned]
        idle = [o for o in unpinned if not o.busy]
        return [idle, unpinned, self._rest] if person else [idle, unpinned]

    def smallest(self, candidates: Sequence[Occupant]) -> Sequence[Occupant] | None:
        """Find the fewest of `candidates` that make room once all that must have left; of several sets the cheapest."""
        for size in range(len(candidates) + 1):
            enough = [some for some in combinations(candidates, size) if self._makes_room([*self.must, *some])]
            if enough:
                return min(enough, key=_price)
        return None

    def everyone(self, *, person: bool) -> BoxChoice:
        """Build the choice where no set makes room: all leave, or the pinned ones among them prevent it."""
        everyone = self.choice(self._there)
        if person or everyone.fits is False or not any(o.pinned for o in self._rest):
            return everyone
        found = self.smallest(self._rest) or self._rest
        return self.choice((), pinned=tuple(o.profile for o in found if o.pinned))

    def choice(self, leaving: Sequence[Occupant], *, pinned: tuple[str, ...] = ()) -> BoxChoice:
        """Build the choice, with the leaving engines in the order in which they came."""
        gone = [o for o in self._there if o in leaving]
        told = tuple(Leaver(o.profile, self._why_it_must(o) or _standing(o)) for o in gone)
        return BoxChoice(told, self._needs, self._room(gone), self._fits(gone), pinned)

    def _makes_room(self, gone: Sequence[Occupant]) -> bool:
        room = self._room(gone)
        return self._needs is None or room is None or self._needs <= room

    def _room(self, gone: Sequence[Occupant]) -> int | None:
        box = self._box
        if box.available is None:
            return None
        free = box.available + sum(o.need.total_bytes or 0 for o in gone)
        if box.total is not None:  # page cache that an engine lives in counts as available, and is not
            free = min(free, box.total - sum(o.need.total_bytes or 0 for o in self._there if o not in gone))
        return free - box.reserve

    def _fits(self, gone: Sequence[Occupant]) -> bool | None:
        room, box = self._room(gone), self._box
        asked = must_be_free(self._comer.need, box.reserve, alone=len(gone) == len(self._there))
        if asked is None:
            return self._surely_fits(gone)
        if box.total is not None and asked > box.total:
            return False
        if room is None or asked <= room + box.reserve:
            return None if room is None else True
        return False if self._is_sure(gone) else None

    def _surely_fits(self, gone: Sequence[Occupant]) -> bool | None:
        """Whether a need that refuses nobody fits by the figures; None: not known."""
        known = self._needs is not None and self._box.available is not None
        return True if known and self._makes_room(gone) else None

    def _is_sure(self, gone: Sequence[Occupant]) -> bool:
        """Whether a shortage rests on measured figures alone."""
        return all(o.need.basis is Basis.LEARNED for o in gone) and not self._box.owed

    def _why_it_must(self, one: Occupant) -> str | None:
        if one.profile == self._comer.profile:
            return _again(one)
        if one.unstopped:
            return "it would not stop before, and is in the way"
        if not self._box.side_by_side:
            return "engines run one at a time (`side_by_side` in config.toml)"
        if self._needs is None:
            return f"what {self._comer.profile} needs is not known, so it runs alone"
        if self._box.available is None:
            return "what is available is not known, so engines run alone"
        if one.need.total_bytes is None:
            return "what it takes is not known, so nothing runs beside it"
        return None


def _again(one: Occupant) -> str:
    return REPAIRED if one.stuck else RESTARTED


def _price(some: Sequence[Occupant]) -> tuple[int, int, int, list[float], float]:
    """Rank a set of engines by what its end costs: pinned, serving, busy, lately used, slow to reload."""
    return (
        sum(o.pinned for o in some),
        sum(not o.stuck for o in some),
        sum(bool(o.busy) for o in some),
        sorted((-(o.idle_s // MINUTE) for o in some), reverse=True),
        sum(o.reload_s or 0.0 for o in some),
    )


def _standing(one: Occupant) -> str:
    """Why it is a fair choice."""
    if one.stuck:
        words = "it is stuck and serves nobody"
    elif one.busy:
        words = f"no idle engine frees enough; its {one.busy} request{'s' if one.busy > 1 else ''} may finish"
    else:
        words = f"idle for {duration(one.idle_s)}"
    pinned = "pinned, and nothing else frees enough; " if one.pinned else ""
    return f"{pinned}{words}; it frees {gib(one.need.total_bytes)}"

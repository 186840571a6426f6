"""Fit: which engines must leave so that another can come, why, and whether it fits at all.

An engine runs on one node or several, and needs the same on each. Each node has memory of its own, so all rules hold
per node: an engine on other nodes neither is in the way nor makes room.

Rule 1: as many managed engines as really fit. The newcomer must fit into available memory, and all together into the
box; both keep the reserve free.
Rule 2: an engine whose need is not known runs alone, and no engine starts beside it.
Rule 3: the smallest set that makes room leaves. Idle engines go before busy ones, then the longest unused, then the
quickest to reload. A pinned engine leaves only for a person.
Rule 4: a request that is known not to fit is refused before any engine leaves. A shortage that rests on figures that
were never measured is not known. Then room is made, and the look at the box before the start decides (`must_be_free`).
Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from sparkdash.domain.memory import Basis, Need
from sparkdash.domain.node import LOCAL
from sparkdash.units import counted, duration, gib

NOT_KNOWN = Need()


@dataclass(frozen=True, slots=True)
class BoxMemory:
    """Memory of one node now, in bytes. None is unknown."""

    total: int | None = None
    available: int | None = None
    reserve: int = 0
    more_is_coming: bool = False
    """More is on its way back than was measured."""
    holders: str | None = None
    """Other large holders of memory, in a sentence, if they were looked at lately."""
    side_by_side: bool = True


@dataclass(frozen=True, slots=True)
class Occupant:
    """An engine as far as memory is concerned: one that is there, or the one that comes."""

    profile: str
    need: Need = NOT_KNOWN
    nodes: tuple[str, ...] = (LOCAL,)
    """Nodes that the engine runs on, or would; the serving one first."""
    managed: bool = True
    """False: it is someone else's; it takes no place and is never evicted."""
    pinned: bool = False
    unstopped: bool = False
    """Whether the engine would not stop; it serves nobody and is in the way."""
    stuck: bool = False
    busy: int = 0
    idle_s: float = 0.0
    reload_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """Room for a newcomer on one node, once those who leave for it have left."""

    node: str
    available: int | None
    fits: bool | None
    """Whether the newcomer fits there; None: not known, and the start is tried."""


def must_be_free(need: Need, reserve: int, *, alone: bool) -> int | None:
    """Return the bytes that must be available before a start; None: the engine's own check decides."""
    needs = need.room_bytes
    if needs is None or (alone and need.basis is Basis.ESTIMATED):
        return None
    return needs if alone and need.basis is Basis.LEARNED else needs + reserve


class NodeQuestion:
    """The part of a decision about room that concerns one node."""

    def __init__(self, node: str, comer: Occupant, there: Sequence[Occupant], box: BoxMemory) -> None:
        self.node = node
        self.there = [o for o in there if node in o.nodes]
        self._comer, self._box = comer, box
        self._needs = comer.need.room_bytes

    def makes_room(self, gone: Sequence[Occupant]) -> bool:
        """Whether the newcomer has room here once these have left, as far as known."""
        room = self._room(gone)
        return self._needs is None or room is None or self._needs <= room

    def room(self, gone: Sequence[Occupant]) -> NodeRoom:
        return NodeRoom(self.node, self._room(gone), self._fits(gone))

    def _room(self, gone: Sequence[Occupant]) -> int | None:
        box = self._box
        if box.available is None:
            return None
        free = box.available + sum(o.need.total_bytes or 0 for o in self.there if o in gone)
        if box.total is not None:  # page cache that holds an engine's weights counts as available, and is not
            free = min(free, box.total - sum(o.need.total_bytes or 0 for o in self.there if o not in gone))
        return free - box.reserve

    def _fits(self, gone: Sequence[Occupant]) -> bool | None:
        room, box = self._room(gone), self._box
        asked = must_be_free(self._comer.need, box.reserve, alone=all(o in gone for o in self.there))
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
        return True if known and self.makes_room(gone) else None

    def _is_sure(self, gone: Sequence[Occupant]) -> bool:
        return all(o.need.basis is Basis.LEARNED for o in self.there if o in gone) and not self._box.more_is_coming

    def why_it_must(self, one: Occupant) -> str | None:
        """Why an engine of this node must leave, whatever the figures say; None when it need not."""
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


RESTARTED = "it is started again from its newer file"
REPAIRED = "it is stuck, so it is started again"
MINUTE = 60.0
"""Engines whose last use lies within the same minute count as equally old."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """An engine that has to leave, and why."""

    profile: str
    reason: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Nodes for a newcomer, engines that leave for it, and the memory that results, in bytes."""

    leaving: tuple[Leaving, ...] = ()
    needs: int | None = None
    available: int | None = None
    """Bytes for the newcomer on the tightest node, less the reserve; a lower bound while one that leaves is unknown."""
    fits: bool | None = None
    pinned: tuple[str, ...] = ()
    """Pinned engines that would have to leave: only a person evicts them."""
    nodes: tuple[str, ...] = ()
    """Nodes for the newcomer, the serving one first; empty without one, and for an engine that is not ours."""
    rooms: tuple[NodeRoom, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.profile for one in self.leaving)

    @property
    def tightest(self) -> str:
        return min(self.rooms, key=_tightness).node if self.rooms else LOCAL

    @property
    def refused(self) -> bool:
        """Whether the newcomer is known not to come."""
        return self.fits is False or bool(self.pinned)


def choose(comer: Occupant, occupants: Iterable[Occupant], boxes: Mapping[str, BoxMemory], *, person: bool) -> Choice:
    """Choose which of `occupants` leave so that `comer` can come; itself, for a restart. `person`: not a request."""
    if not comer.managed:
        again = [Leaving(o.profile, _again(o)) for o in occupants if o.profile == comer.profile]
        return Choice(tuple(again), fits=True)
    ask = _FitQuestion(comer, [o for o in occupants if o.managed and _in_the_way(o, comer)], boxes)
    if held := ask.pinned_that_must_leave(person=person):
        return ask.choice((), pinned=held)
    found = ask.cheapest(person=person)
    return ask.everyone(person=person) if found is None else ask.choice([*ask.must, *found])


class _FitQuestion:
    """A decision about room. On `hopeless` nodes nobody's end makes room: all leave there, and the start is tried."""

    def __init__(
        self, comer: Occupant, there: Sequence[Occupant], boxes: Mapping[str, BoxMemory], hopeless: Sequence[str] = ()
    ) -> None:
        self._comer, self._there, self._boxes = comer, there, boxes
        self._nodes = [NodeQuestion(node, comer, there, boxes[node]) for node in comer.nodes]
        self._asked = [each for each in self._nodes if each.node not in hopeless]
        self.must = [o for o in there if self._why_it_must(o) is not None or not {*hopeless}.isdisjoint(o.nodes)]
        """Engines that must leave, whatever the figures say."""
        self._rest = [o for o in there if o not in self.must]

    def pinned_that_must_leave(self, *, person: bool) -> tuple[str, ...]:
        """Name the pinned engines that must leave; none for a person, who may evict them."""
        if person:
            return ()
        return tuple(o.profile for o in self.must if o.pinned and o.profile != self._comer.profile)

    def cheapest(self, *, person: bool) -> Sequence[Occupant] | None:
        """Find who leaves besides those who must, at least cost; None when no set makes room."""
        unpinned = [o for o in self._rest if not o.pinned]
        idle = [o for o in unpinned if not o.busy]
        candidates = [idle, unpinned, self._rest] if person else [idle, unpinned]
        return next((found for each in candidates if (found := self._smallest(each)) is not None), None)

    def _smallest(self, candidates: Sequence[Occupant]) -> Sequence[Occupant] | None:
        for size in range(len(candidates) + 1):
            enough = [some for some in combinations(candidates, size) if self._makes_room([*self.must, *some])]
            if enough:
                return min(enough, key=price)
        return None

    def everyone(self, *, person: bool) -> Choice:
        """Build the choice where no set makes room: all leave, unless a pinned engine prevents it."""
        everyone = self.choice(self._there)
        if everyone.fits is False:
            return everyone
        hopeless = [each.node for each in self._nodes if not each.makes_room(self._there)]
        tried = _FitQuestion(self._comer, self._there, self._boxes, hopeless)
        if held := tried.pinned_that_must_leave(person=person):
            return self.choice((), pinned=held)
        if (found := tried.cheapest(person=person)) is not None:
            return self.choice([*tried.must, *found])
        found = tried.cheapest(person=True) or ()
        return self.choice((), pinned=tuple(o.profile for o in found if o.pinned))

    def choice(self, leaving: Sequence[Occupant], *, pinned: tuple[str, ...] = ()) -> Choice:
        gone = [o for o in self._there if o in leaving]
        told = tuple(Leaving(o.profile, self._why_it_must(o) or _standing(o)) for o in gone)
        rooms = tuple(each.room(gone) for each in self._nodes)
        tightest = min(rooms, key=_tightness)
        return Choice(
            told, self._comer.need.room_bytes, tightest.available, tightest.fits, pinned, self._comer.nodes, rooms
        )

    def _makes_room(self, gone: Sequence[Occupant]) -> bool:
        return all(each.makes_room(gone) for each in self._asked)

    def _why_it_must(self, one: Occupant) -> str | None:
        if one.profile == self._comer.profile:
            return _again(one)
        return next((why for each in self._nodes if one in each.there and (why := each.why_it_must(one))), None)


def _in_the_way(one: Occupant, comer: Occupant) -> bool:
    return one.profile == comer.profile or not set(comer.nodes).isdisjoint(one.nodes)


def _tightness(room: NodeRoom) -> tuple[bool, bool, int]:
    """Sort key: the node that decides comes first."""
    return room.fits is not False, room.fits is not None, -1 if room.available is None else room.available


def _again(one: Occupant) -> str:
    return REPAIRED if one.stuck else RESTARTED


def price(some: Sequence[Occupant]) -> tuple[int, int, int, list[float], float]:
    """Rank a set of engines by what its end costs: pinned, serving, busy, lately used, slow to reload."""
    return (
        sum(o.pinned for o in some),
        sum(not o.stuck for o in some),
        sum(bool(o.busy) for o in some),
        sorted((-(o.idle_s // MINUTE) for o in some), reverse=True),
        sum(o.reload_s or 0.0 for o in some),
    )


def _standing(one: Occupant) -> str:
    if one.stuck:
        words = "it is stuck and serves nobody"
    elif one.busy:
        words = f"no idle engine frees enough; its {counted(one.busy, 'request')} may finish"
    else:
        words = f"idle for {duration(one.idle_s)}"
    pinned = "pinned, and nothing else frees enough; " if one.pinned else ""
    return f"{pinned}{words}; it frees {gib(one.need.total_bytes)}"

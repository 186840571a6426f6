"""Room: the memory of one node, the engines there, and whether a newcomer has room on it.

Owns: the figures that `fit` decides by. Must not choose who leaves, nor on which node an engine runs.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkdash.domain.memory.need import Basis, Need
from sparkdash.domain.node import LOCAL

NOT_KNOWN = Need()


@dataclass(frozen=True, slots=True)
class BoxMemory:
    """Memory of one node now, in bytes. None is unknown."""

    total: int | None = None
    available: int | None = None
    """Memory that can be taken, with what engines that ended lately are known to give back."""
    reserve: int = 0
    """Bytes that are kept free."""
    owed: bool = False
    """More is on its way back than was measured."""
    holders: str | None = None
    """Other large holders of memory, in a sentence, if they were looked at lately."""
    side_by_side: bool = True
    """False: the owner wants one engine at a time."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """An engine as far as memory is concerned: one that is there, or the one that comes."""

    profile: str
    need: Need = NOT_KNOWN
    """Need on each node of the engine."""
    nodes: tuple[str, ...] = (LOCAL,)
    """Nodes that the engine runs on, or would; the serving one first."""
    managed: bool = True
    """False: it is someone else's; it takes no place and is never evicted."""
    pinned: bool = False
    unstopped: bool = False
    """Whether the engine would not stop; it serves nobody and is in the way."""
    stuck: bool = False
    """Whether the engine makes no progress and serves nobody for now."""
    busy: int = 0
    """Requests on the engine."""
    idle_s: float = 0.0
    """Seconds since its last use."""
    reload_s: float | None = None
    """Seconds to bring it back; None is unknown."""


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """Room for a newcomer on one node, once those who leave for it have left."""

    node: str
    available: int | None
    """Bytes less the reserve; a lower bound while the need of one that leaves is unknown."""
    fits: bool | None
    """Whether the newcomer fits there; None: not known, and the start is tried."""


def must_be_free(need: Need, reserve: int, *, alone: bool) -> int | None:
    """Return the bytes that must be available before a start; None: the start is tried and the engine's own check
    decides.

    Beside others the reserve is always kept. One that runs alone may use it when that was seen to go well here:
        owners give an engine up to 87 % of the box. And an estimate alone is no reason to refuse what may well run.
    """
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
        """Return the room here once these have left."""
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
        """Whether a shortage rests on measured figures alone."""
        return all(o.need.basis is Basis.LEARNED for o in self.there if o in gone) and not self._box.owed

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

"""A scheduler whose time stands still, with shorthands to feed it moves and read its effects."""

from __future__ import annotations

from typing import Any

from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.node import LOCAL
from sparkdash.domain.request import Task
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import EngineError, SparkdashError
from sparkdash.supervisor.decide.fit import BoxMemory
from sparkdash.supervisor.decide.moves import Adopted, Arrive, Effect, Move, ProfileFacts, Wait
from sparkdash.supervisor.decide.queue import Patience
from sparkdash.supervisor.decide.scheduler import Scheduler
from sparkdash.units import GIB

REQUEST = SwapCause.REQUEST
ERROR = EngineError("It died.", code="engine_crash")


class Rig:
    """A scheduler whose time stands still, on a box of which nothing is known: engines run alone."""

    def __init__(self, limit: int) -> None:
        profiles = {name: ProfileFacts(f"f-{name}") for name in "abc"}
        self.scheduler = Scheduler(
            {**profiles, "far": ProfileFacts("f-far", managed=False)},
            queue_limit=limit,
            facts=self,
            patience=Patience(),
        )
        self.records = self.scheduler.records
        self.now = 0.0
        self.shortage: SparkdashError | None = None
        self.able: dict[str, frozenset[Task]] = {}

    def handle(self, move: Move) -> list[Effect]:
        return self.scheduler.handle(move, self.now)

    @property
    def stopping(self) -> bool:
        return self.scheduler.stopping

    def boxes(self) -> dict[str, BoxMemory]:
        return {LOCAL: self.box()}

    def differing(self) -> dict[str, str]:
        return {}

    def cables(self) -> dict[str, frozenset[str]]:
        return {}

    def unusable(self) -> dict[str, str]:
        return {}

    def box(self) -> BoxMemory:
        return BoxMemory()

    def need(self, profile: str, count: int | None = None) -> Need:
        return Need()

    def tasks(self, profile: str) -> frozenset[Task] | None:
        return self.able.get(profile)

    def reload_s(self, profile: str) -> float | None:
        return None

    def short(self, profile: str) -> SparkdashError | None:
        return self.shortage


def new(*, limit: int = 100) -> Rig:
    """Three managed profiles, one that is elsewhere, nothing running."""
    return Rig(limit)


def with_a(*, limit: int = 100) -> Rig:
    scheduler = new(limit=limit)
    scheduler.handle(Adopted("a", "f-a"))
    return scheduler


def arrive(id_: str, profile: str | None) -> Arrive:
    return Arrive(id_, profile)


def feed(scheduler: Rig, *moves: Move) -> list[Effect]:
    """The effects of all of them, places left out."""
    effects = [effect for move in moves for effect in scheduler.handle(move)]
    return [effect for effect in effects if not isinstance(effect, Wait)]


class Sized(Rig):
    """The same on a box of which everything is known; `gib` by profile."""

    def __init__(self, gib: dict[str, int], patience: Patience, **known: dict[str, Any]) -> None:
        super().__init__(100)
        self.gib = gib
        profiles = {name: ProfileFacts(f"f-{name}", **known.get(name, {})) for name in gib}
        self.scheduler = Scheduler(profiles, queue_limit=100, facts=self, patience=patience)
        self.records = self.scheduler.records

    def box(self) -> BoxMemory:
        held = sum(self.gib[name] for name in self.records.residents)
        return BoxMemory(128 * GIB, (120 - held) * GIB, 10 * GIB)

    def need(self, profile: str, count: int | None = None) -> Need:
        term = Term(name="steady", bytes=self.gib[profile] * GIB, source="test")
        return Need(basis=Basis.LEARNED, terms=(term,))


def beside(*running: str, **known: dict[str, Any]) -> Sized:
    """a and b fit together, c fits beside neither; a dwell of 30 s, and 900 s are the longest wait."""
    rig = Sized({"a": 40, "b": 50, "c": 90}, Patience(30, 900), **known)
    for name in running:
        rig.handle(Adopted(name, f"f-{name}"))
    return rig


def small(*running: str, **known: dict[str, Any]) -> Sized:
    """All but `big` fit together."""
    rig = Sized({"a": 20, "b": 20, "c": 20, "big": 100}, Patience(), **known)
    for name in running:
        rig.handle(Adopted(name, f"f-{name}"))
    return rig

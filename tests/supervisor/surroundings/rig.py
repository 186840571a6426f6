"""A scheduler whose time stands still, with shorthands to feed it moves and read its effects."""

from typing import Any

from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.node import LOCAL
from sparkdash.domain.request import Task
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import EngineError, SparkdashError
from sparkdash.supervisor.decide.fit import BoxMemory, Occupant
from sparkdash.supervisor.decide.moves import (
    Adopted,
    Arrive,
    BeginSwap,
    Effect,
    Evict,
    Move,
    ProfileFacts,
    Refuse,
    Wait,
)
from sparkdash.supervisor.decide.queue import Patience
from sparkdash.supervisor.decide.scheduler import Scheduler
from sparkdash.units import GIB

REQUEST = SwapCause.REQUEST
ERROR = EngineError("It died.", code="engine_crash")
arrive = Arrive


class Rig:
    """A scheduler whose time stands still, on a box of which nothing is known: engines run alone."""

    def __init__(self, limit: int) -> None:
        profiles = {name: ProfileFacts(f"f-{name}", managed=name != "far") for name in ("a", "b", "c", "far")}
        self.scheduler = Scheduler(profiles, queue_limit=limit, facts=self, patience=Patience())
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


def with_a(*, limit: int = 100) -> Rig:
    rig = Rig(limit)
    rig.handle(Adopted("a", "f-a"))
    return rig


def begins(target: str | None, *evict: str, cause: SwapCause = REQUEST) -> list[Effect]:
    """Effects of a swap for which nobody has to be waited for."""
    return [BeginSwap(target, evict, cause), Evict(target, evict)]


def refusal(effects: list[Effect]) -> SparkdashError:
    """Error of the only effect."""
    (effect,) = effects
    assert isinstance(effect, Refuse)
    return effect.error


def feed(scheduler: Rig, *moves: Move) -> list[Effect]:
    """The effects of all of them, places left out."""
    effects = [effect for move in moves for effect in scheduler.handle(move)]
    return [effect for effect in effects if not isinstance(effect, Wait)]


class Sized(Rig):
    """The same on a box of which everything is known; `gib` by profile."""

    def __init__(self, gib: dict[str, int], patience: Patience, *running: str, **known: dict[str, Any]) -> None:
        super().__init__(100)
        self.gib = gib
        profiles = {name: ProfileFacts(f"f-{name}", **known.get(name, {})) for name in gib}
        self.scheduler = Scheduler(profiles, queue_limit=100, facts=self, patience=patience)
        self.records = self.scheduler.records
        for name in running:
            self.handle(Adopted(name, f"f-{name}"))

    def box(self) -> BoxMemory:
        held = sum(self.gib[name] for name in self.records.residents)
        return BoxMemory(128 * GIB, (120 - held) * GIB, 10 * GIB)

    def need(self, profile: str, count: int | None = None) -> Need:
        return need(self.gib[profile])


def beside(*running: str, **known: dict[str, Any]) -> Sized:
    """a and b fit together, c fits beside neither; a dwell of 30 s, and 900 s are the longest wait."""
    return Sized({"a": 40, "b": 50, "c": 90}, Patience(30, 900), *running, **known)


def small(*running: str, **known: dict[str, Any]) -> Sized:
    """All but `big` fit together."""
    return Sized({"a": 20, "b": 20, "c": 20, "big": 100}, Patience(), *running, **known)


def need(gib: float | None, basis: Basis = Basis.LEARNED, peak: float | None = None) -> Need:
    if gib is None:
        return Need()
    term = Term(name="steady", bytes=int(gib * GIB), source="test")
    return Need(basis=basis, terms=(term,), peak_bytes=None if peak is None else int(peak * GIB))


def engine(name: str, gib: float | None, *nodes: str, basis: Basis = Basis.LEARNED, **facts: Any) -> Occupant:
    return Occupant(name, need(gib, basis), nodes or (LOCAL,), **facts)

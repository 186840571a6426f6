"""A simulated box with unified memory: the real decisions against a swapper that does not look at memory.

SIMULATED throughout: no engine, no container, virtual time. What is modelled is what freezes a GB10: an engine takes
its memory while it loads, with a peak, and gives it back seconds or minutes after its container has gone, sometimes
not all of it; what it takes is the box's, whatever a cgroup's limit says; a declared need is often too low, and some
declare none; what is killed goes on taking memory until the kill takes hold; page cache fills what is free and is given
back. Under `decisions.FROZEN` (2 GiB) the box stands still for good.

Real are the scheduler, fit, fairness, the planner's answers, the wait for memory, beside others that load too, and the last look
(`reclaim`), the debts, the floor under which no load begins, and the guard's judgement.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.errors import EngineError
from sparkdash.host import guard_rules
from sparkdash.host.memory import guard_decisions
from sparkdash.settings import Settings
from sparkdash.supervisor.state.registry import HeldMemory
from sparkdash.units import GIB

TOTAL, SYSTEM = int(121.7 * GIB), 5 * GIB
PACE = 2.5
"""GiB a second that the quickest load takes; the quickest that was reported took 1.9 (see `guarding`)."""
SETTINGS = Settings(reserve_gib=10, drain_s=120, reclaim_s=300)
FLOORS = guard_decisions.choose_floors(SETTINGS, TOTAL)
PROFILES = {
    name: Profile(name=name, engine=EngineKind.VLLM, image="image", args=args)
    for name, args in zip(
        "abcd", ({}, {}, {"kv-cache-memory-bytes": "1G"}, {"kv-cache-memory-bytes": "1G"}), strict=True
    )
}
"""The latter two do not size themselves by free memory."""
DIED = EngineError("It died.", code="engine_crash")


@dataclass(frozen=True)
class Model:
    """Behaviour of one profile's engine. GiB and seconds."""

    name: str
    steady: float
    peak: float
    declared: float | None
    load_s: float
    dies: bool


@dataclass(frozen=True)
class Ask:
    """One request of a sequence."""

    at: float
    profile: str
    served_s: float
    leaves_after: float | None
    batch: bool


@dataclass(frozen=True)
class Sequence:
    """One random run; both swappers are given the same."""

    seed: int
    models: Mapping[str, Model]
    asks: tuple[Ask, ...]


def sequence(seed: int) -> Sequence:
    rng = Random(seed)
    models = {}
    for name in "abcd"[: rng.randint(2, 4)]:
        steady = rng.choice((6, 15, 30, 45, 60, 75, 90))
        declared = None if rng.random() < 0.2 else steady * rng.uniform(0.75, 1.1)
        load_s = max(steady * 1.15 / PACE, rng.uniform(5, 120))
        models[name] = Model(name, steady, steady * rng.uniform(1, 1.15), declared, load_s, rng.random() < 0.05)
    at, asks = 0.0, []
    for _ in range(rng.randint(4, 10)):
        at += rng.expovariate(1 / rng.choice((1.0, 60.0)))
        leaves = rng.uniform(0, 60) if rng.random() < 0.1 else None
        asks.append(Ask(at, rng.choice(sorted(models)), rng.uniform(1, 40), leaves, rng.random() < 0.2))
    return Sequence(seed, models, tuple(asks))


@dataclass(eq=False)
class Engine:
    """Memory over time: straight lines between points (seconds, GiB)."""

    model: Model
    points: list[tuple[float, float]]

    def held(self, now: float) -> float:
        before = self.points[0]
        for after in self.points:
            if now < after[0]:
                span = after[0] - before[0]
                return before[1] + (after[1] - before[1]) * (now - before[0]) / span
            before = after
        return before[1]


class Box:
    """The memory of a GB10, its engines, and time."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"box {seed}")
        self.now = 0.0
        self.engines: list[Engine] = []
        self.lowest = self._available = TOTAL
        self._looked = -1.0
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), do))

    def step(self) -> bool:
        if not self._events:
            return False
        self.now, _, do = heapq.heappop(self._events)
        self.lowest = min(self.lowest, self.available)
        do()
        return True

    @property
    def available(self) -> int:
        if self._looked != self.now:
            self.engines = [e for e in self.engines if self.now < e.points[-1][0] or e.points[-1][1]]
            self._available = TOTAL - SYSTEM - int(sum(engine.held(self.now) for engine in self.engines) * GIB)
            self._looked = self.now
        return self._available

    def contiguity(self) -> None:
        """Nothing is known of its free blocks."""

    def memory(self) -> Any:
        """Figures of /proc/meminfo: page cache has taken most of what is free, and MemAvailable counts it."""
        cache = max(0, self.available) * 3 // 4
        return SimpleNamespace(total=TOTAL, available=self.available, free=self.available - cache, page_cache=cache)

    def load(self, model: Model) -> Engine:
        ready = self.now + model.load_s
        engine = Engine(model, [(self.now, 0.0), (ready - 1, model.peak), (ready, model.steady)])
        self.take(engine)
        return engine

    def release(self, engine: Engine) -> None:
        """The container is gone; the driver gives the memory back in its own time, and once in a while not all."""
        held, dead = engine.held(self.now), self.now + guard_rules.KILL_S
        most = max(held, engine.held(dead))
        kind = self.rng.random()
        lag, span = (0.2, 2.0) if kind < 0.7 else (2.0, 40.0) if kind < 0.95 else (60.0, 120.0)
        left = held * self.rng.uniform(0.05, 0.3) if self.rng.random() < 0.02 else 0.0
        engine.points = [(self.now, held), (dead, most), (dead + lag, most), (dead + lag + span, left)]
        self._looked = -1.0
        for when, _ in engine.points:
            self.at(when, nothing)

    def take(self, engine: Engine) -> None:
        self.engines.append(engine)
        self._looked = -1.0
        for when, _ in engine.points:
            self.at(when, nothing)


async def holds_now(tools: Any, engine: Any) -> HeldMemory | None:
    return tools.holds(engine.container)  # type: ignore[no-any-return]


def nothing() -> None:
    """Only for a look at memory at a corner of its curve."""


class Sleep:
    """Awaitable of the real code: hands the seconds to whoever drives it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[float, None, None]:
        yield self.seconds


@dataclass
class Blind:
    """One engine at a time, stopped before the next: what a swapper does that never looks at memory."""

    box: Box
    plan: Sequence
    frozen: bool = False

    def run(self) -> None:
        free_at, current = 0.0, None
        for ask in self.plan.asks:
            free_at = max(free_at, ask.at)
            model = self.plan.models[ask.profile]
            if current is None or current.model is not model:
                if current is not None:
                    free_at += 1.0
                    self.until(free_at)
                    self.box.release(current)
                self.until(free_at)
                current = self.box.load(model)
                free_at += model.load_s
            free_at += ask.served_s
        self.until(float("inf"))

    def until(self, when: float) -> None:
        while not self.frozen and self.box._events and self.box._events[0][0] <= when:
            self.box.step()
            self.frozen = self.box.lowest < guard_decisions.FROZEN
        if when < float("inf"):
            self.box.now = when

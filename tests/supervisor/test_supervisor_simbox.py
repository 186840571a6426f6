"""A simulated box with unified memory: the real decisions against a swapper that does not look at memory.

SIMULATED throughout: no engine, no container, virtual time. What is modelled is what freezes a GB10: an engine takes
its memory while it loads, with a peak, and gives it back seconds or minutes after its container has gone, sometimes
not all of it; what it takes is the box's, whatever a cgroup's limit says; a declared need is often too low, and some
declare none; what is killed goes on taking memory until the kill takes hold; page cache fills what is free and is given
back. Under `decisions.FROZEN` (2 GiB) the box stands still for good.

Real are the scheduler, fit, fairness, the planner's answers, the wait for memory, beside others that load too, and the last look
(`reclaim`), the debts, the floor under which no load begins, and the guard's judgement.
"""

import heapq
import os
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from thorough import tries

from sparkdash.domain.engine import EngineState
from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.swap import SwapCause
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import AdmissionError, EngineError, SparkdashError
from sparkdash.host import guard_rules
from sparkdash.host.guard_rules import GuardReading, Rules
from sparkdash.host.memory import guard_decisions
from sparkdash.host.memory.guard_decisions import Victim
from sparkdash.host.runtime import OneNode
from sparkdash.settings import Settings
from sparkdash.supervisor.actor import patience_of
from sparkdash.supervisor.decide import moves
from sparkdash.supervisor.decide.scheduler import Scheduler
from sparkdash.supervisor.memory import read_ahead
from sparkdash.supervisor.planner import Planner
from sparkdash.supervisor.state.registry import HeldMemory, MemoryDebts
from sparkdash.supervisor.swap import stopping
from sparkdash.units import GIB, gib

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


HELD, SAVES_S = 0.1, 60.0
"""Share of pages read ahead that nothing else gets at once; longest time in which conversations are saved."""


@dataclass(eq=False)
class Life:
    """One swap under way; what it had planned no longer happens once it is over."""

    begun: moves.BeginSwap


@dataclass
class Aware:
    """The real decisions; this plays the actor and the transition."""

    box: Box
    plan: Sequence
    quick: bool = False
    """Whether weights are read ahead while engines leave, and their conversations are saved before."""
    learned: set[str] = field(default_factory=set)
    kills: int = 0
    answered: dict[str, str] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.debts = MemoryDebts()
        self.registry = SimpleNamespace(
            debts_on=lambda _node: self.debts,
            engines={},
            started={},
            notice=lambda *_: None,
            loading=self.others_that_load,
        )
        clock = SimpleNamespace(monotonic=lambda: self.box.now, now=lambda: self.box.now, sleep=Sleep)
        guarded = SimpleNamespace(short=self.short)
        self.tools: Any = SimpleNamespace(
            registry=self.registry,
            clock=clock,
            guarded=guarded,
            settings=SETTINGS,
            reserve_bytes=int(SETTINGS.reserve_gib * GIB),
            reader=self.box,
            nodes=OneNode(cast("Any", self.box)),
            needs=lambda p: self.need(p.name),
            adapter=adapter_of,
            store=None,
            holds=self.holds,
            foreign=tuple,
        )
        planner = Planner(self.tools, lambda: PROFILES, lambda p: self.plan.models[p.name].load_s if p else None)
        self.scheduler = Scheduler(
            {
                name: moves.ProfileFacts(name, loads_alone=Random(f"{name} {self.plan.seed}").random() < 0.2)
                for name in self.plan.models
            },
            queue_limit=100,
            facts=planner,
            patience=patience_of(SETTINGS),
        )
        self.needs: dict[str, Need] = {}
        self.running: dict[str, Engine] = {}
        self.loading: dict[str, Engine] = {}
        self.swaps: dict[str | None, Life] = {}
        self.begun = self.together = 0
        """Swaps so far, and loads that began while another went on."""
        self.ahead: dict[str, Engine] = {}
        """Pages that are read ahead, by target."""
        self.read_gib = 0.0
        self.tick_at: float | None = None
        self.judge, self.looking = Rules(guard_decisions.rule_floors(FLOORS)), False

    def short(self, _name: str) -> AdmissionError | None:
        """As `GuardedEngines` says."""
        short = self.box.available < FLOORS.hold
        return AdmissionError("Memory is short.", code="memory_low") if short else None

    def others_that_load(self, *, but: str, on: Any = None) -> list[Any]:
        """As `EngineRegistry.loading` says."""
        return [self.registry.engines[name] for name in self.loading if name != but]

    def holds(self, container: str) -> HeldMemory | None:
        """As `stopping.holds` measures; None of some."""
        blind = Random(f"blind {container} {self.plan.seed}").random() < 0.3
        return None if blind else HeldMemory(int(self.loading[container].held(self.box.now) * GIB), self.box.available)

    def need(self, name: str, count: int | None = None) -> Need:
        if name not in self.needs:
            self.needs[name] = self._need(self.plan.models[name])
        return self.needs[name]

    def _need(self, model: Model) -> Need:
        if model.name in self.learned:
            term = Term(name="steady", bytes=int(model.steady * GIB), source="learned")
            return Need(basis=Basis.LEARNED, terms=(term,), peak_bytes=int(model.peak * GIB))
        if model.declared is None:
            return Need()
        return Need(basis=Basis.DECLARED, terms=(Term(name="weights", bytes=int(model.declared * GIB), source="file"),))

    def run(self) -> None:
        rng = Random(f"people {self.plan.seed}")
        for number, ask in enumerate(self.plan.asks):
            self.box.at(ask.at, self._arrival(str(number), ask))
        last = self.plan.asks[-1].at
        if rng.random() < 0.3:
            wish = rng.choice(sorted(self.plan.models))
            self.box.at(rng.uniform(0, last), lambda: self.send(moves.Use(wish, SwapCause.USER)))
        if rng.random() < 0.2:
            self.box.at(rng.uniform(0, last), lambda: self.send(moves.Stop(None)))
        if rng.random() < 0.2:
            self.box.at(rng.uniform(0, last), self.die)
        while self.box.step():
            assert self.box.lowest >= FLOORS.kill, f"seed {self.plan.seed}: under the floor at {self.box.now:.0f} s"

    def _arrival(self, id_: str, ask: Ask) -> Callable[[], None]:
        def arrive() -> None:
            if ask.leaves_after is not None:
                self.box.at(self.box.now + ask.leaves_after, lambda: self.leave(id_))
            self.answered[id_] = "waits"
            self.send(moves.Arrive(id_, ask.profile, ask.batch))

        return arrive

    def leave(self, id_: str) -> None:
        if self.answered[id_] in ("waits", "served"):
            self.answered[id_] = "left"
            self.send(moves.Leave(id_))

    def send(self, move: moves.Move) -> None:
        if isinstance(move, moves.SwapDone | moves.SwapFailed | moves.SwapCancelled):
            del self.swaps[move.target]
            self._let_go(move.target)
        for effect in self.scheduler.handle(move, self.box.now):
            match effect:
                case moves.Grant(id=id_, profile=profile):
                    assert profile in self.running
                    self.answered[id_] = "served"
                    ask = self.plan.asks[int(id_)]
                    self.waits.append(self.box.now - ask.at)
                    self.box.at(self.box.now + ask.served_s, lambda id_=id_: self.leave(id_))
                case moves.Refuse(id=id_):
                    self.answered[id_] = "refused"
                case moves.Cut(ids=ids):
                    self.answered.update(dict.fromkeys(ids, "cut"))
                case moves.BeginSwap():
                    assert effect.target not in self.swaps
                    self._begin(effect)
                case moves.Evict(target=target):
                    life = self.swaps[target]
                    self._drive(life, self._change(life.begun))
                case moves.CancelSwap(target=target):
                    self._later(self.swaps[target], 0.0, lambda target=target: self._cancelled(target))
        self._wake()
        self._look_ahead()

    def _begin(self, swap: moves.BeginSwap) -> None:
        life = self.swaps[swap.target] = Life(swap)
        self.begun += 1
        self._later(life, SETTINGS.drain_s, lambda: self.send(moves.DrainOver(swap.target)))
        if self.quick and swap.target and swap.evict:
            self._read_ahead(life, swap.target)

    def _read_ahead(self, life: Life, target: str) -> None:
        """Read what `room` allows at `RATE`. HELD of it counts as taken, though MemAvailable has nearly all of it."""
        most = read_ahead.room(self.box.memory(), self.need(target).room_bytes, self.tools.reserve_bytes)
        whole = min(most / GIB, self.plan.models[target].steady)
        if whole <= 0:
            return
        self.read_gib += whole
        ready = self.box.now + whole * GIB / read_ahead.RATE
        pages = self.ahead[target] = Engine(self.plan.models[target], [(self.box.now, 0.0), (ready, whole * HELD)])
        self.box.take(pages)
        self._later(life, 1.0, lambda: self._heed_warning(life, target))

    def _heed_warning(self, life: Life, target: str) -> None:
        if target in self.ahead and self.box.available < FLOORS.warn:
            self._let_go(target)
        elif target in self.ahead:
            self._later(life, 1.0, lambda: self._heed_warning(life, target))

    def _let_go(self, target: str | None) -> None:
        if (pages := self.ahead.pop(target or "", None)) is not None:
            end = self.box.now + read_ahead.END_S
            pages.points = [(self.box.now, pages.held(self.box.now)), (end, 0.0)]
            self.box.at(end, nothing)

    def _later(self, life: Life, seconds: float, do: Callable[[], None]) -> None:
        self.box.at(self.box.now + seconds, lambda: do() if self.swaps.get(life.begun.target) is life else None)

    def _wake(self) -> None:
        due = self.scheduler.due
        if due is not None and due != self.tick_at:
            self.tick_at = due
            self.box.at(due, lambda: self.send(moves.Tick()) if self.scheduler.due == due else None)

    def _drive(self, life: Life, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._later(life, work.send(None), lambda: self._drive(life, work))
        except StopIteration:
            self.send(moves.SwapDone(life.begun.target))
        except SparkdashError as error:
            self.send(moves.SwapFailed(life.begun.target, error))

    async def _change(self, swap: moves.BeginSwap) -> None:
        """Steps of the transition, in its order."""
        for name in swap.evict:
            saves = self.box.rng.uniform(0, SAVES_S) if self.quick else 0.0
            await Sleep(saves + self.box.rng.uniform(0.5, 5))
            if name in self.running:
                self._gone(name)
                self.send(moves.Evicted(name))
        if swap.target is None:
            return
        target = PROFILES[swap.target]
        await stopping.until_loads_leave_room(self.tools, target)
        missing = await stopping.wait_for_memory(self.tools, target)
        if short := self.short(target.name):
            raise short
        await stopping.admit_load(self.tools, target, {LOCAL: missing})
        self._let_go(swap.target)
        model = self.plan.models[swap.target]
        self.together += bool(self.loading)
        self.loading[model.name] = self.box.load(model)
        self._enter(model.name, EngineState.LOADING)
        self.send(moves.Admitted(model.name))
        if model.dies:
            await Sleep(model.load_s * 0.6)
            self._end_load(model.name)
            raise DIED
        await Sleep(model.load_s)
        self.running[model.name] = self.loading.pop(model.name)
        self._enter(model.name, EngineState.READY)
        self.learned.add(model.name)
        del self.needs[model.name]

    def _enter(self, name: str, state: EngineState) -> None:
        self.registry.engines[name] = SimpleNamespace(profile=name, container=name, state=state, nodes=(LOCAL,))
        self.registry.started[name] = PROFILES[name]

    def _cancelled(self, target: str | None) -> None:
        self._end_load(target)
        self.send(moves.SwapCancelled(target))

    def _end_load(self, name: str | None) -> None:
        if (engine := self.loading.pop(name or "", None)) is not None:
            self.box.release(engine)
            self.debts.left(engine.model.name, self.box.now, None)
            del self.registry.engines[engine.model.name]

    def _gone(self, name: str) -> None:
        engine = self.running.pop(name)
        del self.registry.engines[name]
        held = HeldMemory(int(engine.held(self.box.now) * GIB), self.box.available)
        self.debts.left(name, self.box.now, held)
        self.box.release(engine)

    def die(self) -> None:
        if self.running:
            name = self.box.rng.choice(sorted(self.running))
            self._gone(name)
            self.send(moves.EngineDied(name, DIED))

    # The guard: looks only where it could have something to do, as time is virtual.

    def _look_ahead(self) -> None:
        growing = sum(engine.model.peak - engine.held(self.box.now) for engine in self.loading.values())
        if not self.looking and self.box.available - growing * GIB < FLOORS.hold:
            self.looking = True
            self.judge.reset()
            self.box.at(self.box.now + self.box.rng.uniform(0, guard_rules.EVERY_S), self._look)

    def _look(self) -> None:
        self.looking = False
        look = GuardReading(self.box.now, self.box.available)
        verdict = self.judge.see(look)
        again_s = verdict.again_s
        if verdict.kill:
            victims = [self._victim(name) for name in (*self.running, *self.loading)]
            if victim := guard_decisions.cheapest_victim(victims, FLOORS.hold - look.available):
                self.judge.killed(look)
                self.kills, again_s = self.kills + 1, guard_rules.KILL_S
                self._kill(victim.profile)
        if self.loading or (self.running and self.box.available < FLOORS.kill):
            self.looking = True
            self.box.at(self.box.now + again_s, self._look)

    def _victim(self, name: str) -> Victim:
        busy = sum(held.profile == name for held in self.scheduler.records.leases.values())
        return Victim(
            name,
            name,
            lambda: 0,
            serves=name in self.running,
            loads=name in self.loading,
            in_flight=busy,
            bytes=self.need(name).total_bytes,
        )

    def _kill(self, name: str) -> None:
        if name in self.loading:
            self._end_load(name)
            self.send(moves.SwapFailed(name, EngineError("The guard killed it.", code="memory_guard")))
        else:
            self._gone(name)
            self.send(moves.EngineDied(name, EngineError("The guard killed it.", code="memory_guard")))


SEQUENCES = int(os.environ.get("SPARKDASH_SIMBOX", tries(1500)))
"""10,000 take a minute or three: SPARKDASH_SIMBOX=10000, with --timeout=0."""


@pytest.mark.parametrize("quick", [False, pytest.param(True, marks=pytest.mark.full)])
def test_random_swap_sequences_never_freeze_the_box_that_a_blind_swapper_freezes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    """Also with read-ahead and kept conversations (`quick`)."""
    monkeypatch.setattr(stopping, "SAMPLE_S", 2.0)  # ten times fewer looks; only the waits grow
    monkeypatch.setattr(stopping, "measure_held_memory", holds_now)
    frozen = kills = swaps = beside = together = 0
    longest, lowest, read = 0.0, TOTAL, 0.0
    for seed in range(SEQUENCES):
        plan = sequence(seed)
        blind = Blind(Box(seed), plan)
        blind.run()
        frozen += blind.frozen
        aware = Aware(Box(seed), plan, quick)
        aware.run()
        assert "waits" not in aware.answered.values(), f"seed {seed}: a ticket is not answered"
        assert len(aware.answered) == len(plan.asks)
        assert set(aware.scheduler.records.residents) == set(aware.running), f"seed {seed}: an engine is forgotten"
        assert not aware.scheduler.records.swaps
        kills += aware.kills
        swaps += aware.begun
        together += aware.together
        beside += len(aware.running) > 1
        read += aware.read_gib
        longest, lowest = max(longest, *aware.waits, 0.0), min(lowest, aware.box.lowest)
    assert longest < 3600, "somebody starved"
    assert together > SEQUENCES / 100, "loads do not go on at the same time"
    assert (read > SEQUENCES) is quick
    assert frozen > SEQUENCES / 100, "the model is too kind to prove anything"
    with capsys.disabled():
        print(
            f"\nSIMULATED box, {SEQUENCES} sequences, {swaps} swaps, {together} loads at the same time as another, falls of up to {PACE} GiB a second. sparkdash: frozen (under"
            f" {gib(guard_decisions.FROZEN)}) 0 times, under the guard's floor ({gib(FLOORS.kill)}) 0 times, lowest available"
            f" {gib(lowest, 2)}, {kills} kills by the guard, longest wait {longest:.0f} s, {beside} ended with engines side by"
            f" side, {read:.0f} GiB read ahead. A swapper that does not look at memory: frozen {frozen} times."
        )

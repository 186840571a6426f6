"""Several programs on one box: who is kept, who waits, and that nobody waits for ever."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import pytest
from surroundings.rig import Rig
from thorough import tries

from sparkdash.supervisor.decide import moves
from sparkdash.supervisor.decide.moves import Patience
from sparkdash.supervisor.decide.queue import PAUSE_S, EngineUse, kept_until
from sparkdash.supervisor.decide.scheduler import Scheduler

STOP_S, CANCEL_S, DRAIN_S = 2.0, 1.0, 120.0


@dataclass(eq=False)
class Ask:
    """One request. `patience_s`: its client leaves if no answer has begun by then."""

    profile: str
    answer_s: float
    over: Callable[[], None]
    patience_s: float | None = None
    batch: bool = False
    autocomplete: bool = False
    asked_at: float = 0.0
    granted_at: float | None = None
    refused: bool = False
    gone: bool = False


@dataclass
class SharedBox(Rig):
    """`loads`: load time of each profile in seconds. Of the box's memory nothing is known, so engines run alone."""

    loads: dict[str, float]
    patience: moves.Patience
    asks: list[Ask] = field(default_factory=list)
    evictions: int = 0
    useful_s: float = 0.0
    """Time in which an engine worked on an answer."""

    def __post_init__(self) -> None:
        super().__init__(1000)
        known = {name: moves.ProfileFacts(name) for name in self.loads}
        self.scheduler = Scheduler(known, queue_limit=1000, facts=self, patience=self.patience)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._under_way: dict[str | None, moves.BeginSwap] = {}
        self._open: dict[str, Ask] = {}
        self._tick_at: float | None = None

    def at(self, time: float, do: Callable[[], None]) -> None:
        heappush(self._later, (time, next(self._numbers), do))

    def run(self, until: float = float("inf")) -> None:
        while self._later and self._later[0][0] <= until:
            before, (self.now, _, do) = self.now, heappop(self._later)
            self.useful_s += (self.now - before) if self.scheduler.records.leases else 0.0
            do()

    def ask(self, ask: Ask) -> None:
        id_, ask.asked_at = str(next(self._numbers)), self.now
        self.asks.append(ask)
        self._open[id_] = ask
        if ask.patience_s is not None:
            self.at(self.now + ask.patience_s, lambda: self._hang_up(id_))
        self.send(moves.Arrive(id_, ask.profile, ask.batch, autocomplete=ask.autocomplete))

    def send(self, move: moves.Move) -> None:
        for effect in self.handle(move):
            match effect:
                case moves.Grant(id=id_):
                    self._open[id_].granted_at = self.now
                    self.at(self.now + self._open[id_].answer_s, lambda id_=id_: self._end(id_))
                case moves.Refuse(id=id_):
                    self._open[id_].refused = True
                    self._over(id_)
                case moves.BeginSwap():
                    self._begin(effect)
                case moves.Evict(target=target, profiles=profiles):
                    self._go_on(target, STOP_S * len(profiles), lambda t=target: self._stopped(t))
                case moves.CancelSwap(target=target):
                    self.at(self.now + CANCEL_S, lambda t=target: self._finish(t, moves.SwapCancelled(t)))
                case moves.Cut():
                    raise AssertionError("no answer is that long")
        if self.scheduler.due is not None and self.scheduler.due != self._tick_at:
            self._tick_at = due = self.scheduler.due
            self.at(due, lambda: self.send(moves.Tick()) if self.scheduler.due == due else None)

    def _hang_up(self, id_: str) -> None:
        if id_ in self._open and self._open[id_].granted_at is None:
            self._open[id_].gone = True
            self._end(id_)

    def _end(self, id_: str) -> None:
        if id_ in self._open:
            self.send(moves.Leave(id_))
            self._over(id_)

    def _over(self, id_: str) -> None:
        ask = self._open.pop(id_)
        self.at(self.now, ask.over)

    def _begin(self, swap: moves.BeginSwap) -> None:
        assert swap.target not in self._under_way
        self._under_way[swap.target] = swap
        self.evictions += len(swap.evict)
        self._go_on(swap.target, DRAIN_S, lambda: self.send(moves.DrainOver(swap.target)))

    def _go_on(self, target: str | None, seconds: float, do: Callable[[], None]) -> None:
        swap = self._under_way[target]
        self.at(self.now + seconds, lambda: do() if self._under_way.get(target) is swap else None)

    def _stopped(self, target: str | None) -> None:
        for name in self._under_way[target].evict:
            self.send(moves.Evicted(name))
        assert target is not None
        self._go_on(target, self.loads[target], lambda: self._finish(target, moves.SwapDone(target)))
        self.send(moves.Admitted(target))

    def _finish(self, target: str | None, move: moves.Move) -> None:
        if self._under_way.pop(target, None) is not None:
            self.send(move)


def client(
    box: SharedBox, profile: str, times: int, rng: Random, *, pause_s: float, answer_s: float, **ask: Any
) -> None:
    """Ask `times` questions one after another, with pauses of about `pause_s` between them."""

    def turn(left: int) -> None:
        if left:
            pause, answer = pause_s * rng.uniform(0.3, 1.5), answer_s * rng.uniform(0.5, 1.5)
            box.ask(Ask(profile, answer, lambda: box.at(box.now + pause, lambda: turn(left - 1)), **ask))

    turn(times)


PATIENCE = Patience(min_dwell_s=30, max_wait_s=900, min_dwell_share=1)
SOON = (7.0, 6.0, 8.0)
CLIENTS: list[dict[str, Any]] = [
    {},
    {},
    {"batch": True},
    {"autocomplete": True},
    {"patience_s": 0.5},
    {"patience_s": 20},
]
LONG = (400.0, 500.0, 7.0)


@pytest.mark.parametrize(
    ("use", "until"),
    [
        (EngineUse(ready_at=0, load_s=180), float("-inf")),  # nobody has used it
        (EngineUse(0, 180, busy=True), 180),  # as long as it took to load
        (EngineUse(0, 10, busy=True), 30),  # min_dwell_s
        (EngineUse(0, 180, used_at=20, pauses=SOON), 20 + 12),  # 1.5 times the longest pause
        (EngineUse(0, 180, used_at=20, pauses=(0.1, 0.1, 0.1)), 20 + PAUSE_S),
        (EngineUse(0, 100, used_at=20, pauses=(0.1, 0.1)), 100),
        (EngineUse(0, 180, used_at=175, pauses=SOON), 180),
        (EngineUse(0, 100, used_at=20), 100),  # too few pauses are known: the load's own time
        (EngineUse(0, 10, used_at=2), 12),
        (EngineUse(0, 180, used_at=20, pauses=LONG), 20 + PAUSE_S),  # they return later than it is kept
        (EngineUse(0, 0, used_at=20), 20 + PAUSE_S),  # adopted
    ],
)
def test_how_long_an_engine_is_kept(use: EngineUse, until: float) -> None:
    assert kept_until(use, PATIENCE) == until


def test_without_a_dwell_nobody_is_kept() -> None:
    assert kept_until(EngineUse(5, 180, busy=True), Patience(0, 900, 1)) == 5


def hour() -> SharedBox:
    """Two agents with pauses of 7 s, an editor that completes while one types, and a chat, for an hour."""
    box = SharedBox({"coder": 60.0, "writer": 45.0, "small": 20.0, "chat": 90.0}, PATIENCE)
    client(box, "coder", 300, Random(1), pause_s=7, answer_s=8)
    client(box, "writer", 300, Random(2), pause_s=7, answer_s=8)
    client(box, "chat", 20, Random(3), pause_s=240, answer_s=20)
    client(box, "small", 900, Random(4), pause_s=4, answer_s=0.3, patience_s=0.5, autocomplete=True)
    box.run(until=3600)
    return box


def waits(box: SharedBox) -> list[float]:
    """Seconds that each request waited, whose client stayed."""
    return [(ask.granted_at or box.now) - ask.asked_at for ask in box.asks if not (ask.gone or ask.refused)]


def test_an_hour_of_two_agents_an_editor_and_a_chat() -> None:
    """With a dwell of 30 s for every engine and pauses of 5 s: 45 evictions, 60 answers, engines at work for 16 %."""
    box = hour()
    assert box.evictions <= 32
    assert sum(ask.granted_at is not None for ask in box.asks) >= 95
    assert box.useful_s > 0.23 * 3600
    assert max(waits(box)) < 360


@pytest.mark.timeout(900)
def test_in_random_histories_nobody_starves_and_autocomplete_stops_nobody() -> None:
    for seed in range(tries(10_000)):
        rng = Random(seed)
        box = SharedBox({name: rng.uniform(5, 120) for name in "abcd"[: rng.randint(2, 4)]}, PATIENCE)
        names = sorted(box.loads)
        for _ in range(rng.randint(2, 4)):
            more = rng.choice(CLIENTS)
            name, pause_s, answer_s = rng.choice(names), rng.choice([0.1, 5, 30, 300]), rng.choice([0.5, 8, 60])
            client(box, name, rng.randint(1, 6), rng, pause_s=pause_s, answer_s=answer_s, **more)
        box.run()
        longest = PATIENCE.max_wait_s + (len(names) + 1) * (DRAIN_S + STOP_S + max(box.loads.values()))
        for ask in box.asks:
            assert ask.granted_at is not None or ask.gone or ask.refused, f"seed {seed}: {ask} was never answered"
        assert max(waits(box), default=0.0) <= longest, f"seed {seed}"

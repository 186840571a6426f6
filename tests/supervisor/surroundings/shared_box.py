"""A box that several programs share, in virtual time: the real scheduler, engines that run one at a time, and clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from sparkdash.supervisor.decide import moves
from sparkdash.supervisor.decide.scheduler import Scheduler
from surroundings.rig import Rig

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

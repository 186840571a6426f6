"""The simulated box with engines that hang at random while they serve: judged, freed, ended and brought up again.

SIMULATED throughout, as in `test_supervisor_simbox`. Real are, besides what is real there, the judge of liveness, the judge
of recovery, and what the scheduler makes of `EngineHeld`, `EngineRecovered` and `EngineDied`. What the doing half of
the repair does in between is played here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from statistics import fmean
from typing import Any

import pytest
from surroundings.simulated_box import FLOORS, TOTAL, Box, Engine, Sequence, Sleep, holds_now, sequence
from surroundings.simulated_supervisor import Aware
from thorough import tries

from sparkdash.domain.engine import LivenessState
from sparkdash.errors import EngineError
from sparkdash.supervisor.decide.judge import (
    EngineSignals,
    HealthAnswer,
    LivenessJudge,
    Recovery,
    RecoveryOutlook,
    Thresholds,
)
from sparkdash.supervisor.decide.moves import STUCK, Arrive, EngineDied, EngineHeld, EngineRecovered, Move
from sparkdash.supervisor.repair.repair import LOOK_EVERY_S
from sparkdash.supervisor.swap import stopping
from sparkdash.units import gib

SEQUENCES = int(os.environ.get("SPARKDASH_SIMBOX_STUCK", tries(500)))
"""10,000 take 40 seconds: SPARKDASH_SIMBOX_STUCK=10000."""
THRESHOLDS = Thresholds()
NAMED_S = 30.0
"""How long after its threshold an engine may be named."""
SELF_FREED_S = 100.0


class Form(Enum):
    """How an engine hangs."""

    WHOLE = auto()
    """All its processes are stopped."""
    CORE = auto()
    """A kernel that never returns: nothing moves, low power, no CPU."""
    SPIN = auto()
    """The same at full power and with a busy core."""
    WAITING = auto()
    """Who runs ends; who waits never runs."""
    STALL = auto()
    """Nothing moves until its requests have been gone for a while."""


@dataclass
class Hang:
    """One engine that hangs."""

    form: Form
    since: float
    running: int
    """Requests that it served then: what its gauge goes on saying."""
    emptied: float | None = None
    """Since when it has no request."""


@dataclass
class Life:
    """What is known of one engine that serves."""

    ready_at: float
    judge: LivenessJudge
    watched: bool = False
    tokens: int = 0
    kv: float = 0.1
    relayed_at: float | None = None
    cpu_s: float = 0.0
    hang: Hang | None = None
    held: bool = False
    """It was called stuck and has not recovered: it may serve nobody."""


@dataclass
class Freezing(Aware):
    """The real decisions before engines that hang; this plays the repair too."""

    lives: dict[Engine, Life] = field(default_factory=dict)
    granted: dict[str, float] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    late: list[float] = field(default_factory=list)
    """Seconds from the threshold to the name."""
    repaired: list[float] = field(default_factory=list)
    """Seconds from the last progress until the profile served again, or its engine did."""
    broken: dict[str, float] = field(default_factory=dict)
    """By profile: when the engine last moved that was ended."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rng = Random(f"hangs {self.plan.seed}")
        last = self.plan.asks[-1].at
        for _ in range(self.rng.randint(1, 4)):
            self.box.at(self.rng.uniform(0, last + 60), lambda: self.hang(tries=12))

    def hang(self, tries: int) -> None:
        """An engine that serves hangs from now on; with none there, it is tried again."""
        well = [name for name, engine in self.running.items() if self.life(engine).hang is None]
        if well:
            name, form = self.rng.choice(well), self.rng.choice(list(Form))
            self.life(self.running[name]).hang = Hang(form, self.box.now, len(self.on(name)))
        elif tries:
            self.box.at(self.box.now + 20, lambda: self.hang(tries - 1))

    def life(self, engine: Engine) -> Life:
        now = self.box.now
        return self.lives.setdefault(engine, Life(now, LivenessJudge(now, THRESHOLDS)))

    # requests

    def serve(self, id_: str, profile: str) -> None:
        engine = self.running[profile]
        life = self.life(engine)
        assert not life.held, f"seed {self.plan.seed}: {profile} serves though it is stuck"
        if (since := self.broken.pop(profile, None)) is not None:
            self.repaired.append(self.box.now - since)
        ask = self.plan.asks[int(id_.partition(".")[0])]
        if "." not in id_:
            self.waits.append(self.box.now - ask.at)
        self.granted[id_] = self.box.now
        if life.hang is not None:
            life.hang.emptied = None
        self.box.at(self.box.now + ask.served_s, lambda: self.served(id_, engine))
        if not life.watched:
            life.watched = True
            self.go(self.watch(profile, engine, life))

    def served(self, id_: str, engine: Engine) -> None:
        """It would be over now, unless the engine hangs."""
        hang = self.life(engine).hang
        if hang is None or (hang.form is Form.WAITING and self.granted[id_] < hang.since):
            self.leave(id_)

    def cut(self, ids: Iterable[str]) -> None:
        """Who has no byte yet comes again, once."""
        for id_ in ids:
            number = id_.partition(".")[0]
            had_byte = Random(f"byte {number} {self.plan.seed}").random() < 0.5
            self.answered[id_] = "cut"
            if "." not in id_ and not had_byte:
                again = f"{number}.1"
                self.answered[again] = "waits"
                self.box.at(self.box.now, lambda again=again, number=number: self.again(again, int(number)))

    def again(self, id_: str, number: int) -> None:
        self.send(Arrive(id_, self.plan.asks[number].profile, self.plan.asks[number].batch))

    def on(self, profile: str) -> list[str]:
        """Who is served by it."""
        return [id_ for id_, held in self.scheduler.records.leases.items() if held.profile == profile]

    def send(self, move: Move) -> None:
        super().send(move)
        for name, engine in self.running.items():
            hang = self.life(engine).hang
            if hang is not None and hang.emptied is None and not self.on(name):
                hang.emptied = self.box.now

    # the repair

    def go(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            seconds = work.send(None)
        except StopIteration:
            return
        self.box.at(self.box.now + seconds, lambda: self.go(work))

    async def watch(self, name: str, engine: Engine, life: Life) -> None:
        """What `repair` does: looks while the engine is used, and the steps once it is stuck."""
        limit = 0.0
        while self.on(name):
            await Sleep(LOOK_EVERY_S)
            if self.running.get(name) is not engine:
                return
            if not self.on(name):
                break
            verdict = life.judge.see(self.look(name, life))
            if verdict is not None:  # with its age and its signals the limit changes
                limit = max(limit, verdict.limit_s) if verdict.still_s else 0.0
            if verdict is not None and verdict.state is LivenessState.STUCK:
                hang = life.hang
                assert hang is not None, f"seed {self.plan.seed}: {name} is healthy, and is called stuck: {verdict.why}"
                self.late.append(verdict.still_s - limit)
                self.outcomes[f"named {hang.form.name.lower()}"] += 1
                life.held = True
                self.send(EngineHeld(name, EngineError(verdict.why, code=STUCK)))
                if await self.recovers(name, engine, life):
                    life.judge.forget()
                    life.held = False
                    self.outcomes["recovered"] += 1
                    self.repaired.append(self.box.now - verdict.moved_at)
                    self.send(EngineRecovered(name))
                    continue
                await Sleep(self.rng.uniform(0.5, 10))
                if self.running.get(name) is engine:
                    self.outcomes["ended"] += 1
                    self.broken[name] = verdict.moved_at
                    self._gone(name)
                    self.send(EngineDied(name, EngineError(verdict.why, code=STUCK)))
                return
        life.watched = False

    async def recovers(self, name: str, engine: Engine, life: Life) -> bool:
        recovery = Recovery(self.box.now, THRESHOLDS)
        while self.running.get(name) is engine:
            outlook = recovery.see(self.look(name, life))
            if outlook is RecoveryOutlook.HOPELESS:
                return False
            if outlook is RecoveryOutlook.TRY:
                if life.hang is None:
                    return True
                recovery.tried(self.box.now)
            await Sleep(LOOK_EVERY_S)
        return False

    def look(self, name: str, life: Life) -> EngineSignals:
        """All signals of an engine of this kind, with vLLM's figures."""
        now, on, hang = self.box.now, self.on(name), life.hang
        if hang and hang.form is Form.STALL and hang.emptied is not None and now - hang.emptied >= SELF_FREED_S:
            hang = life.hang = None
        moves = hang is None or hang.form is Form.WAITING
        runs = [id_ for id_ in on if hang is None or self.granted[id_] < hang.since]
        if moves and any(now - self.granted[id_] > 10 for id_ in runs):
            life.tokens, life.relayed_at = life.tokens + 1, now
        elif moves and runs:
            life.kv += 1e-4
        form = hang.form if hang else None
        life.cpu_s += LOOK_EVERY_S if form is Form.SPIN else 0.0 if form in (Form.WHOLE, Form.CORE) else 0.1
        watts, busy = {Form.CORE: (18.0, 0.96), Form.SPIN: (80.0, 1.0)}.get(form, (5.0, 0.0)) if hang else (50.0, 0.96)
        dead = form is Form.WHOLE
        return EngineSignals(
            at=now, held=len(on), relayed_at=life.relayed_at, health=HealthAnswer.SILENT if dead else HealthAnswer.WELL,
            answers=not dead, running=len(runs) if moves else hang.running if hang else 0,
            waiting=len(on) - len(runs) if form is Form.WAITING else 0, deferred=0,
            kv_used=0.0 if form is Form.WAITING and not runs else life.kv, progress=(life.tokens,), cpu_s=life.cpu_s,
            processes=3, stopped=3 if dead else 0, power_w=watts, low_w=30.0, utilization=busy,
        )  # fmt: skip


@dataclass
class Seen:
    """Of all sequences."""

    outcomes: Counter[str] = field(default_factory=Counter)
    late: list[float] = field(default_factory=list)
    repaired: list[float] = field(default_factory=list)
    kills: int = 0
    lowest: float = TOTAL
    longest: float = 0.0

    def add(self, run: Freezing) -> None:
        self.outcomes.update(run.outcomes)
        self.late += run.late
        self.repaired += run.repaired
        self.kills += run.kills
        self.lowest = min(self.lowest, run.box.lowest)
        self.longest = max(self.longest, *run.waits, 0.0)


def checked(plan: Sequence) -> Freezing:
    """One sequence to its end; nobody waits, nothing is held, no engine is forgotten."""
    box = Freezing(Box(plan.seed), plan)
    box.run()  # raises when memory falls under the floor
    assert "waits" not in box.answered.values(), f"seed {plan.seed}: a ticket is not answered"
    assert not box.scheduler.records.leases, f"seed {plan.seed}: a request is still on an engine"
    assert not box.scheduler.records.swaps, f"seed {plan.seed}: a swap goes on"
    assert set(box.scheduler.records.residents) == set(box.running), f"seed {plan.seed}: an engine is forgotten"
    held = [name for name, resident in box.scheduler.records.residents.items() if resident.stuck]
    assert not held, f"seed {plan.seed}: {held} serve nobody"
    assert all(seconds <= NAMED_S for seconds in box.late), f"seed {plan.seed}: named late"
    return box


def test_engines_that_hang_at_random_are_repaired_and_nothing_waits_for_ever(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "SAMPLE_S", 2.0)
    monkeypatch.setattr(stopping, "measure_held_memory", holds_now)
    seen = Seen()
    for seed in range(SEQUENCES):
        seen.add(checked(sequence(seed)))
    assert seen.longest < 2 * 3600, "somebody starved"
    assert seen.outcomes["recovered"] > 0
    assert seen.outcomes["ended"] > SEQUENCES / 10, "too few engines hang to prove anything"
    with capsys.disabled():
        told = ", ".join(f"{count} {what}" for what, count in sorted(seen.outcomes.items()))
        print(
            f"\nSIMULATED box, {SEQUENCES} sequences with engines that hang: {told}; named at most {max(seen.late):.0f} s after"
            f" the threshold, repaired after {fmean(seen.repaired):.0f} s on average, {max(seen.repaired):.0f} s at most;"
            f" lowest available {gib(seen.lowest, 2)} (floor {gib(FLOORS.kill)}), {seen.kills} kills by the guard,"
            f" longest wait {seen.longest:.0f} s."
        )

"""Engines that stand still: what a look at them finds, and the steps of their repair as tests wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sparkdash.domain.engine import Engine, Evidence, EvidenceRequest, Incident, IncidentEnd, RepairStep
from sparkdash.domain.event import IncidentsChanged
from sparkdash.domain.profile import Profile
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.decide.judge import EngineSignals, HealthAnswer

FOLDER = "/var/lib/evidence/a"


@dataclass
class Signs:
    """Signs of one engine; a fresh one makes progress."""

    moves: bool = True
    holds: bool = False
    """Whether it keeps showing its requests as running after they were cancelled."""
    stopped: int = 0
    health: HealthAnswer = HealthAnswer.WELL
    compilers: tuple[str, ...] = ()
    blind: bool = False
    """Whether a look at it fails."""
    tokens: float = 0.0


@dataclass
class Box:
    """Signs of every engine, as a look finds them, and the evidence that was asked for."""

    house: Any
    signs: dict[str, Signs] = field(default_factory=dict)
    looks: list[str] = field(default_factory=list)
    asked: list[EvidenceRequest] = field(default_factory=list)
    evidence_hangs: bool = False
    seen_by_evidence: tuple[str, ...] = ()
    """Compilers that run once evidence was taken."""

    def of(self, name: str) -> Signs:
        return self.signs.setdefault(name, Signs())

    async def look(self, profile: Profile, engine: Engine, lag_s: float = 0.0) -> EngineSignals:
        signs, held = self.of(profile.name), self.house.supervisor.engines[profile.name].in_flight
        self.looks.append(profile.name)
        if signs.blind:
            raise SparkdashError("the box cannot be looked at")
        signs.tokens += signs.moves and held > 0
        running = 1.0 if signs.holds else float(held)
        known = engine.container is not None
        return EngineSignals(
            at=self.house.clock.monotonic(),
            held=held,
            relayed_at=None if known else signs.tokens,
            health=signs.health,
            answers=known or None,
            running=running if known else None,
            waiting=0.0 if known else None,
            kv_used=0.25 if known else None,
            progress=(signs.tokens,) if known else (),
            processes=3,
            stopped=signs.stopped,
            compilers=signs.compilers,
            power_w=14.0,
            low_w=30.0,
            utilization=0.96,
        )

    async def evidence(self, request: EvidenceRequest) -> Evidence:
        self.asked.append(request)
        self.of(request.profile).compilers = self.seen_by_evidence
        if self.evidence_hangs:
            await asyncio.Event().wait()
        return Evidence(FOLDER)


async def passes(house: Any, seconds: float) -> None:
    await house.clock.drive(house.clock.sleep(seconds))


async def old(house: Any, name: str = "a") -> None:
    """Have the engine up for so long that its first requests are over."""
    await house.leased(name)
    await passes(house, 700)


async def until(house: Any, holds: Callable[[], bool], limit_s: float = 1000.0) -> None:
    """Let time pass until something holds."""
    end = house.clock.time + limit_s
    while not holds():
        assert house.clock.time < end, "it never came to that"
        house.clock.step()
        await house.clock.rest()


def liveness(house: Any, name: str = "a") -> Any:
    engine = house.supervisor.engines.get(name)
    return engine.liveness if engine else None


def step(house: Any, name: str = "a") -> RepairStep | None:
    now = liveness(house, name)
    return now.step if now else None


def incidents(house: Any) -> tuple[Incident, ...]:
    """As last published, newest first."""
    told = [fact for fact in house.facts if isinstance(fact, IncidentsChanged)]
    return told[-1].incidents if told else ()


def codes(house: Any) -> list[str]:
    return [notice.code for notice in house.notices()]


async def held(house: Any, box: Box, name: str = "a") -> tuple[Any, Any]:
    """A request that its engine holds while nothing moves."""
    asking = house.ask(name)
    lease = await house.clock.drive(asking.granted())
    box.of(name).moves = False
    return asking, lease


async def held_by_old(house: Any, box: Box, opened: Callable[..., Any]) -> tuple[Any, Any]:
    """A request of an engine that has been up for long, and of which nothing moves any more."""
    await opened()
    await old(house)
    return await held(house, box)


async def lost(house: Any, asking: Any, lease: Any) -> None:
    """Wait until the request has lost its engine; it leaves."""
    await until(house, lease.lost.done)
    await asking.leave()


async def ends_restarted(house: Any) -> None:
    """Wait for the end of the newest incident: the engine was started again."""
    await until(house, lambda: incidents(house)[0].ended_at is not None)
    assert incidents(house)[0].end is IncidentEnd.RESTARTED


AT = [RepairStep.EVIDENCE, RepairStep.CANCEL, RepairStep.END]


async def at_step(house: Any, box: Box, wanted: RepairStep) -> tuple[Any, Any]:
    """A repair that is at this step; a stop that is under way does not end."""
    asking, lease = await held(house, box)
    box.of("a").holds = True
    box.evidence_hangs = wanted is RepairStep.EVIDENCE
    house.runtime.gate = asyncio.Event()
    await until(house, lambda: step(house) is wanted)
    return asking, lease

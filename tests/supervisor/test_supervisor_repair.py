"""Engines that stand still with requests on them: freed by cancelling what they hold, or ended and brought up again."""

from __future__ import annotations

from typing import Any

import pytest
from surroundings.stuck import (
    FOLDER,
    Box,
    codes,
    ends_restarted,
    held,
    held_by_old,
    incidents,
    liveness,
    old,
    passes,
    step,
    until,
)

from sparkdash.domain.engine import EngineState, LivenessState, RepairStep
from sparkdash.domain.event import Level
from sparkdash.domain.incident import IncidentEnd
from sparkdash.domain.swap import SwapCause
from sparkdash.supervisor.decide.judge import HealthAnswer
from sparkdash.units import GIB


async def test_an_engine_that_works_is_shown_as_busy_and_never_touched(house: Any, box: Box, opened: Any) -> None:
    await opened()
    await old(house)
    asking = house.ask("a")
    lease = await house.clock.drive(asking.granted())
    await passes(house, 2000)
    assert liveness(house).state is LivenessState.BUSY
    assert not lease.lost.done()
    assert (incidents(house), codes(house), box.asked) == ((), [], [])
    await asking.leave()
    await passes(house, 20)
    assert liveness(house) is None


async def test_an_engine_without_requests_is_not_looked_at(house: Any, box: Box, opened: Any) -> None:
    await opened()
    await old(house)
    before = len(box.looks)
    await passes(house, 5000)
    assert len(box.looks) == before


async def test_a_stuck_engine_is_ended_and_comes_up_again_and_who_had_no_answer_waits(
    house: Any, box: Box, opened: Any
) -> None:
    """The whole way: told, evidence, cancelled, watched for two minutes, ended, brought up, and the time that it took."""
    await opened()
    await old(house)
    _, lease = await held(house, box)
    stood_at = house.clock.time
    box.of("a").holds = True
    await until(house, lease.lost.done)
    error = lease.lost.result()
    assert error.code == "engine_stuck"
    assert error.message.startswith("a stopped making progress: 1 running, 0 waiting, no token")
    assert 115 <= house.clock.time - stood_at <= 150
    assert step(house) is RepairStep.CANCEL
    assert len(box.asked) == 1
    again = house.ask("a")
    await house.clock.rest()
    assert again.seen == [1]
    box.of("a").moves = True
    new = await house.clock.drive(again.granted())
    assert new.engine.ready_at > lease.engine.ready_at
    (incident,) = incidents(house)
    assert (incident.end, incident.evidence) == (IncidentEnd.RESTARTED, FOLDER)
    assert [taken.step for taken in incident.steps] == [RepairStep.EVIDENCE, RepairStep.CANCEL, RepairStep.END]
    assert 120 <= incident.steps[2].at - incident.steps[1].at <= 130
    assert incident.repaired_s == pytest.approx(house.clock.time - stood_at, abs=20)
    assert [call for call, _ in house.runtime.calls] == ["start", "stop", "start"]
    assert [swap.cause for swap in house.swaps()][-1] is SwapCause.REPAIR
    assert codes(house) == ["engine_stuck", "engine_stuck", "stuck_restarted"]
    assert liveness(house) is None
    await again.leave()


async def test_it_comes_up_again_also_when_nobody_waits(house: Any, box: Box, opened: Any) -> None:
    asking, lease = await held_by_old(house, box, opened)
    box.of("a").holds = True
    await until(house, lease.lost.done)
    await asking.leave()
    await until(house, lambda: bool(incidents(house)) and incidents(house)[0].ended_at is not None)
    assert incidents(house)[0].end is IncidentEnd.RESTARTED
    assert house.state("a") is EngineState.READY


async def test_it_comes_up_beside_another_though_its_memory_is_not_back_yet(
    house: Any, box: Box, opened: Any, make_profile: Any
) -> None:
    """What it held was measured before its end, and is on its way back: it is no reason to call the box too full."""
    await opened(make_profile("a", gib=80), make_profile("b", gib=20), reclaim_s=300)
    await house.leased("b")
    await old(house)
    asking, lease = await held(house, box)
    box.of("a").holds = True
    house.reader.leaks["a"] = 80 * GIB
    await until(house, lease.lost.done)
    await asking.leave()
    await until(house, lambda: "a" in house.runtime.stopped)
    await passes(house, 30)
    assert house.runtime.running() == ["b"], "its memory is waited for"
    house.reader.leaks.clear()
    await until(house, lambda: house.state("a") is EngineState.READY)
    assert house.swaps()[-1].cause is SwapCause.REPAIR
    assert house.runtime.running() == ["b", "a"]
    assert "not_restarted" not in codes(house)


async def test_an_engine_that_is_freed_by_cancelling_serves_on(house: Any, box: Box, opened: Any) -> None:
    """Nothing is left on it and a short generation is answered: who waits is served by the same engine."""
    asking, lease = await held_by_old(house, box, opened)
    box.of("a").holds = True
    await until(house, lease.lost.done)
    again = house.ask("a")
    await passes(house, 60)
    assert not again.has_lease
    box.of("a").holds = False
    box.of("a").moves = True
    new = await house.clock.drive(again.granted())
    assert new.engine.ready_at == lease.engine.ready_at
    assert [call for call, _ in house.runtime.calls] == ["start"]
    (incident,) = incidents(house)
    assert incident.end is IncidentEnd.RECOVERED
    assert codes(house) == ["engine_stuck", "stuck_recovered"]
    assert house.notices()[-1].level is Level.INFO
    await asking.leave()
    await again.leave()


async def test_an_engine_that_looks_free_and_answers_nothing_is_ended(
    house: Any, box: Box, opened: Any, behaviour: Any
) -> None:
    """Its figures say that nothing is on it; only a short generation shows whether it works."""
    does = house.runtime.zoo["a"] = behaviour()
    asking, lease = await held_by_old(house, box, opened)
    does.hangs = True
    await until(house, lease.lost.done)
    await asking.leave()
    await until(house, lambda: house.state("a") is not EngineState.READY)
    does.hangs = False
    await ends_restarted(house)


async def test_stopped_processes_are_not_given_time_to_recover(house: Any, box: Box, opened: Any) -> None:
    asking, lease = await held_by_old(house, box, opened)
    stood_at = house.clock.time
    box.of("a").stopped, box.of("a").health = 3, HealthAnswer.SILENT
    await until(house, lease.lost.done)
    assert house.clock.time - stood_at <= 90
    await asking.leave()
    cut_at = house.clock.time
    await until(house, lambda: house.state("a") is not EngineState.READY)
    assert house.clock.time - cut_at <= 10
    box.of("a").stopped, box.of("a").health, box.of("a").moves = 0, HealthAnswer.WELL, True
    await ends_restarted(house)


async def test_a_server_that_answers_nothing_is_given_twenty_seconds(house: Any, box: Box, opened: Any) -> None:
    asking, lease = await held_by_old(house, box, opened)
    box.of("a").holds, box.of("a").health = True, HealthAnswer.SILENT
    await until(house, lease.lost.done)
    await asking.leave()
    cut_at = house.clock.time
    await until(house, lambda: house.state("a") is not EngineState.READY)
    assert 15 <= house.clock.time - cut_at <= 35


async def test_an_engine_that_moves_while_evidence_is_taken_keeps_its_requests(
    house: Any, box: Box, opened: Any
) -> None:
    asking, lease = await held_by_old(house, box, opened)
    box.evidence_hangs = True
    await until(house, lambda: step(house) is RepairStep.EVIDENCE)
    box.of("a").moves = True
    await until(house, lambda: incidents(house)[0].ended_at is not None)
    assert incidents(house)[0].end is IncidentEnd.MOVED
    await passes(house, 300)
    assert not lease.lost.done()
    assert liveness(house).state is LivenessState.BUSY
    assert codes(house) == ["engine_stuck", "stuck_moved"]
    await asking.leave()

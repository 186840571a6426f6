"""Orders of people while an engine is repaired."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from surroundings.stuck import (
    AT,
    Box,
    at_step,
    codes,
    held_by_old,
    incidents,
    old,
    passes,
    until,
)

from sparkdash.domain.engine import EngineState, RepairStep
from sparkdash.domain.incident import IncidentEnd
from sparkdash.domain.swap import SwapCause


@pytest.mark.parametrize("wanted", AT)
async def test_a_persons_stop_ends_the_repair_at_each_step(
    house: Any, box: Box, opened: Any, wanted: RepairStep
) -> None:
    """It is stopped and stays so, with one end of one incident."""
    await opened()
    await old(house)
    asking, lease = await at_step(house, box, wanted)
    stopping = asyncio.ensure_future(house.supervisor.stop("a"))
    await house.clock.rest()
    house.runtime.gate.set()
    if wanted is RepairStep.EVIDENCE:
        await until(house, lease.lost.done)
    await asking.leave()
    await house.clock.drive(stopping)
    await house.settled()
    assert house.runtime.here == {}
    (incident,) = incidents(house)
    assert incident.end is IncidentEnd.STOPPED
    await passes(house, 3000)
    assert house.runtime.here == {}


@pytest.mark.parametrize("wanted", AT)
async def test_a_persons_use_of_another_profile_goes_before_the_repair(
    house: Any, box: Box, opened: Any, make_profile: Any, wanted: RepairStep
) -> None:
    await opened(make_profile("a"), make_profile("b"))
    await old(house)
    asking, _ = await at_step(house, box, wanted)
    await house.supervisor.use("b", cause=SwapCause.USER)
    await house.clock.rest()
    house.runtime.gate.set()
    await until(house, lambda: house.state("b") is EngineState.READY)
    await asking.leave()
    await house.settled()
    assert house.runtime.running() == ["b"]
    (incident,) = incidents(house)
    assert incident.end in (IncidentEnd.STOPPED, IncidentEnd.FAILED)


@pytest.mark.parametrize("wanted", AT)
async def test_a_persons_use_of_the_stuck_profile_starts_it_again_at_each_step(
    house: Any, box: Box, opened: Any, wanted: RepairStep
) -> None:
    """At once, without waiting for the rest of the repair; it counts as repaired."""
    await opened()
    await old(house)
    asking, lease = await at_step(house, box, wanted)
    await house.supervisor.use("a", cause=SwapCause.USER)
    await house.clock.rest()
    house.runtime.gate.set()
    box.of("a").holds, box.of("a").moves, box.evidence_hangs = False, True, False
    await until(house, lambda: incidents(house)[0].ended_at is not None)
    await asking.leave()
    await house.settled()
    assert house.state("a") is EngineState.READY
    assert incidents(house)[0].end in (IncidentEnd.RESTARTED, IncidentEnd.MOVED)
    if wanted is not RepairStep.EVIDENCE:
        assert house.supervisor.engines["a"].ready_at > lease.engine.ready_at
    new = await house.leased("a")
    assert new.engine.ready_at == house.supervisor.engines["a"].ready_at


async def test_an_engine_that_will_not_even_end_is_told_and_nobody_waits_for_ever(
    house: Any, box: Box, opened: Any, behaviour: Any
) -> None:
    house.runtime.zoo["a"] = behaviour(wont_stop=True)
    asking, lease = await held_by_old(house, box, opened)
    box.of("a").holds = True
    await until(house, lease.lost.done)
    await asking.leave()
    await until(house, lambda: incidents(house)[0].ended_at is not None)
    assert "unkillable" in codes(house)
    asked = house.ask("a")
    await house.clock.drive(
        asyncio.wait({asked.task, asyncio.ensure_future(house.clock.sleep(600))}, return_when="FIRST_COMPLETED")
    )
    assert asked.has_lease or asked.task.done()
    if asked.has_lease:
        await asked.leave()
    house.runtime.zoo["a"].wont_stop = False

"""Incidents: kept over the end of a daemon, and counted in the mean time to repair."""

from __future__ import annotations

from typing import Any

import pytest
from surroundings.stuck import (
    AT,
    Box,
    Signs,
    at_step,
    codes,
    held,
    held_by_old,
    incidents,
    old,
    passes,
    step,
    until,
)

from sparkdash.domain.engine import Engine, EngineState, RepairStep
from sparkdash.domain.event import IncidentsChanged, Notice
from sparkdash.domain.incident import RECENT_INCIDENTS, IncidentEnd
from sparkdash.domain.profile import Profile
from sparkdash.store import Store
from sparkdash.store.schema import INCIDENTS_KEPT
from sparkdash.supervisor.decide.judge import EngineSignals
from sparkdash.supervisor.repair.incidents import Incidents
from sparkdash.supervisor.state.registry import EngineRegistry
from sparkdash.supervisor.swap import adopt


@pytest.mark.parametrize("wanted", AT)
async def test_a_daemon_that_ends_within_a_step_leaves_a_closed_incident(
    house: Any, box: Box, opened: Any, tmp_path: Any, wanted: RepairStep
) -> None:
    """The next one says that it does not know how it went on, and serves."""
    file = tmp_path / "sparkdash.db"
    async with Store.opened(file, lambda _: None) as store:
        await opened(store=store)
        await old(house)
        await at_step(house, box, wanted)
        await house.crash()
    house.runtime.gate = None
    house.facts.clear()
    box.signs["a"] = Signs()
    async with Store.opened(file, lambda _: None) as store:
        await opened(store=store)
        (incident,) = incidents(house)
        assert (incident.end, incident.steps[-1].step) == (IncidentEnd.UNKNOWN, wanted)
        await house.leased("a")
        await house.close()


async def test_a_stuck_engine_that_an_earlier_daemon_left_is_not_waited_for(
    house: Any, box: Box, opened: Any, behaviour: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers its health route and generates nothing, as one does that still loads: the incident tells them apart."""
    monkeypatch.setattr(adopt, "ANSWER_S", 0.1)
    does = house.runtime.zoo["a"] = behaviour()
    file = tmp_path / "sparkdash.db"
    async with Store.opened(file, lambda _: None) as store:
        await opened(store=store)
        await old(house)
        await at_step(house, box, RepairStep.CANCEL)
        await house.crash()
    house.runtime.gate, does.hangs = None, True
    house.facts.clear()
    async with Store.opened(file, lambda _: None) as store:
        await opened(store=store)
        assert codes(house) == ["not_adopted"]
        assert "it was stuck, and still generates nothing" in house.notices()[0].text
        assert (house.runtime.here, house.swaps()) == ({}, [])
        does.hangs = False
        await house.leased("a")
        await house.close()


async def test_a_stuck_engine_that_is_only_told_of_outlives_the_daemon(
    house: Any, box: Box, opened: Any, behaviour: Any, make_profile: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner wants to look at it: the next daemon does not end it either."""
    monkeypatch.setattr(adopt, "ANSWER_S", 0.1)
    does = house.runtime.zoo["a"] = behaviour()
    file, told = tmp_path / "sparkdash.db", make_profile("a", on_stuck="tell")
    async with Store.opened(file, lambda _: None) as store:
        await opened(told, store=store)
        await old(house)
        asking, _ = await held(house, box)
        await until(house, lambda: step(house) is RepairStep.WATCH)
        await asking.leave()
        await house.crash()
    does.hangs = True
    house.facts.clear()
    async with Store.opened(file, lambda _: None) as store:
        await opened(told, store=store)
        assert codes(house) == []
        assert list(house.runtime.here) == ["sparkdash-a"]
        assert house.state("a") is EngineState.READY
        await house.close()


async def test_a_restart_that_fails_is_told_with_the_incident(
    house: Any, box: Box, opened: Any, behaviour: Any
) -> None:
    asking, lease = await held_by_old(house, box, opened)
    box.of("a").holds = True
    house.runtime.zoo["a"] = behaviour(dies_after_s=2)
    await until(house, lease.lost.done)
    await asking.leave()
    await until(house, lambda: incidents(house)[0].ended_at is not None)
    (incident,) = incidents(house)
    assert incident.end is IncidentEnd.FAILED
    assert incident.note.startswith("It did not come up again: ")
    assert codes(house)[-1] == "stuck_failed"


async def test_an_engine_that_is_stuck_again_soon_after_it_recovered_is_ended(
    house: Any, box: Box, opened: Any
) -> None:
    """Cancelling helped once; the second time nobody is kept waiting for that."""
    asking, lease = await held_by_old(house, box, opened)
    await until(house, lease.lost.done)
    await asking.leave()
    await until(house, lambda: incidents(house)[0].end is IncidentEnd.RECOVERED)
    asking, lease = await held(house, box)
    await until(house, lease.lost.done)
    cut_at = house.clock.time
    await asking.leave()
    await until(house, lambda: house.state("a") is not EngineState.READY)
    assert house.clock.time - cut_at <= 15
    box.of("a").moves = True
    await until(house, lambda: incidents(house)[0].end is IncidentEnd.RESTARTED)


async def test_an_engine_that_cannot_be_looked_at_is_not_judged(house: Any, box: Box, opened: Any) -> None:
    asking, lease = await held_by_old(house, box, opened)
    box.of("a").blind = True
    await passes(house, 2000)
    assert not lease.lost.done()
    await asking.leave()


async def test_a_fault_in_a_look_ends_neither_the_daemon_nor_the_looks(house: Any, box: Box, opened: Any) -> None:
    async def broken(profile: Profile, engine: Engine, lag_s: float = 0.0) -> EngineSignals:
        if box.of("a").blind:
            raise KeyError("a fault of ours")
        return await box.look(profile, engine, lag_s=lag_s)

    await opened(look=broken)
    await old(house)
    asking, lease = await held(house, box)
    box.of("a").blind = True
    await passes(house, 60)
    box.of("a").blind = False
    await until(house, lease.lost.done)
    await asking.leave()


async def test_the_mean_time_to_repair_counts_what_was_repaired(
    house: Any, box: Box, opened: Any, tmp_path: Any
) -> None:
    """It is there again after a restart of the daemon."""
    file = tmp_path / "sparkdash.db"
    async with Store.opened(file, lambda _: None) as store:
        await opened(store=store)
        await old(house)
        asking, lease = await held(house, box)
        await until(house, lease.lost.done)
        await asking.leave()
        await until(house, lambda: incidents(house)[0].end is IncidentEnd.RECOVERED)
        await house.close()
    took = incidents(house)[0].repaired_s
    house.facts.clear()
    async with Store.opened(file, lambda _: None) as store:
        await opened(store=store)
        told = [fact for fact in house.facts if isinstance(fact, IncidentsChanged)][-1]
        assert (told.repairs.every.n, told.repairs.every.mean_s) == (1, pytest.approx(took))
        assert told.repairs.by_profile["a"].n == 1
        await house.close()


async def test_only_the_newest_incidents_are_kept_in_memory_and_in_the_file(house: Any, tmp_path: Any) -> None:
    file = tmp_path / "sparkdash.db"
    told: list[Any] = []
    async with Store.opened(file, lambda _: None) as store:
        kept = Incidents(EngineRegistry(told.append, house.clock), store, house.clock)
        for number in range(INCIDENTS_KEPT + 10):
            kept.begin("a", "f", float(number), "nothing moved", RepairStep.EVIDENCE)
            kept.end("a", IncidentEnd.MOVED, "")
    assert len(kept.list.incidents) == INCIDENTS_KEPT
    assert kept.list.incidents[0].began == INCIDENTS_KEPT + 9
    assert len([fact for fact in told if isinstance(fact, IncidentsChanged)][-1].incidents) == RECENT_INCIDENTS
    async with Store.opened(file, lambda _: None) as store:
        assert [one.began for one in store.incidents] == [float(10 + number) for number in range(INCIDENTS_KEPT)]


def test_no_repair_took_less_than_nothing_where_the_clock_was_set_back(house: Any) -> None:
    told: list[Any] = []
    kept = Incidents(EngineRegistry(told.append, house.clock), None, house.clock)
    kept.begin("a", "f", house.clock.now(), "nothing came", RepairStep.EVIDENCE)
    house.clock.time -= 3600
    kept.serves("a")
    assert kept.list.incidents[0].repaired_s == 0.0
    (notice,) = (fact for fact in told if isinstance(fact, Notice))
    assert "-" not in notice.text

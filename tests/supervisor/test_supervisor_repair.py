"""Engines that stand still with requests on them: freed by cancelling what they hold, or ended and brought up again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from surroundings.engines import Behaviour, serve_engine
from surroundings.house import make_profile
from surroundings.stuck import (
    AT,
    FOLDER,
    Box,
    Signs,
    at_step,
    codes,
    ends_restarted,
    held,
    held_by_old,
    incidents,
    liveness,
    lost,
    old,
    passes,
    step,
    until,
)

from sparkdash.domain.engine import (
    RECENT_INCIDENTS,
    Engine,
    EngineState,
    Evidence,
    EvidenceRequest,
    IncidentEnd,
    LivenessState,
    RepairStep,
)
from sparkdash.domain.event import IncidentsChanged, Level, Notice
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import SwapCause
from sparkdash.host.kernel_lines import KernelFindings, findings, read_line
from sparkdash.store import Store
from sparkdash.store.schema import INCIDENTS_KEPT
from sparkdash.supervisor import engine_end
from sparkdash.supervisor.decide.judge import EngineSignals, HealthAnswer
from sparkdash.supervisor.incidents import Incidents
from sparkdash.supervisor.state.registry import EngineRegistry
from sparkdash.supervisor.swap import adopt
from sparkdash.units import GIB


async def test_evidence_that_hangs_or_fails_holds_no_repair_up(
    house: Any, box: Box, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking, lease = await held_by_old(house, box, opened)
    box.evidence_hangs = box.of("a").holds = True
    await until(house, lambda: step(house) is RepairStep.EVIDENCE)
    began = house.clock.time
    await until(house, lease.lost.done)
    assert house.clock.time - began <= engine_end.EVIDENCE_S + 5
    await asking.leave()


async def test_a_fault_of_the_gpu_that_the_kernel_reported_is_in_the_reason(house: Any, box: Box, opened: Any) -> None:
    """Since the engine last moved: the reason, and what to do about it."""

    class Kernel:
        async def since(self, unix_s: float) -> KernelFindings:
            line = read_line("NVRM: Xid (PCI:000f:01:00): 119, Timeout of the GSP", unix_s + 1)
            return findings([line] if line else [])

    await opened(kernel_log=Kernel())
    await old(house)
    _, lease = await held(house, box)
    box.of("a").holds = True
    await until(house, lambda: house.state("a") is EngineState.FAILED)
    failure = house.supervisor.engines["a"].failure
    assert failure.message.endswith("Xid 119 (the GPU's system processor (GSP) did not answer in time).")
    assert (failure.hint, failure.evidence) == ("Reboot the box.", FOLDER)
    await until(house, lease.lost.done)


PROBLEM = "No evidence was kept: /state/incidents cannot be written: No space left on device."


@pytest.mark.parametrize("raises", [False, True])
async def test_evidence_that_cannot_be_kept_holds_no_repair_up(house: Any, box: Box, opened: Any, raises: bool) -> None:
    async def full(_request: EvidenceRequest) -> Evidence:
        if raises:
            raise RuntimeError("a fault of ours")
        return Evidence(None, PROBLEM)

    await opened(take_evidence=full)
    await old(house)
    asking, lease = await held(house, box)
    await lost(house, asking, lease)
    told = [notice.text for notice in house.notices() if notice.code == "evidence_incomplete"]
    assert told == ([] if raises else [PROBLEM])


async def test_an_excuse_that_comes_once_it_is_stuck_undoes_nothing(house: Any, box: Box, opened: Any) -> None:
    asking, lease = await held_by_old(house, box, opened)
    box.of("a").holds, box.seen_by_evidence = True, ("ptxas",)
    await until(house, lambda: step(house) is RepairStep.CANCEL)
    assert lease.lost.done()
    await asking.leave()
    await until(house, lambda: incidents(house)[0].ended_at is not None)
    assert [one.end for one in incidents(house)] == [IncidentEnd.RESTARTED]


async def test_an_engine_that_is_only_told_of_is_told_once_whatever_excuses_come_and_go(
    house: Any, box: Box, opened: Any
) -> None:
    await opened(make_profile("a", on_stuck="tell"))
    await old(house)
    asking, _ = await held(house, box)
    await until(house, lambda: step(house) is RepairStep.WATCH)
    for compilers in (("ptxas",), (), ("ptxas",), ()):
        box.of("a").compilers = compilers
        await passes(house, 60)
        assert (step(house), liveness(house).state) == (RepairStep.WATCH, LivenessState.STUCK)
    assert codes(house) == ["engine_stuck"]
    await asking.leave()


@pytest.mark.parametrize("foreign", [False, True])
async def test_an_engine_that_is_only_told_of_is_not_touched(house: Any, box: Box, opened: Any, foreign: bool) -> None:
    server = await serve_engine("a", 0, does=Behaviour())
    url = f"http://127.0.0.1:{server.addresses[0][1]}"
    facts = {"engine": "openai", "image": None, "url": url, "model_id": "a", "gib": None} if foreign else {}
    await opened(make_profile("a", **({} if foreign else {"on_stuck": "tell"}), **facts))
    await old(house)
    asking, lease = await held(house, box)
    await until(house, lambda: step(house) is RepairStep.WATCH, 3000)
    await passes(house, 3000)
    assert (liveness(house).state, step(house)) == (LivenessState.STUCK, RepairStep.WATCH)
    assert not lease.lost.done()
    assert codes(house) == ["engine_stuck"]
    assert incidents(house)[0].evidence == (None if foreign else FOLDER)
    assert [taken.step for taken in incidents(house)[0].steps] == [RepairStep.WATCH]
    if foreign:
        for _ in range(3):  # clients that retry
            await asking.leave()
            await passes(house, 20)
            asking = house.ask("a")
            await passes(house, 100)
        assert codes(house) == ["engine_stuck"]
        await asking.leave()
        await passes(house, 20)
        assert liveness(house) is None
        box.of("a").moves = True
        asking = house.ask("a")
        await passes(house, 20)
        await asking.leave()
        assert incidents(house)[0].end is IncidentEnd.TOLD
    else:
        box.of("a").moves = True
        await passes(house, 20)
        assert incidents(house)[0].end is IncidentEnd.MOVED
        assert codes(house) == ["engine_stuck", "stuck_moved"]
        await asking.leave()
    assert incidents(house)[0].repaired_s is None
    await server.cleanup()


async def test_two_engines_that_are_stuck_at_once_are_repaired_apart(house: Any, box: Box, opened: Any) -> None:
    await opened(make_profile("a", gib=20), make_profile("b", gib=20))
    await old(house)
    await old(house, "b")
    asks = [await held(house, box, name) for name in ("a", "b")]
    box.of("a").holds = box.of("b").holds = True
    for asking, lease in asks:
        await lost(house, asking, lease)
    box.of("b").holds, box.of("b").moves = False, True
    await until(house, lambda: all(one.ended_at is not None for one in incidents(house)))
    assert {one.profile: one.end for one in incidents(house)} == {
        "a": IncidentEnd.RESTARTED,
        "b": IncidentEnd.RECOVERED,
    }


@pytest.mark.parametrize("wanted", AT)
async def test_a_daemon_that_ends_within_a_step_leaves_a_closed_incident(
    house: Any, box: Box, opened: Any, tmp_path: Any, wanted: RepairStep
) -> None:
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
    house: Any, box: Box, opened: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopt, "ANSWER_S", 0.1)
    does = house.runtime.zoo["a"] = Behaviour()
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
    house: Any, box: Box, opened: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopt, "ANSWER_S", 0.1)
    does = house.runtime.zoo["a"] = Behaviour()
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


async def test_a_restart_that_fails_is_told_with_the_incident(house: Any, box: Box, opened: Any) -> None:
    asking, lease = await held_by_old(house, box, opened)
    box.of("a").holds = True
    house.runtime.zoo["a"] = Behaviour(dies_after_s=2)
    await lost(house, asking, lease)
    await until(house, lambda: incidents(house)[0].ended_at is not None)
    (incident,) = incidents(house)
    assert incident.end is IncidentEnd.FAILED
    assert incident.note.startswith("It did not come up again: ")
    assert codes(house)[-1] == "stuck_failed"


async def test_an_engine_that_is_stuck_again_soon_after_it_recovered_is_ended(
    house: Any, box: Box, opened: Any
) -> None:
    asking, lease = await held_by_old(house, box, opened)
    await lost(house, asking, lease)
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
    await lost(house, asking, lease)


async def test_the_mean_time_to_repair_counts_what_was_repaired(
    house: Any, box: Box, opened: Any, tmp_path: Any
) -> None:
    file = tmp_path / "sparkdash.db"
    async with Store.opened(file, lambda _: None) as store:
        await opened(store=store)
        await old(house)
        asking, lease = await held(house, box)
        await lost(house, asking, lease)
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


@pytest.mark.parametrize("wanted", AT)
async def test_a_persons_stop_ends_the_repair_at_each_step(
    house: Any, box: Box, opened: Any, wanted: RepairStep
) -> None:
    await opened()
    await old(house)
    asking, lease = await at_step(house, box, wanted)
    stopping = asyncio.ensure_future(house.supervisor.stop("a"))
    await house.clock.rest()
    house.runtime.gate.set()
    if wanted is RepairStep.EVIDENCE:
        await lost(house, asking, lease)
    await house.clock.drive(stopping)
    await house.settled()
    assert house.runtime.here == {}
    (incident,) = incidents(house)
    assert incident.end is IncidentEnd.STOPPED
    await passes(house, 3000)
    assert house.runtime.here == {}


@pytest.mark.parametrize("wanted", AT)
async def test_a_persons_use_of_another_profile_goes_before_the_repair(
    house: Any, box: Box, opened: Any, wanted: RepairStep
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
    house: Any, box: Box, opened: Any
) -> None:
    house.runtime.zoo["a"] = Behaviour(wont_stop=True)
    asking, lease = await held_by_old(house, box, opened)
    box.of("a").holds = True
    await lost(house, asking, lease)
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
    _, lease = await held_by_old(house, box, opened)
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


async def test_it_comes_up_beside_another_though_its_memory_is_not_back_yet(house: Any, box: Box, opened: Any) -> None:
    await opened(make_profile("a", gib=80), make_profile("b", gib=20), reclaim_s=300)
    await house.leased("b")
    await old(house)
    asking, lease = await held(house, box)
    box.of("a").holds = True
    house.reader.leaks["a"] = 80 * GIB
    await lost(house, asking, lease)
    await until(house, lambda: "a" in house.runtime.stopped)
    await passes(house, 30)
    assert house.runtime.running() == ["b"], "its memory is waited for"
    house.reader.leaks.clear()
    await until(house, lambda: house.state("a") is EngineState.READY)
    assert house.swaps()[-1].cause is SwapCause.REPAIR
    assert house.runtime.running() == ["b", "a"]
    assert "not_restarted" not in codes(house)


async def test_an_engine_that_is_freed_by_cancelling_serves_on(house: Any, box: Box, opened: Any) -> None:
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


async def test_an_engine_that_looks_free_and_answers_nothing_is_ended(house: Any, box: Box, opened: Any) -> None:
    does = house.runtime.zoo["a"] = Behaviour()
    asking, lease = await held_by_old(house, box, opened)
    does.hangs = True
    await lost(house, asking, lease)
    await until(house, lambda: house.state("a") is not EngineState.READY)
    does.hangs = False
    await ends_restarted(house)


@pytest.mark.parametrize(
    ("stopped", "holds", "within_s", "ended_s"), [(3, False, 90, (0, 10)), (0, True, 150, (15, 35))]
)
async def test_a_silent_server_is_given_twenty_seconds_and_stopped_processes_none(
    house: Any, box: Box, opened: Any, stopped: int, holds: bool, within_s: float, ended_s: tuple[float, float]
) -> None:
    asking, lease = await held_by_old(house, box, opened)
    stood_at, signs = house.clock.time, box.of("a")
    signs.stopped, signs.holds, signs.health = stopped, holds, HealthAnswer.SILENT
    await lost(house, asking, lease)
    assert (cut_at := house.clock.time) - stood_at <= within_s
    await until(house, lambda: house.state("a") is not EngineState.READY)
    assert ended_s[0] <= house.clock.time - cut_at <= ended_s[1]


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

"""Engines that stand still with requests on them: freed by cancelling what they hold, or ended and brought up again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from surroundings.box import Behaviour
from surroundings.house import make_profile

from sparkdash.domain.engine import (
    RECENT_INCIDENTS,
    Engine,
    EngineState,
    Evidence,
    EvidenceRequest,
    Incident,
    IncidentEnd,
    LivenessState,
    RepairStep,
)
from sparkdash.domain.event import IncidentsChanged, Level, Notice
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import SparkdashError
from sparkdash.host.kernel_lines import KernelFindings, findings, read_line
from sparkdash.store import Store
from sparkdash.store.schema import INCIDENTS_KEPT
from sparkdash.supervisor import engine_end, repair
from sparkdash.supervisor.decide.judge import EngineSignals, HealthAnswer
from sparkdash.supervisor.incidents import Incidents
from sparkdash.supervisor.state.registry import EngineRegistry
from sparkdash.supervisor.swap import adopt
from sparkdash.units import GIB

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
    fault: type[Exception] | None = None
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
        if signs.fault:
            raise signs.fault("no look at it")
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

    async def open(self, *profiles: Profile, **more: Any) -> None:
        """Open the house; by default with one profile, `a`."""
        given = {"look": self.look, "take_evidence": self.evidence, **more}
        await self.house.open(*(profiles or (make_profile("a"),)), **given)

    async def until(self, holds: Callable[[], bool], limit_s: float = 1000.0) -> None:
        end = self.house.clock.time + limit_s
        while not holds():
            assert self.house.clock.time < end, "it never came to that"
            await self.house.clock.steps()

    def liveness(self) -> Any:
        engine = self.house.supervisor.engines.get("a")
        return engine.liveness if engine else None

    def step(self) -> RepairStep | None:
        now = self.liveness()
        return now.step if now else None

    def incidents(self) -> tuple[Incident, ...]:
        """As last published, newest first."""
        told = [fact for fact in self.house.facts if isinstance(fact, IncidentsChanged)]
        return told[-1].incidents if told else ()

    async def ended(self) -> Incident:
        """Wait for the end of the newest incident."""
        await self.until(lambda: self.incidents()[0].ended_at is not None)
        return self.incidents()[0]

    def codes(self) -> list[str]:
        return [notice.code for notice in self.house.notices()]

    async def old(self, name: str = "a") -> None:
        """Have the engine up for so long that its first requests are over."""
        await self.house.leased(name)
        await self.house.passes(700)

    async def held(self, name: str = "a") -> tuple[Any, Any]:
        """A request that its engine holds while nothing moves."""
        asking, lease = await self.house.granted(name)
        self.of(name).moves = False
        return asking, lease

    async def held_by_old(self, *profiles: Profile, **more: Any) -> tuple[Any, Any]:
        """A request of an engine that has been up for long, and of which nothing moves any more."""
        await self.open(*profiles, **more)
        await self.old()
        return await self.held()

    async def lost(self, asking: Any, lease: Any) -> None:
        """Wait until the request has lost its engine; it leaves."""
        await self.until(lease.lost.done)
        await asking.leave()

    async def at_step(self, wanted: RepairStep, *profiles: Profile, **more: Any) -> tuple[Any, Any]:
        """A repair that is at this step; a stop that is under way does not end."""
        asking, lease = await self.held_by_old(*profiles, **more)
        self.of("a").holds = True
        self.evidence_hangs = wanted is RepairStep.EVIDENCE
        self.house.runtime.gate = asyncio.Event()
        await self.until(lambda: self.step() is wanted)
        return asking, lease


@pytest.fixture
def box(house: Any, monkeypatch: pytest.MonkeyPatch) -> Box:
    """No engine is young, so that the thresholds are the plain ones."""
    monkeypatch.setattr(repair, "PROOF_S", 0.1)
    return Box(house)


AT = [RepairStep.EVIDENCE, RepairStep.CANCEL, RepairStep.END]


async def test_a_fault_of_the_gpu_that_the_kernel_reported_is_in_the_reason(house: Any, box: Box) -> None:

    class Kernel:
        async def since(self, unix_s: float) -> KernelFindings:
            line = read_line("NVRM: Xid (PCI:000f:01:00): 119, Timeout of the GSP", unix_s + 1)
            return findings([line] if line else [])

    _, lease = await box.held_by_old(kernel_log=Kernel())
    box.of("a").holds = True
    await box.until(lambda: house.state("a") is EngineState.FAILED)
    failure = house.supervisor.engines["a"].failure
    assert failure.message.endswith("Xid 119 (the GPU's system processor (GSP) did not answer in time).")
    assert (failure.hint, failure.evidence) == ("Reboot the box.", FOLDER)
    await box.until(lease.lost.done)


PROBLEM = "No evidence was kept: /state/incidents cannot be written: No space left on device."


@pytest.mark.parametrize("fault", ["it hangs", "it raises", "the disk is full"])
async def test_evidence_that_cannot_be_taken_holds_no_repair_up(house: Any, box: Box, fault: str) -> None:
    began: list[float] = []

    async def take(_request: EvidenceRequest) -> Evidence:
        began.append(house.clock.time)
        if fault == "it raises":
            raise RuntimeError("a fault of ours")
        if fault == "it hangs":
            await asyncio.Event().wait()
        return Evidence(None, PROBLEM)

    asking, lease = await box.held_by_old(take_evidence=take)
    await box.lost(asking, lease)
    assert house.clock.time - began[0] <= engine_end.EVIDENCE_S + 5
    told = [notice.text for notice in house.notices() if notice.code == "evidence_incomplete"]
    assert told == ([PROBLEM] if fault == "the disk is full" else [])


async def test_an_excuse_that_comes_once_it_is_stuck_undoes_nothing(house: Any, box: Box) -> None:
    asking, lease = await box.held_by_old()
    box.of("a").holds, box.seen_by_evidence = True, ("ptxas",)
    await box.until(lambda: box.step() is RepairStep.CANCEL)
    assert lease.lost.done()
    await asking.leave()
    assert (await box.ended()).end is IncidentEnd.RESTARTED


@pytest.mark.parametrize("foreign", [False, True])
async def test_an_engine_that_is_only_told_of_is_not_touched(
    house: Any, box: Box, elsewhere: Any, foreign: bool
) -> None:
    profile = (await elsewhere("a"))[0] if foreign else make_profile("a", on_stuck="tell")
    asking, lease = await box.held_by_old(profile)
    await box.until(lambda: box.step() is RepairStep.WATCH, 3000)
    await house.passes(3000)
    assert (box.liveness().state, box.step()) == (LivenessState.STUCK, RepairStep.WATCH)
    assert not lease.lost.done()
    assert box.codes() == ["engine_stuck"]
    assert box.incidents()[0].evidence == (None if foreign else FOLDER)
    assert [taken.step for taken in box.incidents()[0].steps] == [RepairStep.WATCH]
    if foreign:
        for _ in range(3):  # clients that retry
            await asking.leave()
            await house.passes(20)
            asking = house.ask("a")
            await house.passes(100)
        assert box.codes() == ["engine_stuck"]
        await asking.leave()
        await house.passes(20)
        assert box.liveness() is None
        box.of("a").moves = True
        asking = house.ask("a")
        await house.passes(20)
        await asking.leave()
        assert box.incidents()[0].end is IncidentEnd.TOLD
    else:
        for compilers in (("ptxas",), (), ("ptxas",), ()):  # excuses come and go
            box.of("a").compilers = compilers
            await house.passes(60)
            assert (box.step(), box.liveness().state) == (RepairStep.WATCH, LivenessState.STUCK)
        box.of("a").moves = True
        await house.passes(20)
        assert box.incidents()[0].end is IncidentEnd.MOVED
        assert box.codes() == ["engine_stuck", "stuck_moved"]
        await asking.leave()
    assert box.incidents()[0].repaired_s is None


async def test_two_engines_that_are_stuck_at_once_are_repaired_apart(house: Any, box: Box) -> None:
    await box.open(make_profile("a", gib=20), make_profile("b", gib=20))
    await box.old()
    await box.old("b")
    asks = [await box.held(name) for name in ("a", "b")]
    box.of("a").holds = box.of("b").holds = True
    for asking, lease in asks:
        await box.lost(asking, lease)
    box.of("b").holds, box.of("b").moves = False, True
    await box.until(lambda: all(one.ended_at is not None for one in box.incidents()))
    ends = {one.profile: one.end for one in box.incidents()}
    assert ends == {"a": IncidentEnd.RESTARTED, "b": IncidentEnd.RECOVERED}


@pytest.mark.parametrize("wanted", AT)
async def test_a_daemon_that_ends_within_a_step_leaves_a_closed_incident(
    house: Any, box: Box, tmp_path: Any, wanted: RepairStep
) -> None:
    file = tmp_path / "sparkdash.db"
    async with Store.opened(file, lambda _: None) as store:
        await box.at_step(wanted, store=store)
        await house.crash()
    house.runtime.gate = None
    house.facts.clear()
    box.signs["a"] = Signs()
    async with Store.opened(file, lambda _: None) as store:
        await box.open(store=store)
        (incident,) = box.incidents()
        assert (incident.end, incident.steps[-1].step) == (IncidentEnd.UNKNOWN, wanted)
        await house.leased("a")
        await house.close()


@pytest.mark.parametrize(("on_stuck", "wanted"), [("restart", RepairStep.CANCEL), ("tell", RepairStep.WATCH)])
async def test_a_stuck_engine_that_an_earlier_daemon_left_is_kept_only_where_it_is_only_told_of(
    house: Any, box: Box, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, on_stuck: str, wanted: RepairStep
) -> None:
    monkeypatch.setattr(adopt, "ANSWER_S", 0.1)
    does = house.runtime.zoo["a"] = Behaviour()
    file, profile = tmp_path / "sparkdash.db", make_profile("a", on_stuck=on_stuck)
    async with Store.opened(file, lambda _: None) as store:
        await box.at_step(wanted, profile, store=store)
        await house.crash()
    house.runtime.gate, does.hangs = None, True
    house.facts.clear()
    async with Store.opened(file, lambda _: None) as store:
        await box.open(profile, store=store)
        if on_stuck == "tell":
            assert (box.codes(), list(house.runtime.here)) == ([], ["sparkdash-a"])
            assert house.state("a") is EngineState.READY
        else:
            assert box.codes() == ["not_adopted"]
            assert "it was stuck, and still generates nothing" in house.notices()[0].text
            assert (house.runtime.here, house.swaps()) == ({}, [])
            does.hangs = False
            await house.leased("a")
        await house.close()


async def test_a_restart_that_fails_is_told_with_the_incident(house: Any, box: Box) -> None:
    asking, lease = await box.held_by_old()
    box.of("a").holds = True
    house.runtime.zoo["a"] = Behaviour(dies_after_s=2)
    await box.lost(asking, lease)
    incident = await box.ended()
    assert incident.end is IncidentEnd.FAILED
    assert incident.note.startswith("It did not come up again: ")
    assert box.codes()[-1] == "stuck_failed"


async def test_an_engine_that_is_stuck_again_soon_after_it_recovered_is_ended(house: Any, box: Box) -> None:
    asking, lease = await box.held_by_old()
    await box.lost(asking, lease)
    await box.until(lambda: box.incidents()[0].end is IncidentEnd.RECOVERED)
    asking, lease = await box.held()
    await box.until(lease.lost.done)
    cut_at = house.clock.time
    await asking.leave()
    await box.until(lambda: house.state("a") is not EngineState.READY)
    assert house.clock.time - cut_at <= 15
    box.of("a").moves = True
    await box.until(lambda: box.incidents()[0].end is IncidentEnd.RESTARTED)


@pytest.mark.parametrize("fault", [SparkdashError, KeyError])
async def test_an_engine_that_cannot_be_looked_at_is_judged_once_it_can(box: Box, fault: type[Exception]) -> None:
    asking, lease = await box.held_by_old()
    box.of("a").fault = fault
    await box.house.passes(600)
    assert not lease.lost.done()
    box.of("a").fault = None
    await box.lost(asking, lease)


async def test_the_mean_time_to_repair_counts_what_was_repaired(house: Any, box: Box, tmp_path: Any) -> None:
    file = tmp_path / "sparkdash.db"
    async with Store.opened(file, lambda _: None) as store:
        asking, lease = await box.held_by_old(store=store)
        await box.lost(asking, lease)
        await box.until(lambda: box.incidents()[0].end is IncidentEnd.RECOVERED)
        await house.close()
    took = box.incidents()[0].repaired_s
    house.facts.clear()
    async with Store.opened(file, lambda _: None) as store:
        await box.open(store=store)
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
async def test_a_persons_stop_ends_the_repair_at_each_step(house: Any, box: Box, wanted: RepairStep) -> None:
    asking, lease = await box.at_step(wanted)
    stopping = asyncio.ensure_future(house.supervisor.stop("a"))
    await house.clock.rest()
    house.runtime.gate.set()
    if wanted is RepairStep.EVIDENCE:
        await box.lost(asking, lease)
    await house.clock.drive(stopping)
    await house.settled()
    assert house.runtime.here == {}
    (incident,) = box.incidents()
    assert incident.end is IncidentEnd.STOPPED
    await house.passes(3000)
    assert house.runtime.here == {}


@pytest.mark.parametrize("wanted", AT)
async def test_a_persons_use_of_another_profile_goes_before_the_repair(
    house: Any, box: Box, wanted: RepairStep
) -> None:
    asking, _ = await box.at_step(wanted, make_profile("a"), make_profile("b"))
    await house.supervisor.use("b", cause=SwapCause.USER)
    await house.clock.rest()
    house.runtime.gate.set()
    await box.until(lambda: house.state("b") is EngineState.READY)
    await asking.leave()
    await house.settled()
    assert house.runtime.running() == ["b"]
    (incident,) = box.incidents()
    assert incident.end in (IncidentEnd.STOPPED, IncidentEnd.FAILED)


@pytest.mark.parametrize("wanted", AT)
async def test_a_persons_use_of_the_stuck_profile_starts_it_again_at_each_step(
    house: Any, box: Box, wanted: RepairStep
) -> None:
    asking, lease = await box.at_step(wanted)
    await house.supervisor.use("a", cause=SwapCause.USER)
    await house.clock.rest()
    house.runtime.gate.set()
    box.of("a").holds, box.of("a").moves, box.evidence_hangs = False, True, False
    await box.ended()
    await asking.leave()
    await house.settled()
    assert house.state("a") is EngineState.READY
    assert box.incidents()[0].end in (IncidentEnd.RESTARTED, IncidentEnd.MOVED)
    if wanted is not RepairStep.EVIDENCE:
        assert house.supervisor.engines["a"].ready_at > lease.engine.ready_at
    new = await house.leased("a")
    assert new.engine.ready_at == house.supervisor.engines["a"].ready_at


async def test_an_engine_that_will_not_even_end_is_told_and_nobody_waits_for_ever(house: Any, box: Box) -> None:
    house.runtime.zoo["a"] = Behaviour(wont_stop=True)
    asking, lease = await box.held_by_old()
    box.of("a").holds = True
    await box.lost(asking, lease)
    await box.ended()
    assert "unkillable" in box.codes()
    asked = house.ask("a")
    await house.clock.drive(
        asyncio.wait({asked.task, asyncio.ensure_future(house.clock.sleep(600))}, return_when="FIRST_COMPLETED")
    )
    assert asked.has_lease or asked.task.done()
    if asked.has_lease:
        await asked.leave()
    house.runtime.zoo["a"].wont_stop = False


async def test_an_engine_that_works_is_shown_as_busy_and_never_touched(house: Any, box: Box) -> None:
    await box.open()
    await box.old()
    asking, lease = await house.granted("a")
    await house.passes(2000)
    assert box.liveness().state is LivenessState.BUSY
    assert not lease.lost.done()
    assert (box.incidents(), box.codes(), box.asked) == ((), [], [])
    await asking.leave()
    await house.passes(20)
    assert box.liveness() is None
    before = len(box.looks)
    await house.passes(5000)
    assert len(box.looks) == before, "without requests it is not looked at"


async def test_a_stuck_engine_is_ended_and_comes_up_again_and_who_had_no_answer_waits(house: Any, box: Box) -> None:
    _, lease = await box.held_by_old()
    stood_at = house.clock.time
    box.of("a").holds = True
    await box.until(lease.lost.done)
    error = lease.lost.result()
    assert error.code == "engine_stuck"
    assert error.message.startswith("a stopped making progress: 1 running, 0 waiting, no token")
    assert 115 <= house.clock.time - stood_at <= 150
    assert box.step() is RepairStep.CANCEL
    assert len(box.asked) == 1
    again = house.ask("a")
    await house.clock.rest()
    assert again.seen == [1]
    box.of("a").moves = True
    new = await house.clock.drive(again.granted())
    assert new.engine.ready_at > lease.engine.ready_at
    (incident,) = box.incidents()
    assert (incident.end, incident.evidence) == (IncidentEnd.RESTARTED, FOLDER)
    assert [taken.step for taken in incident.steps] == [RepairStep.EVIDENCE, RepairStep.CANCEL, RepairStep.END]
    assert 120 <= incident.steps[2].at - incident.steps[1].at <= 130
    assert incident.repaired_s == pytest.approx(house.clock.time - stood_at, abs=20)
    assert [call for call, _ in house.runtime.calls] == ["start", "stop", "start"]
    assert [swap.cause for swap in house.swaps()][-1] is SwapCause.REPAIR
    assert box.codes() == ["engine_stuck", "engine_stuck", "stuck_restarted"]
    assert box.liveness() is None


async def test_it_comes_up_beside_another_though_its_memory_is_not_back_yet(house: Any, box: Box) -> None:
    await box.open(make_profile("a", gib=80), make_profile("b", gib=20), reclaim_s=300)
    await house.leased("b")
    await box.old()
    asking, lease = await box.held()
    box.of("a").holds = True
    house.reader.leaks["a"] = 80 * GIB
    await box.lost(asking, lease)
    await box.until(lambda: "a" in house.runtime.stopped)
    await house.passes(30)
    assert house.runtime.running() == ["b"], "its memory is waited for"
    house.reader.leaks.clear()
    await box.until(lambda: house.state("a") is EngineState.READY)
    assert house.swaps()[-1].cause is SwapCause.REPAIR
    assert house.runtime.running() == ["b", "a"]
    assert "not_restarted" not in box.codes()


async def test_an_engine_that_is_freed_by_cancelling_serves_on(house: Any, box: Box) -> None:
    _, lease = await box.held_by_old()
    box.of("a").holds = True
    await box.until(lease.lost.done)
    again = house.ask("a")
    await house.passes(60)
    assert not again.has_lease
    box.of("a").holds = False
    box.of("a").moves = True
    new = await house.clock.drive(again.granted())
    assert new.engine.ready_at == lease.engine.ready_at
    assert [call for call, _ in house.runtime.calls] == ["start"]
    (incident,) = box.incidents()
    assert incident.end is IncidentEnd.RECOVERED
    assert box.codes() == ["engine_stuck", "stuck_recovered"]
    assert house.notices()[-1].level is Level.INFO


async def test_an_engine_that_looks_free_and_answers_nothing_is_ended(house: Any, box: Box) -> None:
    does = house.runtime.zoo["a"] = Behaviour()
    asking, lease = await box.held_by_old()
    does.hangs = True
    await box.lost(asking, lease)
    await box.until(lambda: house.state("a") is not EngineState.READY)
    does.hangs = False
    assert (await box.ended()).end is IncidentEnd.RESTARTED


@pytest.mark.parametrize(
    ("stopped", "holds", "within_s", "ended_s"), [(3, False, 90, (0, 10)), (0, True, 150, (15, 35))]
)
async def test_a_silent_server_is_given_twenty_seconds_and_stopped_processes_none(
    house: Any, box: Box, stopped: int, holds: bool, within_s: float, ended_s: tuple[float, float]
) -> None:
    asking, lease = await box.held_by_old()
    stood_at, signs = house.clock.time, box.of("a")
    signs.stopped, signs.holds, signs.health = stopped, holds, HealthAnswer.SILENT
    await box.lost(asking, lease)
    assert (cut_at := house.clock.time) - stood_at <= within_s
    await box.until(lambda: house.state("a") is not EngineState.READY)
    assert ended_s[0] <= house.clock.time - cut_at <= ended_s[1]


async def test_an_engine_that_moves_while_evidence_is_taken_keeps_its_requests(house: Any, box: Box) -> None:
    _, lease = await box.held_by_old()
    box.evidence_hangs = True
    await box.until(lambda: box.step() is RepairStep.EVIDENCE)
    box.of("a").moves = True
    await box.ended()
    assert box.incidents()[0].end is IncidentEnd.MOVED
    await house.passes(300)
    assert not lease.lost.done()
    assert box.liveness().state is LivenessState.BUSY
    assert box.codes() == ["engine_stuck", "stuck_moved"]

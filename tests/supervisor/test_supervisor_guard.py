"""Engines and requests when the memory guard acts. The guard's own half is a stand-in that kills nobody."""

import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from surroundings.house import make_profile

from sparkdash.catalog import ProfileProblem
from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import GuardChanged
from sparkdash.domain.memory import Floors, GuardLevel, Holder, Holding
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError, EngineError, UpstreamError
from sparkdash.host.guard_rules import HOLD, KILL, OK, GuardReading, Judgement
from sparkdash.host.kernel_lines import KernelKind, KernelLine
from sparkdash.host.memory.guard_decisions import GuardReport, Victim
from sparkdash.host.memory.wedge_signs import Sign, Wedge
from sparkdash.supervisor import engine_end
from sparkdash.units import GIB

FLOORS = Floors(warn=12 * GIB, hold=8 * GIB, kill=5 * GIB)


class FakeGuard:
    """The table that it was handed, and a mouth."""

    def __init__(self, mode: str = "act") -> None:
        self.mode = mode
        self.floors = FLOORS
        self.victims: tuple[Victim, ...] = ()
        self.closed = False
        self.lines_of_loads = 0
        self.refusals = 0
        self.tell: Callable[[GuardReport], object] = lambda _: None
        self.aim: Callable[[GuardReport], object] = lambda _: None

    def start(self, tell: Callable[[GuardReport], object], aim: Callable[[GuardReport], object]) -> None:
        self.tell, self.aim = tell, aim

    def watch(self, victims: tuple[Victim, ...]) -> None:
        self.victims = victims

    def close(self) -> None:
        self.closed = True

    def heard_load(self) -> None:
        self.lines_of_loads += 1

    def driver_refused(self, lines: int) -> None:
        self.refusals += lines

    def kills(self, profile: str, available: float = 4.2, processes: int = 3) -> None:
        self.tell(replace(self.aims(profile, available), processes=processes))

    def aims(self, profile: str, available: float = 4.2, wedge: Wedge | None = None) -> GuardReport:
        """Is about to, and its word has not reached the loop."""
        victim = next(v for v in self.victims if v.profile == profile)
        look = GuardReading(0.0, int(available * GIB))
        report = GuardReport(look, Judgement(KILL, pressed=False, kill=True), victim, wedge=wedge)
        self.aim(report)
        return report


@pytest.fixture
def guard(house: Any) -> Iterator[FakeGuard]:
    """Guard whose containers all have the pid of one process that really is there."""
    there = subprocess.Popen(["sleep", "60"])
    house.runtime.pid = there.pid
    yield FakeGuard()
    there.kill()
    there.wait()


async def test_the_guard_is_told_who_runs_who_loads_and_who_is_busy(house: Any, guard: Any) -> None:
    await house.open(make_profile("a"), guard=guard, policy={"a": {"pinned": True}})
    asking = await house.loading("a")
    (loading,) = guard.victims
    assert (loading.profile, loading.serves, loading.pinned, loading.bytes) == ("a", False, True, 80 * GIB)
    await house.clock.drive(asking.granted())
    (busy,) = guard.victims
    assert (busy.serves, busy.in_flight) == (True, 1)
    await asking.leave()
    await house.settled()
    assert guard.victims[0].in_flight == 0
    await house.close()
    assert guard.closed
    guard.victims = ()
    await house.open(make_profile("a"), guard=guard)
    assert [victim.profile for victim in guard.victims] == ["a"], "it was adopted"
    await house.stopped("a")
    assert guard.victims == ()


WEDGE = Wedge(Sign.RECLAIM, "the kernel won back one page of 97 in the last 30s")


@pytest.mark.parametrize(
    ("wedge", "code", "said", "hint"),
    [
        (None, "memory_guard", "60.0 GiB were available", ""),
        (WEDGE, "memory_wedging", "the kernel won back one page of 97 in the last 30s", ""),
        (Wedge(Sign.LIVELOCK, "nothing was read"), "load_livelock", "nothing was read", "--load-format"),
    ],
)
async def test_a_load_that_is_killed_fails_with_the_guards_reason(
    house: Any, guard: Any, wedge: Wedge | None, code: str, said: str, hint: str
) -> None:
    await house.open(make_profile("a"), guard=guard)
    asking = await house.loading("a")
    assert guard.victims[0].loads
    report = guard.aims("a", 60, wedge)
    await house.runtime.kill("a", "torch.OutOfMemoryError: CUDA out of memory.")
    guard.tell(replace(report, processes=3, blocks=2))
    error = await house.clock.drive(asking.refusal())
    assert (error.code, house.swaps()[-1].failure.code, house.supervisor.engines["a"].failure.code) == (code,) * 3
    assert "60.0 GiB were available" in error.message
    assert said in error.message
    assert hint in (error.hint or "")
    assert [notice.code for notice in house.notices()] == [code]
    assert ("and 2 free blocks of 32 MiB" in house.notices()[0].text) is (wedge is not None)
    assert said in _standing(house).kills[0].reason
    assert house.runtime.here == {}


async def test_a_sign_is_told_where_the_guard_only_warns(house: Any, guard: Any) -> None:
    guard.mode = "warn"
    await house.served(make_profile("a"), guard=guard)
    guard.tell(GuardReport(GuardReading(0.0, 60 * GIB), Judgement(OK, pressed=False, kill=False), wedge=WEDGE))
    await house.clock.rest()
    (notice,) = house.notices()
    assert (notice.code, "one page of 97" in notice.text) == ("memory_wedging", True)
    assert house.state("a") is EngineState.READY


class Log:
    """A kernel's log with lines that come while somebody follows."""

    def __init__(self, *kinds: KernelKind) -> None:
        self.lines = [KernelLine(0.0, kind, "NVRM: a line") for kind in kinds]
        self.followed = 0

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[Any]:
        self.followed += 1
        try:
            yield self
        finally:
            self.followed -= 1

    def news(self) -> tuple[KernelLine, ...]:
        lines, self.lines = tuple(self.lines), []
        return lines


async def test_the_guard_hears_what_a_load_and_the_driver_say(house: Any, guard: Any) -> None:
    """Only while something loads; other lines of the kernel are no refusals."""
    log = Log(KernelKind.DRIVER_MEMORY, KernelKind.XID, KernelKind.DRIVER_MEMORY)
    await house.served(make_profile("a"), guard=guard, kernel_log=log)
    assert (guard.refusals, guard.lines_of_loads > 1, log.followed) == (2, True, 0)


@pytest.mark.parametrize("processes", [3, 0])
async def test_who_uses_an_engine_that_is_killed_is_told_why(house: Any, guard: Any, processes: int) -> None:
    """What cannot be signalled (0 processes) is ended by the runtime."""
    await house.open(make_profile("a"), guard=guard)
    _, lease = await house.granted("a")
    if processes:
        await house.runtime.kill("a")
    guard.kills("a", processes=processes)
    error = await house.clock.drive(lease.lost)
    assert (error.code, error.status) == ("memory_guard", 503)
    assert "4.2 GiB were available" in error.message
    assert ("the runtime is asked instead" in error.message) is not bool(processes)
    assert house.runtime.calls[-1] == ("start" if processes else "stop", "a")
    assert house.supervisor.engines["a"].failure.code == "memory_guard"
    assert [notice.code for notice in house.notices()] == ["memory_guard"]
    (kill,) = _standing(house).kills
    assert (kill.profile, kill.processes, kill.available) == ("a", processes, int(4.2 * GIB))
    assert guard.victims == ()


async def test_a_runtime_that_hangs_holds_nobody_up(house: Any, guard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is dead by the guard's word; podman, which would tell of it, does not answer."""
    monkeypatch.setattr(engine_end, "KILLED_S", 0.01)
    await house.open(make_profile("a"), guard=guard)
    _, lease = await house.granted("a")
    guard.kills("a")
    assert (await lease.lost).code == "memory_guard"
    assert house.state("a") is EngineState.FAILED


async def test_a_death_that_is_seen_before_the_guards_word_is_the_guards_too(house: Any, guard: Any) -> None:
    await house.served(make_profile("a"), guard=guard)
    _, lease = await house.granted("a")
    told: list[GuardReport] = []

    async def use() -> None:
        async with house.supervisor.lease("a", request_id="r", on_wait=print):
            told.append(guard.aims("a"))
            raise UpstreamError("the connection broke off")

    with pytest.raises(EngineError, match=r"4\.2 GiB were available") as caught:
        await use()
    assert caught.value.code == "memory_guard"
    await house.runtime.kill("a", "Killed")
    assert (await house.clock.drive(lease.lost)).code == "memory_guard"
    assert house.supervisor.engines["a"].failure.code == "memory_guard"
    assert house.notices() == []
    guard.tell(replace(told[0], processes=3))
    await house.clock.rest()
    assert [notice.code for notice in house.notices()] == ["memory_guard"]
    assert [kill.processes for kill in _standing(house).kills] == [3]


async def test_no_load_begins_while_memory_is_short(house: Any, guard: Any) -> None:
    """A request is refused on arrival, with the figures and when to come back; no swap begins and none fails, so that the
    profile need not rest afterwards. A person is told the same."""
    webui = Holding(kind=Holder.CONTAINER, name="open-webui", bytes=40 * GIB)
    await house.open(make_profile("a", gib=None), guard=guard, foreign=lambda: (webui,))
    house.reader.others = 113 * GIB
    error = await house.clock.drive(house.ask("a").refusal())
    assert (error.code, error.status, error.retry_after) == ("memory_low", 503, 10.0)
    assert error.holders == "Others hold memory: open-webui 40.0 GiB."
    assert "7.0 GiB are available" in error.message
    assert "8.0 GiB" in error.message
    with pytest.raises(AdmissionError, match="not started while memory is short"):
        await house.supervisor.use("a", cause=SwapCause.USER)
    assert (house.runtime.calls, house.swaps()) == ([], [])
    house.reader.others = 0
    await house.leased("a")


async def test_the_plan_tells_that_the_guard_holds_loads_back(house: Any, guard: Any) -> None:
    await house.open(make_profile("a", gib=None), make_profile("big", gib=None), guard=guard)
    house.reader.others = 113 * GIB
    plan = await house.supervisor.plan("a")
    assert plan.held is not None
    assert "7.0 GiB are available, and until 8.0 GiB are, the memory guard lets no load begin" in plan.held
    assert "guard_hold_gib" in plan.held
    assert plan.verdict == "It is not started while the memory guard holds loads back."
    house.reader.others = 0
    assert (await house.supervisor.plan("a")).held is None
    house.reader.sizes["big"] = 114 * GIB
    await house.leased("big")
    plan = await house.supervisor.plan("a")
    assert plan.evict == ("big",)
    assert plan.held is not None
    assert plan.held.endswith("no load begin. It is looked at again once big has left.")
    assert plan.verdict != "It is not started while the memory guard holds loads back."
    assert (await house.supervisor.plan("big")).held is None
    await house.leased("a")
    assert house.runtime.running() == ["a"], "a swap that makes room first may begin"


async def test_after_a_kill_the_memory_that_is_on_its_way_back_is_waited_for(house: Any, guard: Any) -> None:
    await house.open(make_profile("a", gib=None), make_profile("b", gib=20), guard=guard)
    house.reader.sizes["a"] = 100 * GIB
    await house.leased("a")
    house.reader.others = 113 * GIB
    await house.runtime.kill("a")
    guard.kills("a")
    await house.settled()
    asking = house.ask("b")
    await house.clock.rest()
    assert house.reader.memory().available < FLOORS.hold
    house.reader.others = 0
    await house.clock.drive(asking.granted())


async def test_a_guard_that_only_warns_lets_loads_begin(house: Any, guard: Any) -> None:
    guard.mode = "warn"
    await house.open(make_profile("a", gib=None), guard=guard)
    house.reader.others = 113 * GIB
    await house.leased("a")


async def test_each_level_is_told_and_shown(house: Any, guard: Any) -> None:
    await house.open(make_profile("a"), guard=guard)
    assert (_standing(house).mode, _standing(house).floors) == ("act", FLOORS)
    guard.tell(GuardReport(GuardReading(0.0, 7 * GIB, 0.15), Judgement(HOLD, pressed=True, kill=False)))
    await house.clock.rest()
    assert _standing(house).level is GuardLevel.HOLD
    told = house.notices()[-1]
    assert (told.code, told.level) == ("memory_hold", "warning")
    assert "7.0 GiB are available, with memory pressure at 15 % and rising; no load begins" in told.text
    guard.tell(GuardReport(GuardReading(1.0, 70 * GIB), Judgement(OK, pressed=False, kill=False)))
    await house.clock.rest()
    assert house.notices()[-1].text == "Memory is no longer short: 70.0 GiB are available."
    guard.tell(GuardReport(GuardReading(2.0, 7 * GIB), Judgement(OK, pressed=False, kill=False)))
    await house.clock.rest()
    assert house.notices()[-1].text.startswith("No engine runs any more, and the memory guard rests; 7.0 GiB are")


async def test_a_guard_that_is_off_says_so(house: Any, guard: Any) -> None:
    guard.mode = "off"
    await house.open(make_profile("a"), guard=guard)
    assert _standing(house).mode == "off"
    await house.leased("a")
    assert guard.victims == ()


def _standing(house: Any) -> Any:
    return [fact.guard for fact in house.facts if isinstance(fact, GuardChanged)][-1]


async def test_an_engine_whose_profile_cannot_be_read_is_not_outside_the_guard(house: Any, guard: Any) -> None:
    """The engine serves nobody, so that it goes first; then it is cleared away and no longer shown."""
    await house.served(make_profile("a", gib=30), make_profile("b", gib=30), guard=guard)
    await house.close()
    again = FakeGuard()
    await house.served(make_profile("b", gib=30), guard=again, problems=(ProfileProblem("a.yaml", 3, "", "no YAML"),))
    assert {victim.profile: victim.serves for victim in again.victims} == {"a": False, "b": True}
    again.kills("a")
    await house.clock.rest()
    assert [victim.profile for victim in again.victims] == ["b"]
    assert house.runtime.running() == ["b"]
    assert house.notices()[-1].code == "memory_guard"

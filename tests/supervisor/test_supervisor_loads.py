"""Several loads at the same time: what really happens around a supervisor."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from surroundings.box import Behaviour, pid_of
from surroundings.house import SecondNode, make_profile

from sparkdash.domain.engine import EngineState, Evidence, EvidenceRequest, Failure
from sparkdash.domain.event import SwapChanged
from sparkdash.domain.phrases import wait_text
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import SwapOutcome, SwapPhase
from sparkdash.errors import EngineError, HostError
from sparkdash.host.kernel_lines import KernelFindings, findings, read_line
from sparkdash.host.processes import proc
from sparkdash.store import Store
from sparkdash.supervisor.engine_end import REMOVAL_S, with_kernel
from sparkdash.supervisor.state import registry
from sparkdash.supervisor.state.registry import Logbook
from sparkdash.units import GIB


class Said:
    """A runtime that has these lines, raises this, or hangs (None)."""

    def __init__(self, lines: list[str] | HostError | None) -> None:
        self._lines = lines

    async def logs(self, _name: str, *, follow: bool, tail: int = 0) -> AsyncIterator[str]:
        if isinstance(self._lines, HostError):
            raise self._lines
        if self._lines is None:
            await asyncio.Event().wait()
        for line in (self._lines or [])[-tail:]:
            yield line


@pytest.mark.parametrize(("log", "told"), [
    (["its start", "then", "now"], ["then", "now"]), (None, ["its start"]),
    (HostError("podman does not answer."), ["its start"]),
])  # fmt: skip
async def test_the_last_lines_are_those_of_now_or_what_was_kept_where_the_runtime_does_not_tell(
    log: Any, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "RECENT_S", 0.1)
    book = Logbook(cast("Any", Said(log)))
    book.open("a", "sparkdash-a")
    book.add("a", "its start")
    assert await book.recent("a", 2) == told


def kill(container: str) -> tuple[str, str]:
    return (
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        f"task_memcg=/machine.slice/libpod-{container}.scope,task=python3,pid=4711,uid=1000",
        "Out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:83886080kB, file-rss:0kB, shmem-rss:0kB,"
        " UID:0",
    )


TWO = {"tensor-parallel-size": 2}
OURS, THEIRS = kill("sparkdash-a"), kill("cd" * 32)
XID = ("NVRM: Xid (PCI:000f:01:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault",)
BLOCKED = "INFO: task python3:77 blocked for more than 120 seconds."
KILLED = "The kernel killed python3 (pid 4711, which held 80 GiB) for want of memory."


class Kernel:
    """A kernel's log that holds these lines, all of the same moment; None: not readable."""

    def __init__(self, texts: tuple[str, ...] | None = (), at: float = 0.0) -> None:
        self.texts, self.at = texts, at
        self.asked = 0

    async def since(self, unix_s: float) -> KernelFindings | None:
        self.asked += 1
        if self.texts is None:
            return None
        lines = [line for text in self.texts if (line := read_line(text, self.at)) and line.at >= unix_s]
        return findings(lines)


def failure_of(house: Any, name: str = "a") -> Failure:
    assert house.state(name) is EngineState.FAILED
    found: Failure = house.supervisor.engines[name].failure
    return found


async def dies(house: Any, kernel: Kernel, ago_s: float, *words: str) -> Failure:
    """Let `a` die with these words, or killed without a word, so long after what is in the kernel's log."""
    container = house.runtime.of("a")
    for line in words:
        container.say(line)
    kernel.at = house.clock.now() - ago_s
    await house.runtime.end(container, 1 if words else 137)
    await house.passes(2 * REMOVAL_S)  # an end by a signal may be somebody's removal
    await house.settled()
    return failure_of(house)


@pytest.mark.parametrize(
    ("texts", "ago_s", "words", "code", "said", "hint"),
    [
        (OURS, 0, (), "out_of_memory", (f"a died. {KILLED}",), "shorter context"),
        (THEIRS, 5, ("RuntimeError: shape is invalid",), "engine_crash", ("shape is invalid", KILLED), ""),
        (
            XID,
            5,
            ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered",),
            "engine_crash",
            ("illegal memory access", "Xid 31 (the engine's GPU program read memory that is not there)."),
            "another build",
        ),
        (XID, 3600, ("RuntimeError: x",), "engine_crash", ("a died. The engine died: RuntimeError: x.",), ""),
        (None, 0, (), "out_of_memory", ("a died. The engine was killed (SIGKILL) without a word.",), ""),
    ],
    ids=["it was killed", "another was killed", "a fault of the GPU", "an old fault", "a log that is closed to us"],
)
async def test_a_death_is_told_with_what_the_kernel_says_of_its_moment(
    house: Any, texts: Any, ago_s: float, words: tuple[str, ...], code: str, said: tuple[str, ...], hint: str
) -> None:
    kernel = Kernel(texts)
    await house.served(make_profile("a"), kernel_log=kernel)
    failure = await dies(house, kernel, ago_s, *words)
    assert (failure.code, kernel.asked) == (code, 1)
    assert [each for each in said if each not in failure.message] == [], failure.message
    assert failure.message.endswith(said[-1])
    assert hint in (failure.hint or "")


async def test_a_failed_load_has_the_kernels_line_of_its_own_time(house: Any) -> None:
    """Memory that the driver was refused since the load began; what was before is not asked for."""
    line = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)"
    kernel = Kernel((line,), at=house.clock.now() + 1)
    house.runtime.zoo["a"] = Behaviour(dies_after_s=2, lines=("INFO starting",))
    await house.open(make_profile("a"), kernel_log=kernel)
    error = await house.refused("a")
    assert "The NVIDIA driver was refused memory (NV_ERR_NO_MEMORY)" in error.message


@pytest.mark.parametrize("node", ["local", "spark2"])
async def test_a_load_that_stands_still_keeps_its_evidence_and_the_word_of_its_own_boxs_kernel(
    house: Any, node: str
) -> None:
    """Taken before it is ended: its processes, and what the kernel told since the load began."""
    kernel = Kernel((BLOCKED,), at=house.clock.now() + 1)
    asked: list[tuple[EvidenceRequest, bool]] = []

    async def take(request: EvidenceRequest) -> Evidence:
        asked.append((request, "sparkdash-a" in house.runtime.here))
        return Evidence("/state/incidents/1")

    house.runtime.zoo["a"] = Behaviour(never_ready=True)
    profile = make_profile("a", node=node)
    await house.open(profile, nodes=SecondNode(house), kernel_log=kernel, take_evidence=take, no_progress_s=20)
    error = await house.refused("a")
    assert (error.code, error.evidence) == ("no_progress", "/state/incidents/1")
    assert "made no progress for" in error.message
    local = node == "local"
    assert error.message.endswith("The task python3 (pid 77) stands still in the kernel.") is local
    assert kernel.asked == local
    ((request, was_there),) = asked
    assert was_there
    assert (request.profile, bool(request.pids), bool(request.log)) == ("a", True, True)
    assert failure_of(house).evidence == "/state/incidents/1"


async def test_a_health_path_that_the_server_lacks_is_told_within_seconds(house: Any) -> None:
    """Such a server writes a line for each 404; the limit of 20 minutes was waited for."""
    server = {"health": "/nope", "port": 8000}
    await house.open(make_profile("a", engine="generic", server=server), no_progress_s=1200)
    asking = await house.loading("a")
    await house.passes(15)
    (told,) = house.notices()
    assert (told.code, told.profile) == ("health_not_found", "a")
    assert told.text == (
        "a answers 404 at /nope, its `server.health`, and so does not count as up. "
        "/v1/models answers 200: if that shows that it is up, write it as `server.health`."
    )
    (*_, swap) = (fact.swap for fact in house.facts if isinstance(fact, SwapChanged))
    assert wait_text(swap, house.clock.now()) == "waits for 200 at /nope, which answers 404"
    began = house.clock.time
    error = await house.clock.drive(asking.refusal())
    assert house.clock.time - began < 180
    assert error.code == "no_progress"
    assert error.message.startswith("a answers 404 at /nope and made no progress for ")
    assert "write it as `server.health`" in error.hint


async def test_a_server_that_answers_404_only_while_it_loads_comes_up(house: Any) -> None:
    does = house.runtime.zoo["a"] = Behaviour(health=404)
    await house.open(make_profile("a", engine="generic", server={"port": 8000, "ready_by": "health"}))
    asking = await house.loading("a")
    await house.passes(15)
    does.health = 200
    await house.clock.drive(asking.granted())
    assert house.state("a") is EngineState.READY
    assert house.swaps()[-1].waits_for is None


async def test_a_cause_that_its_log_names_is_not_looked_for_in_the_kernels() -> None:
    kernel, failure = Kernel(XID), Failure(code="unknown_flag", message="It refused its command line")
    assert await with_kernel(cast("Any", SimpleNamespace(kernel_log=kernel)), "a", "a", failure, 0.0) is failure
    assert kernel.asked == 0


@pytest.mark.parametrize(
    ("facts", "asked", "told"),
    [({"node": "spark2"}, 0, False), ({"node": "local"}, 1, True), ({"nodes": 2, "args": TWO}, 1, False)],
    ids=["elsewhere", "here", "on both"],
)
async def test_a_kill_in_this_boxs_log_is_the_reason_only_of_engines_that_run_here_alone(
    house: Any, facts: dict[str, Any], asked: int, told: bool
) -> None:
    kernel = Kernel(THEIRS)
    await house.served(make_profile("a", **facts), nodes=SecondNode(house), kernel_log=kernel)
    failure = await dies(house, kernel, 5, "RuntimeError: shape is invalid")
    assert ("The kernel killed" in failure.message) is told
    assert kernel.asked == asked


async def test_a_rank_that_ends_seconds_after_the_head_s_first_answer_failed_is_the_reason(house: Any) -> None:
    """A vLLM over two boxes says 500 at once, and the container of the rank that died ends two seconds later."""
    house.runtime.zoo["a"] = Behaviour(talks_nonsense=True, load_s=1)
    await house.open(make_profile("a", nodes=2, args=TWO), nodes=SecondNode(house))
    asked = house.ask("a")
    await house.clock.until(lambda: house.state("a") is EngineState.WARMING)
    await house.passes(3)
    assert not asked.task.done()
    end = "sparkdash: rank 1 on spark2 ended the engine: its container ended with exit code 1."
    await house.runtime.kill("a", "[spark2] RuntimeError: no such expert", end)
    with pytest.raises(EngineError) as failed:
        await house.clock.drive(asked.granted())
    error = failed.value
    assert error.message == "a did not start. Rank 1 on spark2 died: RuntimeError: no such expert."
    assert error.log_tail == ("[spark2] RuntimeError: no such expert", end)


FIXED = {"kv-cache-memory-bytes": "1G"}
"""With it vLLM does not size its cache by what is free."""
RECLAIM, LOAD = SwapPhase.RECLAIM, SwapPhase.LOAD


def fixed(name: str, gib: float) -> Profile:
    made: Profile = make_profile(name, gib=gib, args=FIXED)
    return made


async def both_load(house: Any, first: str, second: str) -> None:
    """Let time pass until both are being loaded."""
    await house.loads(first)
    await house.loads(second)
    assert house.state(first) is EngineState.LOADING


async def test_a_short_load_does_not_wait_for_a_long_one(house: Any) -> None:
    house.runtime.zoo.update(long=Behaviour(load_s=15), short=Behaviour(load_s=3))
    await house.open(fixed("long", 40), fixed("short", 10))
    coming = await house.loading("long")
    began = house.clock.time
    await house.leased("short")
    assert (house.clock.time - began < 5, house.state("long")) == (True, EngineState.LOADING)
    await house.clock.drive(coming.granted())
    await coming.leave()
    short, long = house.swaps()
    assert (short.target, long.target) == ("short", "long")
    assert (3 <= short.stage_s[LOAD] < 4, 15 <= long.stage_s[LOAD] < 16) == (True, True)
    told = [fact.swap for fact in house.facts if isinstance(fact, SwapChanged)]
    assert all(swap.waiting <= 1 for swap in told)


async def test_an_engine_that_sizes_itself_by_what_is_free_loads_alone(house: Any) -> None:
    """vLLM would take what another takes off its own cache; so neither begins while the other loads."""
    house.runtime.zoo.update(sizes=Behaviour(load_s=8), fixed=Behaviour(load_s=8))
    await house.open(make_profile("sizes", gib=30), fixed("fixed", 10))
    for first, second in (("sizes", "fixed"), ("fixed", "sizes")):
        waits = [house.ask(first), house.ask(second)]
        await house.loads(first)
        await house.loads(second)
        assert house.state(first) is EngineState.READY
        for asking in waits:
            await house.clock.drive(asking.granted())
            await asking.leave()
        await house.stopped(None)


async def test_a_plan_says_whose_load_is_waited_for(house: Any) -> None:
    house.runtime.zoo.update(long=Behaviour(load_s=15))
    await house.open(fixed("long", 40), fixed("short", 10), make_profile("sizes", gib=20), fixed("big", 100))
    coming = await house.loading("long")
    plans = {name: await house.supervisor.plan(name) for name in ("short", "sizes", "big")}
    assert plans["short"].verdict == "It fits now, beside long."
    assert plans["sizes"].verdict == "It fits now, beside long. It begins once long has loaded."
    assert plans["big"].verdict == "It fits once long has left. It begins once long has loaded."
    assert [plan.beside for plan in plans.values()] == [("long",), ("long",), ()]
    await house.clock.drive(coming.granted())


async def test_a_load_waits_until_both_peaks_fit_with_a_margin(house: Any) -> None:
    house.runtime.zoo.update(a=Behaviour(load_s=10), b=Behaviour(load_s=3))
    await house.open(fixed("a", 40), fixed("b", 50))
    first, second = house.ask("a"), house.ask("b")
    await house.loads("a")
    await house.clock.drive(first.granted())
    assert house.state("b") is None, "75 GiB of b, 20 more of a and the reserve of 10 are not there"
    await house.clock.drive(second.granted())
    a, b = house.swaps()
    assert (a.target, b.target, b.evict) == ("a", "b", ())
    assert b.stage_s[RECLAIM] >= 8, "it began beside a, and waited for room"


async def test_what_was_learned_needs_less_of_a_margin(house: Any) -> None:
    store = Store(lambda _: None)
    house.runtime.zoo.update(a=Behaviour(load_s=10), b=Behaviour(load_s=3))
    await house.open(fixed("a", 40), fixed("b", 50), store=store)
    for name in "ab":
        await house.leased(name)
        await house.settled()
        await house.stopped(None)
    learned = {name: house.supervisor.need(house.supervisor.catalog.find(name)) for name in "ab"}
    assert [need.total_bytes for need in learned.values()] == [40 * GIB, 50 * GIB]
    weighed: list[str | None] = []
    kept = store.record_load
    store.record_load = lambda seen, *more: (weighed.append(seen.spoilt), kept(seen, *more))[1]  # type: ignore[method-assign]
    asking = [house.ask("a"), house.ask("b")]
    await both_load(house, "a", "b")
    for each in asking:
        await house.clock.drive(each.granted())
        await each.leave()
    await house.settled()
    await house.clock.rest()
    assert weighed == ["a loaded at the same time", "b loaded at the same time"]


async def test_one_that_fails_beside_another_takes_nothing_down(house: Any) -> None:
    house.runtime.zoo.update(a=Behaviour(load_s=15), b=Behaviour(dies_after_s=2))
    await house.open(fixed("a", 30), fixed("b", 10), fixed("c", 10))
    first, second = house.ask("a"), house.ask("b")
    await both_load(house, "a", "b")
    error = await house.clock.drive(second.refusal())
    assert error.code == "out_of_memory"
    third = house.ask("c")
    await house.clock.drive(first.granted())
    assert house.state("c") is None, "what b gives back would be seen by nobody as what it is"
    await house.clock.drive(third.granted())
    assert [(swap.target, swap.outcome) for swap in house.swaps()] == [
        ("b", SwapOutcome.FAILED),
        ("a", SwapOutcome.DONE),
        ("c", SwapOutcome.DONE),
    ]


@pytest.mark.parametrize("order", ["cancel", "stop"])
async def test_cancel_and_stop_end_every_load(house: Any, order: str) -> None:
    house.runtime.zoo.update(a=Behaviour(never_ready=True), b=Behaviour(never_ready=True))
    await house.open(fixed("a", 30), fixed("b", 10), no_progress_s=600)
    asking = [house.ask("a"), house.ask("b")]
    await both_load(house, "a", "b")
    await house.clock.drive(house.supervisor.cancel() if order == "cancel" else house.supervisor.stop(None))
    assert house.runtime.running() == []
    assert {swap.outcome for swap in house.swaps()} == {SwapOutcome.CANCELLED}
    for each in asking:
        error = await each.refusal()
        assert error.code == ("cancelled" if order == "cancel" else "stopped")


async def test_a_load_that_is_stopped_while_another_weighs_it_ends_nothing_else(house: Any) -> None:
    house.runtime.zoo.update(a=Behaviour(load_s=60), b=Behaviour(never_ready=True))
    await house.open(fixed("a", 30), fixed("b", 10), fixed("c", 60), no_progress_s=600)
    waiting, stopped = house.ask("a"), house.ask("b")
    await both_load(house, "a", "b")
    asked, answered, pids = asyncio.Event(), asyncio.Event(), house.runtime.pids

    async def slow(container: str) -> set[int]:
        asked.set()
        await answered.wait()
        found: set[int] = await pids(container)
        return found

    house.runtime.pids = slow
    third = house.ask("c")
    await house.clock.drive(asked.wait())
    await house.stopped("b")
    house.runtime.pids = pids
    answered.set()
    for asking in (waiting, third):
        await house.clock.drive(asking.granted())
        await asking.leave()
    assert sorted(house.runtime.running()) == ["a", "c"]
    error = await stopped.refusal()
    assert error.code == "stopped"


async def test_a_server_that_is_not_ours_is_stopped_at_once_while_memory_comes_back_for_a_load(
    house: Any, elsewhere: Any
) -> None:
    far, _ = await elsewhere("far")
    await house.open(make_profile("a"), make_profile("b"), far)
    await house.leased("far")
    await house.leased("a")
    house.reader.leaks["a"] = 40 * GIB
    coming = house.ask("b")
    await house.clock.until(lambda: "a" in house.runtime.stopped and house.state("a") is None)
    began = house.clock.time
    await house.stopped("far")
    assert house.clock.time - began < 1
    assert [notice.code for notice in house.notices() if notice.code == "memory_not_returned"] == []
    await house.clock.drive(coming.refusal())


@pytest.mark.parametrize("readable", [True, False])
async def test_a_load_that_hangs_beside_another_is_noticed_while_that_one_loads(
    house: Any, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    taken = {pid_of("hung"): GIB, pid_of("busy"): 0}
    asked = dict if readable else lambda _: {}
    monkeypatch.setattr(proc, "taken_in", lambda pids: asked({pid: taken[pid] for pid in pids}))
    house.runtime.zoo.update(hung=Behaviour(never_ready=True), busy=Behaviour(never_ready=True))
    await house.open(fixed("hung", 30), fixed("busy", 10), no_progress_s=60)
    waiting, other = house.ask("hung"), house.ask("busy")
    await both_load(house, "hung", "busy")
    began = house.clock.time
    while house.state("hung") is EngineState.LOADING and house.clock.time - began < 200:
        taken[pid_of("busy")] += GIB
        house.reader.others += GIB // 64
        await house.clock.steps()
    assert (house.state("hung") is EngineState.FAILED) is readable
    assert house.state("busy") is EngineState.LOADING
    await house.clock.drive(house.supervisor.cancel())
    await asyncio.gather(waiting.granted(), other.granted(), return_exceptions=True)

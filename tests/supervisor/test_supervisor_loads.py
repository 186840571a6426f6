"""Several loads at the same time: what really happens around a supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from surroundings.engines import Behaviour, pid_of, serve_engine
from surroundings.house import SecondNode, make_profile

from sparkdash.domain.engine import EngineState, Evidence, EvidenceRequest, Failure
from sparkdash.domain.event import SwapChanged
from sparkdash.domain.phrases import wait_text
from sparkdash.domain.profile import EngineKind, Profile
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
    """A runtime that has these lines; None: it hangs."""

    def __init__(self, lines: list[str] | None, error: HostError | None = None) -> None:
        self._lines = lines
        self._error = error

    async def logs(self, _name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        if self._error:
            raise self._error
        if self._lines is None:
            await asyncio.Event().wait()
        for line in (self._lines or [])[-(tail or 0) :]:
            yield line


def book_of(runtime: Said) -> Logbook:
    book = Logbook(cast("Any", runtime))
    book.open("a", "sparkdash-a")
    book.add("a", "its start")
    return book


async def test_the_last_lines_are_those_of_now() -> None:
    assert await book_of(Said(["its start", "then", "now"])).recent("a", 2) == ["then", "now"]


@pytest.mark.parametrize("runtime", [Said(None), Said([], HostError("podman does not answer."))])
async def test_a_runtime_that_does_not_tell_leaves_what_was_kept(
    runtime: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "RECENT_S", 0.1)
    assert await book_of(runtime).recent("a", 200) == ["its start"]


KILL = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    "task_memcg=/machine.slice/libpod-{id}.scope,task=python3,pid=4711,uid=1000",
    "Out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:83886080kB, file-rss:0kB, shmem-rss:0kB, UID:0",
)
XID = "NVRM: Xid (PCI:000f:01:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault"


class Kernel:
    """A kernel's log that holds these lines, all of the same moment; None: not readable."""

    def __init__(self, *texts: str, at: float = 0.0, closed: bool = False) -> None:
        self.texts, self.at, self.closed = texts, at, closed
        self.asked = 0

    async def since(self, unix_s: float) -> KernelFindings | None:
        self.asked += 1
        if self.closed:
            return None
        lines = [line for text in self.texts if (line := read_line(text, self.at)) and line.at >= unix_s]
        return findings(lines)


def failure_of(house: Any, name: str = "a") -> Failure:
    assert house.state(name) is EngineState.FAILED
    found: Failure = house.supervisor.engines[name].failure
    return found


async def dies(house: Any, code: int = 137, *words: str) -> Failure:
    container = house.runtime.of("a")
    for line in words:
        container.say(line)
    await house.runtime.end(container, code)
    await house.clock.drive(house.clock.sleep(2 * REMOVAL_S))  # an end by a signal may be somebody's removal
    await house.settled()
    return failure_of(house)


async def test_a_container_that_is_removed_a_moment_after_its_end_counts_as_removed(house: Any) -> None:
    """`podman rm -f` kills it, and removes it a moment later."""
    await house.served(make_profile("a"))
    container = house.runtime.of("a")
    await house.runtime.end(container, 137)
    await house.clock.drive(house.clock.sleep(REMOVAL_S / 2))
    del house.runtime.here[container.spec.name]
    await house.clock.drive(house.clock.sleep(2 * REMOVAL_S))
    await house.settled()
    assert failure_of(house).code == "container_removed"


async def test_an_engine_that_the_kernel_killed_says_so_with_its_size(house: Any) -> None:
    kernel = Kernel()
    await house.served(make_profile("a"), kernel_log=kernel)
    info = await house.runtime.inspect(house.runtime.of("a").spec.name)
    kernel.texts, kernel.at = tuple(text.replace("{id}", info.id) for text in KILL), house.clock.now()
    failure = await dies(house)
    assert failure.code == "out_of_memory"
    assert failure.message == "a died. The kernel killed python3 (pid 4711, which held 80 GiB) for want of memory."
    assert failure.hint is not None
    assert "shorter context" in failure.hint


async def test_another_process_killed_just_before_is_told_beside_the_engines_own_words(house: Any) -> None:
    kernel = Kernel()
    await house.served(make_profile("a"), kernel_log=kernel)
    kernel.texts, kernel.at = tuple(text.replace("{id}", "cd" * 32) for text in KILL), house.clock.now() - 5
    failure = await dies(house, 1, "RuntimeError: shape is invalid")
    assert failure.code == "engine_crash"
    assert "shape is invalid" in failure.message
    assert failure.message.endswith("The kernel killed python3 (pid 4711, which held 80 GiB) for want of memory.")


async def test_a_fault_of_the_gpu_is_told_with_its_number_and_what_to_do(house: Any) -> None:
    """Xid 31 as its engine dies."""
    kernel = Kernel(XID)
    await house.served(make_profile("a"), kernel_log=kernel)
    kernel.at = house.clock.now() - 5
    failure = await dies(house, 1, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
    assert "Xid 31 (the engine's GPU program read memory that is not there)" in failure.message
    assert "illegal memory access" in failure.message
    assert failure.hint is not None
    assert "another build" in failure.hint


async def test_an_old_fault_explains_nothing(house: Any) -> None:
    kernel = Kernel(XID)
    await house.served(make_profile("a"), kernel_log=kernel)
    kernel.at = house.clock.now() - 3600
    assert "Xid" not in (await dies(house, 1, "RuntimeError: x")).message
    assert kernel.asked == 1


async def test_a_log_that_is_closed_to_us_changes_nothing(house: Any) -> None:
    kernel = Kernel(closed=True)
    await house.served(make_profile("a"), kernel_log=kernel)
    assert (await dies(house)).message == "a died. The engine was killed (SIGKILL) without a word."


async def test_a_failed_load_has_the_kernels_line_of_its_own_time(house: Any) -> None:
    """Memory that the driver was refused since the load began; what was before is not asked for."""
    line = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)"
    kernel = Kernel(line, at=house.clock.now() + 1)
    house.runtime.zoo["a"] = Behaviour(dies_after_s=2, lines=("INFO starting",))
    await house.open(make_profile("a"), kernel_log=kernel)
    with pytest.raises(EngineError) as caught:
        await house.leased("a")
    assert "The NVIDIA driver was refused memory (NV_ERR_NO_MEMORY)" in caught.value.message


async def test_a_load_that_stands_still_keeps_its_evidence_and_the_kernels_word(house: Any) -> None:
    """Taken before it is ended: its processes, and what the kernel told since the load began."""
    kernel = Kernel("INFO: task python3:77 blocked for more than 120 seconds.", at=house.clock.now() + 1)
    asked: list[tuple[EvidenceRequest, bool]] = []

    async def take(request: EvidenceRequest) -> Evidence:
        asked.append((request, "sparkdash-a" in house.runtime.here))
        return Evidence("/state/incidents/1")

    house.runtime.zoo["a"] = Behaviour(never_ready=True)
    await house.open(make_profile("a"), kernel_log=kernel, take_evidence=take, no_progress_s=20)
    with pytest.raises(EngineError) as caught:
        await house.leased("a")
    assert (caught.value.code, caught.value.evidence) == ("no_progress", "/state/incidents/1")
    assert "made no progress for" in caught.value.message
    assert caught.value.message.endswith("no memory taken. The task python3 (pid 77) stands still in the kernel.")
    ((request, was_there),) = asked
    assert was_there
    assert (request.profile, bool(request.pids), bool(request.log)) == ("a", True, True)
    assert failure_of(house).evidence == "/state/incidents/1"


async def test_a_health_path_that_the_server_lacks_is_told_within_seconds(house: Any) -> None:
    """Such a server writes a line for each 404; the limit of 20 minutes was waited for."""
    server = {"health": "/nope", "port": 8000}
    await house.open(make_profile("a", engine="generic", server=server), no_progress_s=1200)
    asking = house.ask("a")
    await house.loads("a")
    await house.clock.drive(house.clock.sleep(15))
    (told,) = house.notices()
    assert (told.code, told.profile) == ("health_not_found", "a")
    assert told.text == (
        "a answers 404 at /nope, its `server.health`, and so does not count as up. "
        "/v1/models answers 200: if that shows that it is up, write it as `server.health`."
    )
    (*_, swap) = (fact.swap for fact in house.facts if isinstance(fact, SwapChanged))
    assert wait_text(swap, house.clock.now()) == "waits for 200 at /nope, which answers 404"
    began = house.clock.time
    with pytest.raises(EngineError) as caught:
        await house.clock.drive(asking.granted())
    assert house.clock.time - began < 180
    assert caught.value.code == "no_progress"
    assert caught.value.message.startswith("a answers 404 at /nope and made no progress for ")
    assert "write it as `server.health`" in caught.value.hint


async def test_a_server_that_answers_404_only_while_it_loads_comes_up(house: Any) -> None:
    does = house.runtime.zoo["a"] = Behaviour(health=404)
    await house.open(make_profile("a", engine="generic", server={"port": 8000, "ready_by": "health"}))
    asking = house.ask("a")
    await house.loads("a")
    await house.clock.drive(house.clock.sleep(15))
    does.health = 200
    await house.clock.drive(asking.granted())
    assert house.state("a") is EngineState.READY
    assert house.swaps()[-1].waits_for is None
    await asking.leave()


async def test_a_cause_that_its_log_names_is_not_looked_for_in_the_kernels() -> None:
    """An unknown flag has nothing to do with the kernel."""
    kernel, failure = Kernel(XID), Failure(code="unknown_flag", message="It refused its command line")
    assert await with_kernel(cast("Any", SimpleNamespace(kernel_log=kernel)), "a", "a", failure, 0.0) is failure
    assert kernel.asked == 0


@pytest.mark.parametrize(("node", "asked"), [("spark2", 0), ("local", 1)])
async def test_the_kernel_of_this_box_is_asked_only_about_engines_that_run_here(
    house: Any, node: str, asked: int
) -> None:
    kernel = Kernel()
    await house.served(make_profile("a", node=node), nodes=SecondNode(house), kernel_log=kernel)
    kernel.texts, kernel.at = tuple(text.replace("{id}", "cd" * 32) for text in KILL), house.clock.now() - 5
    failure = await dies(house, 1, "RuntimeError: shape is invalid")
    assert ("The kernel killed" in failure.message) is bool(asked)
    assert kernel.asked == asked


async def test_a_crash_that_may_be_another_boxs_has_no_foreign_kill_of_this_box_for_a_reason(house: Any) -> None:
    kernel = Kernel()
    both = make_profile("a", nodes=2, args={"tensor-parallel-size": 2})
    await house.served(both, nodes=SecondNode(house), kernel_log=kernel)
    kernel.texts, kernel.at = tuple(text.replace("{id}", "cd" * 32) for text in KILL), house.clock.now() - 5
    failure = await dies(house, 1, "RuntimeError: shape is invalid")
    assert "The kernel killed" not in failure.message
    assert kernel.asked == 1


@pytest.mark.parametrize(("node", "asked"), [("spark2", 0), ("local", 1)])
async def test_a_load_that_stands_still_on_another_node_has_no_word_of_this_boxs_kernel(
    house: Any, node: str, asked: int
) -> None:
    kernel = Kernel("INFO: task python3:77 blocked for more than 120 seconds.", at=house.clock.now() + 1)
    house.runtime.zoo["a"] = Behaviour(never_ready=True)
    await house.open(make_profile("a", node=node), nodes=SecondNode(house), kernel_log=kernel, no_progress_s=20)
    with pytest.raises(EngineError) as caught:
        await house.leased("a")
    assert ("stands still in the kernel" in caught.value.message) is bool(asked)
    assert kernel.asked == asked


async def test_a_rank_that_ends_seconds_after_the_head_s_first_answer_failed_is_the_reason(house: Any) -> None:
    """A vLLM over two boxes says 500 at once, and the container of the rank that died ends two seconds later."""
    house.runtime.zoo["a"] = Behaviour(talks_nonsense=True, load_s=1)
    both = make_profile("a", nodes=2, args={"tensor-parallel-size": 2})
    await house.open(both, nodes=SecondNode(house))
    asked = house.ask("a")
    await house.clock.until(lambda: house.state("a") is EngineState.WARMING)
    await house.clock.drive(house.clock.sleep(3))
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


@pytest.fixture
def fixed() -> Any:
    def make(name: str, gib: float, **facts: Any) -> Profile:
        made: Profile = make_profile(name, gib=gib, args=FIXED, **facts)
        return made

    return make


async def both_load(house: Any, first: str, second: str) -> None:
    """Let time pass until both are being loaded."""
    await house.loads(first)
    await house.loads(second)
    assert house.state(first) is EngineState.LOADING


async def test_a_short_load_does_not_wait_for_a_long_one(house: Any, fixed: Any) -> None:
    house.runtime.zoo.update(long=Behaviour(load_s=15), short=Behaviour(load_s=3))
    await house.open(fixed("long", 40), fixed("short", 10))
    coming = house.ask("long")
    await house.loads("long")
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


async def test_an_engine_that_sizes_itself_by_what_is_free_loads_alone(house: Any, fixed: Any) -> None:
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
        await house.clock.drive(house.supervisor.stop(None))


async def test_a_plan_says_whose_load_is_waited_for(house: Any, fixed: Any) -> None:
    house.runtime.zoo.update(long=Behaviour(load_s=15))
    await house.open(fixed("long", 40), fixed("short", 10), make_profile("sizes", gib=20), fixed("big", 100))
    coming = house.ask("long")
    await house.loads("long")
    plans = {name: await house.supervisor.plan(name) for name in ("short", "sizes", "big")}
    assert plans["short"].verdict == "It fits now, beside long."
    assert plans["sizes"].verdict == "It fits now, beside long. It begins once long has loaded."
    assert plans["big"].verdict == "It fits once long has left. It begins once long has loaded."
    assert [plan.beside for plan in plans.values()] == [("long",), ("long",), ()]
    await house.clock.drive(coming.granted())
    await coming.leave()


async def test_a_load_waits_until_both_peaks_fit_with_a_margin(house: Any, fixed: Any) -> None:
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
    for asking in (first, second):
        await asking.leave()


async def test_what_was_learned_needs_less_of_a_margin(house: Any, fixed: Any) -> None:
    store = Store(lambda _: None)
    house.runtime.zoo.update(a=Behaviour(load_s=10), b=Behaviour(load_s=3))
    await house.open(fixed("a", 40), fixed("b", 50), store=store)
    for name in "ab":
        await house.leased(name)
        await house.settled()
        await house.clock.drive(house.supervisor.stop(None))
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


async def test_one_that_fails_beside_another_takes_nothing_down(house: Any, fixed: Any) -> None:
    house.runtime.zoo.update(a=Behaviour(load_s=15), b=Behaviour(dies_after_s=2))
    await house.open(fixed("a", 30), fixed("b", 10), fixed("c", 10))
    first, second = house.ask("a"), house.ask("b")
    await both_load(house, "a", "b")
    (error,) = await asyncio.gather(house.clock.drive(second.granted()), return_exceptions=True)
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
    for asking in (first, third):
        await asking.leave()


@pytest.mark.parametrize("order", ["cancel", "stop"])
async def test_cancel_and_stop_end_every_load(house: Any, fixed: Any, order: str) -> None:
    house.runtime.zoo.update(a=Behaviour(never_ready=True), b=Behaviour(never_ready=True))
    await house.open(fixed("a", 30), fixed("b", 10), no_progress_s=600)
    asking = [house.ask("a"), house.ask("b")]
    await both_load(house, "a", "b")
    await house.clock.drive(house.supervisor.cancel() if order == "cancel" else house.supervisor.stop(None))
    assert house.runtime.running() == []
    assert {swap.outcome for swap in house.swaps()} == {SwapOutcome.CANCELLED}
    for each in asking:
        (error,) = await asyncio.gather(each.granted(), return_exceptions=True)
        assert error.code == ("cancelled" if order == "cancel" else "stopped")


async def test_a_stop_of_one_load_leaves_the_other(house: Any, fixed: Any) -> None:
    house.runtime.zoo.update(a=Behaviour(load_s=15), b=Behaviour(never_ready=True))
    await house.open(fixed("a", 30), fixed("b", 10), no_progress_s=600)
    asking = house.ask("a")
    house.ask("b")
    await both_load(house, "a", "b")
    await house.clock.drive(house.supervisor.stop("b"))
    assert (house.state("a"), house.runtime.running()) == (EngineState.LOADING, ["a"])
    await house.clock.drive(asking.granted())
    await asking.leave()


async def test_a_load_that_is_stopped_while_another_weighs_it_ends_nothing_else(house: Any, fixed: Any) -> None:
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
    await house.clock.drive(house.supervisor.stop("b"))
    house.runtime.pids = pids
    answered.set()
    for asking in (waiting, third):
        await house.clock.drive(asking.granted())
        await asking.leave()
    assert sorted(house.runtime.running()) == ["a", "c"]
    (error,) = await asyncio.gather(stopped.granted(), return_exceptions=True)
    assert error.code == "stopped"


async def test_a_server_that_is_not_ours_is_stopped_at_once_while_memory_comes_back_for_a_load(
    house: Any, unused_tcp_port: int
) -> None:
    port = unused_tcp_port
    far = make_profile("far", gib=None, engine=EngineKind.OPENAI, image=None, models={}, url=f"http://127.0.0.1:{port}")
    await house.open(make_profile("a"), make_profile("b"), far)
    server = await serve_engine("far", port)
    await house.leased("far")
    await house.leased("a")
    house.reader.leaks["a"] = 40 * GIB
    coming = house.ask("b")
    await house.clock.until(lambda: "a" in house.runtime.stopped and house.state("a") is None)
    began = house.clock.time
    await house.clock.drive(house.supervisor.stop("far"))
    assert house.clock.time - began < 1
    assert [notice.code for notice in house.notices() if notice.code == "memory_not_returned"] == []
    await asyncio.gather(house.clock.drive(coming.granted()), return_exceptions=True)
    await server.cleanup()


@pytest.mark.parametrize("readable", [True, False])
async def test_a_load_that_hangs_beside_another_is_noticed_while_that_one_loads(
    house: Any, fixed: Any, monkeypatch: pytest.MonkeyPatch, readable: bool
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

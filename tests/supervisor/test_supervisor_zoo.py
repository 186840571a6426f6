"""Engines, boxes and clients that misbehave: each gets its clear reason, and the service goes on."""

import asyncio
from typing import Any

import pytest
from surroundings.box import Behaviour
from surroundings.house import SecondNode, make_catalog, make_profile

from sparkdash.domain.engine import EngineState
from sparkdash.domain.node import NodeStatus
from sparkdash.domain.swap import SwapCause, SwapOutcome, SwapPhase
from sparkdash.errors import BadAnswerError, EngineDeadError, EngineError, UpstreamError
from sparkdash.host.processes import proc
from sparkdash.supervisor import repair
from sparkdash.supervisor.engine_end import REMOVAL_S
from sparkdash.units import GIB, MIB

DEAD = EngineDeadError("a answered 500: EngineCore encountered an issue")
PAGE = BadAnswerError("a answered 200 with no JSON object: <html>.")


async def meets(house: Any, trouble: UpstreamError, when: asyncio.Event | None = None) -> UpstreamError:
    """Outcome of a request that has this trouble with the engine of `a`, at once or when it is told."""

    async def use() -> None:
        async with house.supervisor.lease("a", request_id="r", on_wait=lambda _: None):
            if when:
                await when.wait()
            raise trouble

    with pytest.raises(UpstreamError) as caught:
        await house.clock.drive(use())
    await house.settled()
    return caught.value


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that calls itself dead has no time to end by itself."""
    monkeypatch.setattr(repair, "CONFIRM_S", 0.0)


@pytest.mark.parametrize(("log", "said"), [
    ("INFO ok", "EngineCore encountered an issue"),
    ("WARNING engine core exited unexpectedly", "exited unexpectedly"),
])  # fmt: skip
async def test_an_engine_that_calls_itself_dead_and_stays_is_ended(
    house: Any, hasty: None, log: str, said: str
) -> None:
    """vLLM of some versions goes on answering after its engine has died: it is not asked again, but started anew."""
    await house.served(make_profile("a"))
    house.runtime.of("a").say(log)
    await house.passes(1)
    error = await meets(house, DEAD)
    assert (error.code, said in error.message) == ("engine_crash", True)
    assert said in house.supervisor.engines["a"].failure.message
    assert (house.state("a"), house.runtime.here) == (EngineState.FAILED, {})
    await house.leased("a")
    assert [call for call, _ in house.runtime.calls] == ["start", "stop", "start"]


async def test_what_its_log_says_is_the_reason_of_its_death(house: Any) -> None:
    await house.served(make_profile("a"))
    came = asyncio.Event()
    slow = asyncio.ensure_future(meets(house, UpstreamError("the connection broke off", code="engine_died"), came))
    await house.clock.rest()
    await house.runtime.kill("a", "ERROR 11-21 02:50:36 Worker proc VllmWorker-0 died unexpectedly (exit code: -9)")
    await house.clock.rest()
    came.set()
    error = await slow
    assert (error.code, "VllmWorker-0 died unexpectedly" in error.message) == ("engine_crash", True)
    failure = house.supervisor.engines["a"].failure
    assert "VllmWorker-0 died unexpectedly" in failure.message
    assert [notice.code for notice in house.notices()] == ["engine_crash"]


async def test_a_bad_answer_of_an_engine_that_works_is_the_requests_own(house: Any) -> None:
    await house.served(make_profile("a"))
    assert await meets(house, PAGE) is PAGE
    assert house.state("a") is EngineState.READY
    assert house.notices() == []


async def test_an_engine_that_answers_nonsense_is_ended_told_and_counted(house: Any) -> None:
    does = house.runtime.zoo["a"] = Behaviour()
    await house.open(make_profile("a"))
    for _ in range(2):
        does.talks_nonsense = False
        await house.leased("a")
        does.talks_nonsense = True
        error = await meets(house, PAGE)
        assert error.code == "bad_answer"
        assert error.message == f"{PAGE.message} A short generation failed too: its answer was empty."
        assert (house.state("a"), house.runtime.here) == (EngineState.FAILED, {})
    assert [notice.code for notice in house.notices()] == ["bad_answer", "bad_answer"]
    with pytest.raises(Exception, match="a is parked after 2 failures"):
        await house.leased("a")


async def test_a_server_that_is_not_ours_is_not_parked_for_its_bad_answers(house: Any, elsewhere: Any) -> None:
    does = Behaviour()
    profile, _ = await elsewhere("a", does)
    await house.open(profile)
    for _ in range(3):
        does.talks_nonsense = False
        await house.leased("a")
        does.talks_nonsense = True
        assert (await meets(house, PAGE)).code == "engine_unreachable"
        assert house.state("a") is EngineState.FAILED
    does.talks_nonsense = False
    await house.leased("a")
    assert house.state("a") is EngineState.READY


async def test_an_engine_in_use_is_looked_at_and_one_at_rest_is_not(house: Any) -> None:
    does = house.runtime.zoo["a"] = Behaviour()
    await house.served(make_profile("a"))
    before, began = does.looks, house.clock.time
    await house.passes(10 * repair.LOOK_EVERY_S)
    assert does.looks - before <= 1  # one that had begun while it was used
    _, lease = await house.granted("a")
    await house.passes(5 * repair.LOOK_EVERY_S)
    assert does.looks > before + 2
    assert not lease.lost.done()
    does.health = 503
    error = await house.clock.drive(lease.lost)
    assert (error.code, "/health answered 503" in error.message) == ("engine_unhealthy", True)
    assert house.runtime.here == {}
    assert house.clock.time > began


async def test_an_engine_that_is_slow_to_answer_a_look_is_let_be(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.open(make_profile("a"))
    _, lease = await house.granted("a")
    looks = []

    async def no_answer(url: str, **_: Any) -> Any:
        looks.append(url)
        raise UpstreamError("no answer within 2 s", code="engine_timeout")

    monkeypatch.setattr(house.upstream, "get", no_answer)
    await house.passes(6 * repair.LOOK_EVERY_S)
    assert len(looks) > repair.MISSES
    assert not lease.lost.done()
    assert await house.supervisor.sickness(lease.profile, lease.url) is None
    monkeypatch.undo()


async def test_a_request_whose_engine_is_on_a_silent_node_is_told_so(house: Any) -> None:
    nodes = SecondNode(house)
    await house.served(make_profile("a", node="spark2"), nodes=nodes)
    why = "spark2 (lab@spark2) cannot be reached: Connection timed out."
    nodes.states["spark2"] = nodes.states["spark2"].replace(status=NodeStatus.UNREACHABLE, reason=why)
    error = await meets(house, UpstreamError("the connection broke off", code="engine_died"))
    assert (error.code, error.message) == ("node_unreachable", f"a cannot be reached. {why}")
    assert house.state("a") is EngineState.READY


async def test_so_is_one_whose_connection_ended_before_its_node_was_known_to_be_silent(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "CONFIRM_S", 0.05)
    nodes = SecondNode(house)
    await house.served(make_profile("a", node="spark2"), nodes=nodes)

    async def refused(_url: str, **_: Any) -> Any:
        nodes.states["spark2"] = nodes.states["spark2"].replace(status=NodeStatus.UNREACHABLE, reason="It is off.")
        raise UpstreamError("nothing listens", code="engine_unreachable")

    monkeypatch.setattr(house.upstream, "get", refused)
    error = await meets(house, UpstreamError("the connection broke off", code="engine_died"))
    assert (error.code, error.message) == ("node_unreachable", "a cannot be reached. It is off.")


@pytest.mark.parametrize("repeats", [False, True])
async def test_never_ready_is_given_up_for_standing_still(house: Any, repeats: bool) -> None:
    house.runtime.zoo["stuck"] = Behaviour(never_ready=True, heartbeat=repeats)
    await house.open(make_profile("stuck"), no_progress_s=20)
    began = house.clock.time
    error = await house.refused("stuck")
    assert house.clock.time - began < 40
    assert isinstance(error, EngineError)
    assert (error.code, error.phase) == ("no_progress", "load")
    assert repeats or any("50% Completed" in line for line in error.log_tail)
    assert house.runtime.here == {}
    assert house.swaps()[-1].failure.code == "no_progress"


def grows(now: float) -> int:
    """Bytes, 20 MiB more each second."""
    return int(now % 10_000) * GIB // 50


def wavers(now: float) -> int:
    return int(now * 2) % 2 * 60 * MIB


@pytest.mark.parametrize(
    ("takes", "caches", "known", "goes_on"),
    [(grows, None, None, True), (None, grows, {}, True), (wavers, wavers, None, False), (grows, grows, GIB, False)],
    ids=["it takes memory", "nobody may ask what it reads", "memory only wavers", "others move memory"],
)
async def test_a_load_is_let_go_on_while_memory_shows_that_it_moves(
    house: Any, monkeypatch: pytest.MonkeyPatch, takes: Any, caches: Any, known: Any, goes_on: bool
) -> None:
    """`known`: bytes that its own processes are known to have taken and read; {}: only those taken."""
    if known is not None:
        monkeypatch.setattr(proc, "taken_in", lambda pids: dict.fromkeys(pids, GIB))
        monkeypatch.setattr(proc, "reads", lambda pids: dict.fromkeys(pids, (GIB, GIB)) if known else {})
    house.runtime.zoo["a"] = Behaviour(load_s=200, lines=())
    await house.open(make_profile("a", gib=0), no_progress_s=20)
    asking, memory = house.ask("a"), house.reader.memory

    def moving() -> Any:
        now, found = house.clock.time, memory()
        taken, cached = takes(now) if takes else 0, caches(now) if caches else 0
        return found.replace(available=found.available - taken, page_cache=GIB + cached)

    house.reader.memory = moving
    if goes_on:
        assert (await house.clock.drive(asking.granted())).engine.load_s >= 200
    else:
        assert (await house.clock.drive(asking.refusal())).code == "no_progress"


async def test_dies_loading_tells_the_cause_and_falls_back_once(house: Any) -> None:
    house.runtime.zoo["dies"] = Behaviour(dies_after_s=2)
    await house.served(make_profile("good"), make_profile("dies"))
    error = await house.refused("dies")
    assert (error.code, error.status) == ("out_of_memory", 503)
    assert isinstance(error, EngineError)
    assert error.container_exit == 1
    assert "CUDA out of memory" in error.log_tail[-1]
    assert house.state("good") is EngineState.READY
    assert house.state("dies") is EngineState.FAILED
    assert [(s.target, s.cause, s.outcome) for s in house.swaps()[1:]] == [
        ("dies", SwapCause.REQUEST, SwapOutcome.FAILED),
        ("good", SwapCause.FALLBACK, SwapOutcome.DONE),
    ]
    assert [n.code for n in house.notices()] == ["out_of_memory"]


async def test_an_edited_profile_that_does_not_start_comes_back_as_it_ran_before(house: Any) -> None:
    house.runtime.zoo["broken"] = Behaviour(dies_after_s=2)
    house.runtime.present.add("broken")
    before, edited = make_profile("a"), make_profile("a", image="broken", gib=100)
    supervisor = await house.open(before)
    await house.leased("a")
    supervisor.replace_catalog(make_catalog(edited))
    await house.used("a")
    assert [(s.target, s.cause, s.outcome) for s in house.swaps()[1:]] == [
        ("a", SwapCause.USER, SwapOutcome.FAILED),
        ("a", SwapCause.FALLBACK, SwapOutcome.DONE),
    ]
    assert supervisor.engines["a"].fingerprint == before.fingerprint
    assert [notice.code for notice in house.notices()] == ["out_of_memory"]
    await house.leased("a")
    del house.runtime.zoo["broken"]
    await house.used("a")
    assert supervisor.engines["a"].fingerprint == edited.fingerprint


async def test_dies_after_ready_is_seen_told_and_started_again(house: Any) -> None:
    await house.open(make_profile("a"))
    asking, lease = await house.granted("a")
    await house.runtime.kill("a", "RuntimeError: Worker failed with error 'shape is invalid'")
    await house.clock.rest()
    assert lease.lost.result().code == "engine_crash"
    engine = house.supervisor.engines["a"]
    assert engine.state is EngineState.FAILED
    assert "shape is invalid" in engine.failure.log_tail[-1]
    assert engine.failure.hint == "The whole log is under `sparkdash logs a`."
    assert engine.in_flight == 0
    assert house.runtime.here == {}
    await asking.leave()
    await house.leased("a")
    assert house.state("a") is EngineState.READY


@pytest.mark.parametrize("after_s", [0.0, REMOVAL_S / 2])
async def test_a_container_that_somebody_removed_is_told_as_that(house: Any, after_s: float) -> None:
    """`podman rm -f` kills it with the exit code of a kill for want of memory, and removes it a moment later."""
    await house.open(make_profile("a"))
    for _ in range(2):
        await house.leased("a")
        container = house.runtime.of("a")
        if after_s:
            await house.runtime.end(container, 137)
            await house.passes(after_s)
            del house.runtime.here[container.spec.name]
        else:
            await house.runtime.remove("a")
        await house.passes(2 * REMOVAL_S)
        failure = house.supervisor.engines["a"].failure
        assert failure.code == "container_removed"
        assert "memory" not in failure.message + failure.hint
        assert "Its container sparkdash-a was removed, and not by sparkdash." in failure.message
    await house.leased("a")
    assert house.state("a") is EngineState.READY, "it is not parked for that"


async def test_a_death_that_was_seen_is_waited_for_however_slow_the_runtime(house: Any, hasty: None) -> None:
    await house.served(make_profile("a"))
    house.runtime.gate, broke_off = asyncio.Event(), asyncio.Event()
    asking = asyncio.ensure_future(meets(house, UpstreamError("the connection broke off"), broke_off))
    await house.clock.rest()
    await house.runtime.kill("a")
    await house.clock.rest()
    broke_off.set()
    await house.clock.rest()
    assert (asking.done(), house.state("a")) == (False, EngineState.READY)
    house.runtime.gate.set()
    await asking
    assert house.state("a") is EngineState.FAILED


async def test_what_followed_the_log_and_was_lost_costs_no_verdict(house: Any) -> None:
    """`podman logs` may be ended like any other process: the log itself is with the container, until that is cleared away."""
    house.runtime.deaf = True
    house.runtime.zoo["a"] = Behaviour(dies_after_s=3)
    await house.open(make_profile("a"))
    assert (await house.refused("a")).code == "out_of_memory"
    assert [line async for line in house.supervisor.logs("a")][-1].startswith("torch.OutOfMemoryError")


async def test_one_that_will_not_stop_fails_the_swap_keeps_no_other_from_it_and_is_tried_again(house: Any) -> None:
    house.runtime.zoo["rock"] = Behaviour(wont_stop=True)
    await house.served(make_profile("rock", gib=40), make_profile("a", gib=40), make_profile("b", gib=100))
    await house.leased("a")
    assert (await house.refused("b")).code == "unkillable"
    (failure,) = (swap.failure for swap in house.swaps() if swap.target == "b")
    assert (failure.code, failure.phase) == ("unkillable", "stop")
    assert ("stop", "a") in house.runtime.calls
    assert (house.state("rock"), house.runtime.running()[0]) == (EngineState.FAILED, "rock")
    house.runtime.of("rock").behaviour.wont_stop = False
    await house.used("b")
    assert house.runtime.running() == ["b"]


@pytest.mark.parametrize("stopped_before", [False, True])
async def test_memory_that_comes_back_late_is_waited_for(house: Any, stopped_before: bool) -> None:
    await house.served(make_profile("a", gib=60), make_profile("big", gib=100), reclaim_s=300)
    house.reader.leaks["a"] = 50 * GIB
    if stopped_before:
        await house.stopped("a")
    asking = house.ask("big")

    async def release() -> None:
        await house.clock.sleep(100)
        house.reader.leaks.clear()

    releasing = asyncio.create_task(release())
    await house.clock.drive(asking.granted())
    await releasing
    assert house.swaps()[-1].stage_s[SwapPhase.RECLAIM] >= 100


async def test_what_a_failed_load_leaves_behind_is_told(house: Any) -> None:
    house.runtime.zoo["stuck"] = Behaviour(never_ready=True, wont_stop=True)
    await house.open(make_profile("stuck"), no_progress_s=20)
    assert (await house.refused("stuck")).code == "no_progress"
    assert [notice.code for notice in house.notices()] == ["unkillable", "no_progress"]
    assert "left over" in house.notices()[0].text


async def test_a_box_that_is_full_of_others_is_not_waited_for(house: Any) -> None:
    await house.open(make_profile("b", gib=70))
    house.reader.others = 70 * GIB
    began = house.clock.time
    assert (await house.refused("b")).code == "does_not_fit"
    assert house.clock.time - began < 5

"""Engines, boxes and clients that misbehave: each gets its clear reason, and the service goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from surroundings.engines import Behaviour, serve_engine
from surroundings.house import SecondNode, make_catalog, make_profile

from sparkdash.domain.engine import EngineState
from sparkdash.domain.node import NodeStatus
from sparkdash.domain.swap import SwapCause, SwapOutcome, SwapPhase
from sparkdash.errors import (
    AdmissionError,
    BadAnswerError,
    EngineDeadError,
    EngineError,
    UpstreamError,
)
from sparkdash.store import Store
from sparkdash.supervisor import repair
from sparkdash.units import GIB, MIB

DEAD = EngineDeadError("a answered 500: EngineCore encountered an issue")
PAGE = BadAnswerError("a answered 200 with no JSON object: <html>.")


async def meets(house: Any, trouble: UpstreamError) -> UpstreamError:
    """Outcome of a request that had this trouble with the engine of `a`."""

    async def use() -> None:
        async with house.supervisor.lease("a", request_id="r", on_wait=lambda _: None):
            raise trouble

    with pytest.raises(UpstreamError) as caught:
        await house.clock.drive(use())
    await house.settled()
    return caught.value


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that calls itself dead has no time to end by itself."""
    monkeypatch.setattr(repair, "CONFIRM_S", 0.0)


async def test_an_engine_that_calls_itself_dead_and_stays_is_ended(house: Any, hasty: None) -> None:
    """vLLM of some versions goes on answering after its engine has died: it is not asked again, but started anew."""
    await house.served(make_profile("a"))
    error = await meets(house, DEAD)
    assert (error.code, "EngineCore encountered an issue" in error.message) == ("engine_crash", True)
    assert (house.state("a"), house.runtime.here) == (EngineState.FAILED, {})
    await house.leased("a")
    assert [call for call, _ in house.runtime.calls] == ["start", "stop", "start"]


async def test_what_its_log_says_is_the_reason_of_its_death(house: Any) -> None:
    await house.open(make_profile("a"))
    came = asyncio.Event()

    async def late() -> None:
        async with house.supervisor.lease("a", request_id="late", on_wait=lambda _: None):
            await came.wait()
            raise UpstreamError("the connection broke off", code="engine_died")

    await house.leased("a")
    slow = asyncio.ensure_future(late())
    await house.clock.rest()
    await house.runtime.kill("a", "ERROR 11-21 02:50:36 Worker proc VllmWorker-0 died unexpectedly (exit code: -9)")
    error = await meets(house, DEAD) if house.state("a") is EngineState.READY else None
    await house.clock.rest()
    came.set()
    with pytest.raises(UpstreamError, match="VllmWorker-0 died unexpectedly") as caught:
        await house.clock.drive(slow)
    assert caught.value.code == "engine_crash"
    assert error is None or "VllmWorker-0 died unexpectedly" in error.message
    failure = house.supervisor.engines["a"].failure
    assert "VllmWorker-0 died unexpectedly" in failure.message
    assert [notice.code for notice in house.notices()] == ["engine_crash"]


async def test_what_its_log_says_is_the_reason_also_where_its_end_is_slow(house: Any, hasty: None) -> None:
    await house.served(make_profile("a"))
    words = "WARNING 11-23 00:11:29 [core_client.py:817] [shutdown] MPClient: engine core exited unexpectedly"
    house.runtime.of("a").say(words)
    await house.clock.drive(house.clock.sleep(1))
    error = await meets(house, DEAD)
    assert (error.code, "engine core exited unexpectedly" in error.message) == ("engine_crash", True)
    assert "engine core exited unexpectedly" in house.supervisor.engines["a"].failure.message


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


async def test_a_server_that_is_not_ours_is_not_parked_for_its_bad_answers(house: Any) -> None:
    does = Behaviour()
    server = await serve_engine("a", 0, does=does)
    url = f"http://127.0.0.1:{server.addresses[0][1]}"
    await house.open(make_profile("a", engine="openai", image=None, url=url, model_id="a", gib=None))
    for _ in range(3):
        does.talks_nonsense = False
        await house.leased("a")
        does.talks_nonsense = True
        assert (await meets(house, PAGE)).code == "engine_unreachable"
        assert house.state("a") is EngineState.FAILED
    does.talks_nonsense = False
    await house.leased("a")
    assert house.state("a") is EngineState.READY
    await server.cleanup()


async def test_an_engine_in_use_is_looked_at_and_one_at_rest_is_not(house: Any) -> None:
    does = house.runtime.zoo["a"] = Behaviour()
    await house.served(make_profile("a"))
    before, began = does.looks, house.clock.time
    await house.clock.drive(house.clock.sleep(10 * repair.LOOK_EVERY_S))
    assert does.looks - before <= 1  # one that had begun while it was used
    asking = house.ask("a")
    lease = await house.clock.drive(asking.granted())
    await house.clock.drive(house.clock.sleep(5 * repair.LOOK_EVERY_S))
    assert does.looks > before + 2
    assert not lease.lost.done()
    does.health = 503
    error = await house.clock.drive(lease.lost)
    assert (error.code, "/health answered 503" in error.message) == ("engine_unhealthy", True)
    assert house.runtime.here == {}
    assert house.clock.time > began
    await asking.leave()


async def test_an_engine_that_is_slow_to_answer_a_look_is_let_be(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.open(make_profile("a"))
    asking = house.ask("a")
    lease = await house.clock.drive(asking.granted())
    looks = []

    async def no_answer(url: str, **_: Any) -> Any:
        looks.append(url)
        raise UpstreamError("no answer within 2 s", code="engine_timeout")

    monkeypatch.setattr(house.upstream, "get", no_answer)
    await house.clock.drive(house.clock.sleep(6 * repair.LOOK_EVERY_S))
    assert len(looks) > repair.MISSES
    assert not lease.lost.done()
    assert await house.supervisor.sickness(lease.profile, lease.url) is None
    monkeypatch.undo()
    await asking.leave()


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
    """A line that only repeats is no progress."""
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


async def test_a_slow_load_that_takes_memory_is_let_go_on(house: Any) -> None:
    house.runtime.zoo["slow"] = Behaviour(load_s=200, lines=())
    await house.open(make_profile("slow"), no_progress_s=20)
    asking = house.ask("slow")
    taken = house.reader.memory

    def filling() -> Any:
        memory = taken()
        return memory.model_copy(update={"available": memory.available - int(house.clock.time % 10_000) * GIB // 50})

    house.reader.memory = filling
    lease = await house.clock.drive(asking.granted())
    assert lease.engine.load_s >= 200
    await asking.leave()


async def test_memory_that_only_wavers_is_no_progress(house: Any) -> None:
    house.runtime.zoo["stuck"] = Behaviour(never_ready=True, heartbeat=True)
    await house.open(make_profile("stuck"), no_progress_s=20)
    began, taken = house.clock.time, house.reader.memory

    def wavering() -> Any:
        wave = int(house.clock.time * 2) % 2 * 60 * MIB
        memory = taken()
        return memory.model_copy(update={"available": memory.available - wave, "page_cache": GIB + wave})

    house.reader.memory = wavering
    assert (await house.refused("stuck")).code == "no_progress"
    assert house.clock.time - began < 40


async def test_a_load_that_failed_teaches_nothing(house: Any) -> None:
    store = Store(lambda _: None)
    house.runtime.zoo["dies"] = Behaviour(dies_after_s=2)
    await house.open(make_profile("dies"), store=store)
    await house.refused("dies")
    fingerprint = make_profile("dies").fingerprint
    assert (store.footprint(fingerprint), store.steps(fingerprint), store.expected_s(fingerprint)) == (None, (), None)
    assert [step.name for step in house.swaps()[-1].steps][-1] == "weights"
    assert house.swaps()[-1].fraction < 1


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
    await supervisor.use("a", cause=SwapCause.USER)
    await house.settled()
    assert [(s.target, s.cause, s.outcome) for s in house.swaps()[1:]] == [
        ("a", SwapCause.USER, SwapOutcome.FAILED),
        ("a", SwapCause.FALLBACK, SwapOutcome.DONE),
    ]
    assert supervisor.engines["a"].fingerprint == before.fingerprint
    assert [notice.code for notice in house.notices()] == ["out_of_memory"]
    await house.leased("a")
    del house.runtime.zoo["broken"]
    await supervisor.use("a", cause=SwapCause.USER)
    await house.settled()
    assert supervisor.engines["a"].fingerprint == edited.fingerprint


async def test_dies_after_ready_is_seen_told_and_started_again(house: Any) -> None:
    await house.open(make_profile("a"))
    asking = house.ask("a")
    lease = await house.clock.drive(asking.granted())
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


async def test_a_container_that_somebody_removed_is_told_as_that(house: Any) -> None:
    """The exit code is that of a kill by the kernel for want of memory; it is no reason to park the profile."""
    await house.open(make_profile("a"))
    for _ in range(2):
        await house.leased("a")
        await house.runtime.remove("a")
        await house.clock.rest()
        failure = house.supervisor.engines["a"].failure
        assert failure.code == "container_removed"
        assert "memory" not in failure.message + failure.hint
        assert "Its container sparkdash-a was removed, and not by sparkdash." in failure.message
    await house.leased("a")
    assert house.state("a") is EngineState.READY


async def test_a_death_that_was_seen_is_waited_for_however_slow_the_runtime(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "CONFIRM_S", 0.0)
    await house.served(make_profile("a"))
    house.runtime.gate, broke_off = asyncio.Event(), asyncio.Event()

    async def client() -> None:
        async with house.supervisor.lease("a", request_id="r", on_wait=lambda _: None):
            await broke_off.wait()
            raise UpstreamError("the connection broke off")

    asking = asyncio.ensure_future(client())
    await house.runtime.kill("a")
    await house.clock.rest()
    broke_off.set()
    await house.clock.rest()
    assert (asking.done(), house.state("a")) == (False, EngineState.READY)
    house.runtime.gate.set()
    with pytest.raises(UpstreamError):
        await house.clock.drive(asking)
    await house.settled()
    assert house.state("a") is EngineState.FAILED


async def test_what_followed_the_log_and_was_lost_costs_no_verdict(house: Any) -> None:
    """`podman logs` may be ended like any other process: the log itself is with the container, until that is cleared away."""
    house.runtime.deaf = True
    house.runtime.zoo["a"] = Behaviour(dies_after_s=3)
    await house.open(make_profile("a"))
    assert (await house.refused("a")).code == "out_of_memory"
    assert [line async for line in house.supervisor.logs("a")][-1].startswith("torch.OutOfMemoryError")


async def test_wont_stop_fails_the_swap_and_is_tried_again_by_the_next(house: Any) -> None:
    house.runtime.zoo["rock"] = Behaviour(wont_stop=True)
    await house.served(make_profile("rock"), make_profile("b"))
    error = await house.refused("b")
    assert (error.code, house.swaps()[-1].failure.phase) == ("unkillable", "stop")
    assert house.state("rock") is EngineState.FAILED
    assert house.runtime.running() == ["rock"]
    house.runtime.of("rock").behaviour.wont_stop = False
    await house.supervisor.use("b", cause=SwapCause.USER)
    await house.settled()
    assert house.runtime.running() == ["b"]


async def test_leaks_memory_means_the_next_one_is_not_started(house: Any) -> None:
    await house.served(make_profile("leaky", gib=60), make_profile("big", gib=100), reclaim_s=30)
    house.reader.leaks["leaky"] = 50 * GIB
    began = house.clock.time
    error = await house.refused("big")
    assert house.clock.time - began >= 30
    assert isinstance(error, AdmissionError)
    assert error.code == "memory_not_returned"
    for figure in ("50.0 GiB of 60.0 GiB not returned by leaky", "100.0 GiB", "10.0 GiB kept", "70.0 GiB available"):
        assert figure in error.message
    assert ("start", "big") not in house.runtime.calls


@pytest.mark.parametrize("stopped_before", [False, True])
async def test_memory_that_comes_back_late_is_waited_for(house: Any, stopped_before: bool) -> None:
    await house.served(make_profile("a", gib=60), make_profile("big", gib=100), reclaim_s=300)
    house.reader.leaks["a"] = 50 * GIB
    if stopped_before:
        await house.clock.drive(house.supervisor.stop("a"))
    asking = house.ask("big")

    async def release() -> None:
        await house.clock.sleep(100)
        house.reader.leaks.clear()

    releasing = asyncio.create_task(release())
    await house.clock.drive(asking.granted())
    await releasing
    assert house.swaps()[-1].stage_s[SwapPhase.RECLAIM] >= 100
    await asking.leave()


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

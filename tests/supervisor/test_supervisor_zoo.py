"""Engines, boxes and clients that misbehave: each gets its clear reason, and the service goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparkdash.domain.engine import EngineState
from sparkdash.domain.swap import SwapCause, SwapOutcome, SwapPhase
from sparkdash.errors import AdmissionError, EngineError, HostError, SparkdashError, UpstreamError
from sparkdash.store import Store
from sparkdash.supervisor.repair import watch
from sparkdash.units import GIB, MIB


async def refused(house: Any, name: str) -> SparkdashError:
    """What a request for `name` is refused with."""
    asking = house.ask(name)
    (result,) = await house.clock.drive(asyncio.gather(asking.granted(), return_exceptions=True))
    assert isinstance(result, SparkdashError), result
    await house.settled()
    return result


async def test_never_ready_is_given_up_for_standing_still(house: Any, make_profile: Any, behaviour: Any) -> None:
    """No line and no memory for `no_progress_s`: the load fails with its last lines, and nothing is left over."""
    house.runtime.zoo["stuck"] = behaviour(never_ready=True)
    await house.open(make_profile("stuck"), no_progress_s=20)
    error = await refused(house, "stuck")
    assert isinstance(error, EngineError)
    assert (error.code, error.phase) == ("no_progress", "load")
    assert any("50% Completed" in line for line in error.log_tail)
    assert house.runtime.here == {}
    assert house.swaps()[-1].failure.code == "no_progress"


async def test_a_line_that_only_repeats_is_no_progress(house: Any, make_profile: Any, behaviour: Any) -> None:
    """A hung engine that says once a second that it waits is given up like a silent one."""
    house.runtime.zoo["stuck"] = behaviour(never_ready=True, heartbeat=True)
    await house.open(make_profile("stuck"), no_progress_s=20)
    began = house.clock.time
    assert (await refused(house, "stuck")).code == "no_progress"
    assert house.clock.time - began < 40


async def test_a_slow_load_that_takes_memory_is_let_go_on(house: Any, make_profile: Any, behaviour: Any) -> None:
    """Ten times `no_progress_s` pass in silence while memory fills: that is progress."""
    house.runtime.zoo["slow"] = behaviour(load_s=200, lines=())
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


async def test_a_page_cache_that_grows_is_progress(house: Any, make_profile: Any, behaviour: Any) -> None:
    """Weights that an engine maps from a slow disk: no line, no memory taken for ten times `no_progress_s`."""
    house.runtime.zoo["mapped"] = behaviour(load_s=200, lines=())
    await house.open(make_profile("mapped", gib=0), no_progress_s=20)
    asking, taken = house.ask("mapped"), house.reader.memory

    def caching() -> Any:
        return taken().model_copy(update={"page_cache": int(house.clock.time % 10_000) * GIB // 50})

    house.reader.memory = caching
    lease = await house.clock.drive(asking.granted())
    assert lease.engine.load_s >= 200
    await asking.leave()


async def test_memory_that_only_wavers_is_no_progress(house: Any, make_profile: Any, behaviour: Any) -> None:
    """Up and down by less than an engine takes, for ever: that is the box, not the load."""
    house.runtime.zoo["stuck"] = behaviour(never_ready=True, heartbeat=True)
    await house.open(make_profile("stuck"), no_progress_s=20)
    began, taken = house.clock.time, house.reader.memory

    def wavering() -> Any:
        wave = int(house.clock.time * 2) % 2 * 60 * MIB
        memory = taken()
        return memory.model_copy(update={"available": memory.available - wave, "page_cache": GIB + wave})

    house.reader.memory = wavering
    assert (await refused(house, "stuck")).code == "no_progress"
    assert house.clock.time - began < 40


async def test_a_load_that_failed_teaches_nothing(house: Any, make_profile: Any, behaviour: Any) -> None:
    """Neither its times nor its memory are those of an engine that serves."""
    store = Store(lambda _: None)
    house.runtime.zoo["dies"] = behaviour(dies_after_s=2)
    await house.open(make_profile("dies"), store=store)
    await refused(house, "dies")
    fingerprint = make_profile("dies").fingerprint
    assert (store.footprint(fingerprint), store.steps(fingerprint), store.expected_s(fingerprint)) == (None, (), None)
    assert [step.name for step in house.swaps()[-1].steps][-1] == "weights"
    assert house.swaps()[-1].fraction < 1


async def test_dies_loading_tells_the_cause_and_falls_back_once(house: Any, make_profile: Any, behaviour: Any) -> None:
    """The request gets the classified reason and the last lines; the profile that ran before comes back."""
    house.runtime.zoo["dies"] = behaviour(dies_after_s=2)
    await house.open(make_profile("good"), make_profile("dies"))
    await house.leased("good")
    error = await refused(house, "dies")
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


async def test_a_failure_is_remembered_while_it_rests_and_released_by_a_person(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """Retries are refused at once with the cached reason and no swap; `use` tries again; so does time."""
    house.runtime.zoo["dies"] = behaviour(dies_after_s=2)
    await house.open(make_profile("dies"))
    await refused(house, "dies")
    again = await refused(house, "dies")
    assert again.code == "out_of_memory"
    assert again.retry_after is None
    assert "`sparkdash use dies` starts it now" in again.hint
    assert len(house.swaps()) == 1
    house.runtime.zoo["dies"] = behaviour()
    await house.supervisor.use("dies", cause=SwapCause.USER)
    await house.settled()
    assert house.state("dies") is EngineState.READY


async def test_a_fall_back_that_fails_too_is_the_end_of_it(house: Any, make_profile: Any, behaviour: Any) -> None:
    """One fall back, not a chain of them."""
    house.runtime.zoo["dies"] = behaviour(dies_after_s=2)
    await house.open(make_profile("good"), make_profile("dies"))
    await house.leased("good")
    house.runtime.zoo["good"] = behaviour(dies_after_s=1)
    await refused(house, "dies")
    assert [s.cause for s in house.swaps()[1:]] == [SwapCause.REQUEST, SwapCause.FALLBACK]
    assert house.runtime.here == {}


async def test_dies_after_ready_is_seen_told_and_started_again(house: Any, make_profile: Any) -> None:
    """The holder learns it, the snapshot shows the last words, the next request starts it anew."""
    await house.open(make_profile("a"))
    asking = house.ask("a")
    lease = await house.clock.drive(asking.granted())
    await house.runtime.kill("a", "RuntimeError: Worker failed with error 'shape is invalid'")
    await house.clock.rest()
    assert lease.lost.result().code == "engine_crash"
    engine = house.supervisor.engines["a"]
    assert engine.state is EngineState.FAILED
    assert "shape is invalid" in engine.failure.log_tail[-1]
    assert engine.in_flight == 0
    assert house.runtime.here == {}
    await asking.leave()
    await house.leased("a")
    assert house.state("a") is EngineState.READY


async def test_a_container_that_somebody_removed_is_told_as_that(house: Any, make_profile: Any) -> None:
    """Its exit code is that of an engine which the kernel killed for want of memory; and it is no reason to park the profile."""
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


async def test_the_words_of_a_failure_name_the_profile(house: Any, make_profile: Any) -> None:
    """A hint is a command that can be typed as it stands there."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.runtime.kill("a", "KeyError: 'w1'")
    await house.clock.rest()
    assert house.supervisor.engines["a"].failure.hint == "The whole log is under `sparkdash logs a`."


async def test_an_engine_that_keeps_dying_is_not_started_for_ever(house: Any, make_profile: Any) -> None:
    """The second death within five minutes is remembered: restart loops have wedged whole boxes."""
    await house.open(make_profile("a"))
    for _ in range(2):
        await house.leased("a")
        await house.runtime.kill("a", "Segmentation fault")
        await house.clock.rest()
    assert (await refused(house, "a")).code == "engine_crash"
    assert len(house.swaps()) == 2


async def test_trouble_with_a_dead_engine_is_known_before_the_second_try(house: Any, make_profile: Any) -> None:
    """An UpstreamError that leaves the lease is let through only once the death is in the registry."""
    await house.open(make_profile("a"))

    async def client() -> None:
        async with house.supervisor.lease("a", request_id="r", on_wait=lambda _: None) as lease:
            await house.runtime.kill("a")
            await house.upstream.generate(lease.url, "a", timeout_s=60)

    (error,) = await house.clock.drive(asyncio.gather(client(), return_exceptions=True))
    assert isinstance(error, UpstreamError)
    await house.settled()
    assert house.state("a") is EngineState.FAILED


async def test_a_death_that_was_seen_is_waited_for_however_slow_the_runtime(
    house: Any, make_profile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second try before it is in the registry would be given the same dead engine, and be the last."""
    monkeypatch.setattr(watch, "CONFIRM_S", 0.0)
    await house.open(make_profile("a"))
    await house.leased("a")
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


async def test_what_followed_the_log_and_was_lost_costs_no_verdict(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """`podman logs` may be ended like any other process: the log itself is with the container, until that is cleared away."""
    house.runtime.deaf = True
    house.runtime.zoo["a"] = behaviour(dies_after_s=3)
    await house.open(make_profile("a"))
    assert (await refused(house, "a")).code == "out_of_memory"
    assert [line async for line in house.supervisor.logs("a")][-1].startswith("torch.OutOfMemoryError")


async def test_lies_about_health_is_caught_by_a_real_generation(house: Any, make_profile: Any, behaviour: Any) -> None:
    """200 on every probe and nothing said: not ready, and gone again."""
    house.runtime.zoo["liar"] = behaviour(empty_answers=True)
    await house.open(make_profile("liar"))
    error = await refused(house, "liar")
    assert error.code == "bad_answer"
    assert house.swaps()[-1].failure.phase == "warm"
    assert house.runtime.here == {}


async def test_wont_stop_fails_the_swap_and_is_tried_again_by_the_next(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """What cannot be stopped is still in the way: no second engine beside it, and it serves nobody."""
    house.runtime.zoo["rock"] = behaviour(wont_stop=True)
    await house.open(make_profile("rock"), make_profile("b"))
    await house.leased("rock")
    error = await refused(house, "b")
    assert (error.code, house.swaps()[-1].failure.phase) == ("unkillable", "stop")
    assert house.state("rock") is EngineState.FAILED
    assert house.runtime.running() == ["rock"]
    house.runtime.of("rock").behaviour.wont_stop = False
    await house.supervisor.use("b", cause=SwapCause.USER)
    await house.settled()
    assert house.runtime.running() == ["b"]


async def test_leaks_memory_means_the_next_one_is_not_started(house: Any, make_profile: Any) -> None:
    """What the box does not give back is waited for and then told with all figures; it is not gambled with."""
    await house.open(make_profile("leaky", gib=60), make_profile("big", gib=100), reclaim_s=30)
    await house.leased("leaky")
    house.reader.leaks["leaky"] = 50 * GIB
    began = house.clock.time
    error = await refused(house, "big")
    assert house.clock.time - began >= 30
    assert isinstance(error, AdmissionError)
    assert error.code == "memory_not_returned"
    for figure in ("50.0 GiB of 60.0 GiB not returned by leaky", "100.0 GiB", "10.0 GiB kept", "70.0 GiB available"):
        assert figure in error.message
    assert ("start", "big") not in house.runtime.calls


async def test_memory_that_comes_back_late_is_waited_for(house: Any, make_profile: Any) -> None:
    """The next engine is created only when enough is available and it has stopped moving."""
    await house.open(make_profile("a", gib=60), make_profile("big", gib=100), reclaim_s=300)
    await house.leased("a")
    house.reader.leaks["a"] = 50 * GIB
    asking = house.ask("big")

    async def release() -> None:
        await house.clock.sleep(100)
        house.reader.leaks.clear()

    releasing = asyncio.create_task(release())
    await house.clock.drive(asking.granted())
    await releasing
    assert house.swaps()[-1].stage_s[SwapPhase.RECLAIM] >= 100
    await asking.leave()


async def test_without_a_runtime_the_service_goes_on(house: Any, make_profile: Any) -> None:
    """Podman absent: said once at the start, and to each request; when it is there again, so are engines."""
    house.runtime.missing = True
    await house.open(make_profile("a"))
    assert [n.code for n in house.notices()] == ["runtime_missing"]
    assert (await refused(house, "a")).code == "runtime_missing"
    house.runtime.missing = False
    await house.supervisor.use("a", cause=SwapCause.USER)
    await house.settled()
    assert house.state("a") is EngineState.READY


async def test_a_runtime_that_fails_while_an_engine_loads_does_not_end_the_load(house: Any, make_profile: Any) -> None:
    """`podman wait` is a child like any other, and on a full box it is the one that gets killed."""
    await house.open(make_profile("a"))
    wait, tries = house.runtime.wait, []

    async def fails_once(name: str) -> int:
        tries.append(name)
        if len(tries) == 1:
            raise HostError("`podman wait` failed: killed.", code="runtime_failed")
        return await wait(name)

    house.runtime.wait = fails_once
    await house.leased("a")
    assert len(tries) > 1
    assert house.runtime.running() == ["a"]


async def test_what_a_failed_load_leaves_behind_is_told(house: Any, make_profile: Any, behaviour: Any) -> None:
    """An engine that failed and cannot be removed holds memory: a person must hear of it, beside the reason."""
    house.runtime.zoo["stuck"] = behaviour(never_ready=True, wont_stop=True)
    await house.open(make_profile("stuck"), no_progress_s=20)
    assert (await refused(house, "stuck")).code == "no_progress"
    assert [notice.code for notice in house.notices()] == ["unkillable", "no_progress"]
    assert "left over" in house.notices()[0].text


async def test_memory_of_an_engine_that_was_stopped_before_is_waited_for_too(house: Any, make_profile: Any) -> None:
    """Stop, then use: nobody is evicted by that start, and what the stopped one held is still on its way back."""
    await house.open(make_profile("a", gib=70), make_profile("b", gib=70))
    await house.leased("a")
    house.reader.leaks["a"] = 70 * GIB
    await house.clock.drive(house.supervisor.stop("a"))
    asking = house.ask("b")
    for _ in range(12):
        house.clock.step()
        await house.clock.rest()
    assert not asking.task.done()
    house.reader.leaks.clear()
    assert (await house.clock.drive(asking.granted())).profile.name == "b"
    await asking.leave()


async def test_a_box_that_is_full_of_others_is_not_waited_for(house: Any, make_profile: Any) -> None:
    """Nothing of ours left lately: the refusal comes in a moment."""
    await house.open(make_profile("b", gib=70))
    house.reader.others = 70 * GIB
    began = house.clock.time
    assert (await refused(house, "b")).code == "does_not_fit"
    assert house.clock.time - began < 5

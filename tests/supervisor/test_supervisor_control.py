"""Orders of a person, a request with a wrong name, and a daemon that ends."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from surroundings.box import Behaviour
from surroundings.house import SecondNode, make_catalog, make_profile

from sparkdash.catalog import Catalog
from sparkdash.catalog.catalog import with_replicas
from sparkdash.domain.engine import EngineState
from sparkdash.domain.node import LOCAL
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError, DaemonError, HostError


async def test_use_returns_the_plan_at_once_and_the_swap_goes_on_by_itself(house: Any) -> None:
    await house.open(make_profile("a"), make_profile("b"))
    await house.used("a")
    plan = await house.supervisor.use("b", cause=SwapCause.BENCH)
    assert (plan.profile, plan.evict, plan.needs_bytes) == ("b", ("a",), 80 * 2**30)
    await house.settled()
    assert [swap.cause for swap in house.swaps()] == [SwapCause.USER, SwapCause.BENCH]
    assert house.runtime.running() == ["b"]


async def test_cancel_during_a_stop_lets_the_stop_finish(house: Any) -> None:
    await house.served(make_profile("a"), make_profile("b"))
    gate = house.runtime.gate = asyncio.Event()
    await house.supervisor.use("b", cause=SwapCause.USER)
    await house.clock.rest()
    cancelling = asyncio.create_task(house.supervisor.cancel())
    await house.clock.rest()
    assert not cancelling.done()
    gate.set()
    await house.clock.drive(cancelling)
    await house.settled()
    assert house.supervisor.engines == {}
    assert house.runtime.calls == [("start", "a"), ("stop", "a")]


async def test_cancel_during_a_start_and_then_the_end_leave_no_container(house: Any) -> None:
    """The start is finished first, since a half-made container cannot be removed; then it is removed."""
    await house.open(make_profile("a"))
    gate = house.runtime.gate = asyncio.Event()
    await house.supervisor.use("a", cause=SwapCause.USER)
    await house.clock.steps(4)  # through the reclaim
    assert house.state("a") is EngineState.CREATING
    cancelling = asyncio.create_task(house.supervisor.cancel())
    await house.clock.rest()
    ending = asyncio.create_task(house.close())
    await house.clock.rest()
    assert not ending.done()
    gate.set()
    await ending
    await asyncio.gather(cancelling, return_exceptions=True)
    assert house.runtime.calls == [("start", "a"), ("stop", "a")]
    assert house.runtime.here == {}


@pytest.mark.parametrize("phase", ["start", "stop"])
async def test_the_end_does_not_wait_for_a_runtime_that_hangs_longer_than_the_daemon_may(
    house: Any, phase: str
) -> None:
    """The next daemon recognises what is left: it still carries our label."""
    await house.open(make_profile("a"), make_profile("b"))
    if phase == "stop":
        await house.leased("a")
    house.runtime.gate = asyncio.Event()
    await house.supervisor.use("b", cause=SwapCause.USER)
    await house.clock.steps(4)
    ending = asyncio.create_task(house.close())
    await house.clock.rest()
    assert not ending.done()
    house.supervisor.give_up()
    await house.clock.drive(ending)
    assert house.runtime.calls == ([] if phase == "start" else [("start", "a")])


async def test_cancel_without_a_swap_does_nothing(house: Any) -> None:
    await house.served(make_profile("a"))
    await house.clock.drive(house.supervisor.cancel())
    assert house.state("a") is EngineState.READY


async def test_stop_returns_when_the_engine_is_gone(house: Any) -> None:
    await house.open(make_profile("a"), make_profile("b"))
    holder, _ = await house.granted("a")
    waiting = house.ask("b")
    await house.clock.rest()
    stopping = asyncio.create_task(house.supervisor.stop(None))
    await house.clock.rest()
    assert not stopping.done()
    error = await waiting.refusal()
    assert error.code == "stopped"
    await holder.leave()
    await house.clock.drive(stopping)
    assert house.runtime.here == {}
    assert house.supervisor.engines == {}
    await house.leased("a")


async def test_stop_with_nothing_running_returns_and_of_a_stranger_says_so(house: Any) -> None:
    await house.open(make_profile("a"))
    await house.stopped(None)
    await house.stopped("a")
    with pytest.raises(AdmissionError, match="'x'"):
        await house.supervisor.stop("x")


async def test_unknown_and_impossible_profiles_are_refused_with_what_to_use_instead(house: Any) -> None:
    await house.open(make_profile("good"), make_profile("mtp", cannot_run="no MTP head in this model", nearest="good"))
    unknown, impossible = await asyncio.gather(
        house.ask("goood").granted(), house.ask("mtp").granted(), return_exceptions=True
    )
    assert (unknown.code, unknown.status) == ("model_not_found", 404)
    assert "good" in unknown.hint
    assert (impossible.code, impossible.status) == ("cannot_run", 400)
    assert "no MTP head" in impossible.message
    assert "good" in impossible.hint
    with pytest.raises(AdmissionError, match="no MTP head"):
        await house.supervisor.use("mtp", cause=SwapCause.USER)
    assert house.runtime.calls == []


async def test_a_profile_with_a_secret_in_its_file_is_not_started_unless_its_owner_silenced_the_rule(
    house: Any,
) -> None:
    """400 that names the place and never the value, to requests and to people; with `silence` it starts as any other."""
    env, reason = {"HF_TOKEN": "hf_notarealtokenbutlongenough"}, {"secret-literal": "a box of one's own"}
    await house.open(make_profile("told", env=env), make_profile("silenced", env=env, silence=reason))
    error = await house.ask("told").refusal()
    assert (error.code, error.status, "env.HF_TOKEN" in error.message) == ("secret_in_profile", 400, True)
    assert "hf_not" not in error.text()
    with pytest.raises(AdmissionError, match=r"env\.HF_TOKEN"):
        await house.supervisor.use("told", cause=SwapCause.USER)
    assert house.runtime.calls == []
    assert (await house.leased("silenced")).profile.name == "silenced"


async def test_reading_the_profiles_again_stops_nothing(house: Any) -> None:
    await house.open(make_profile("a"))
    old = (await house.leased("a")).engine.fingerprint
    changed = make_profile("a", args={"max-model-len": 4096})
    house.supervisor.replace_catalog(make_catalog(changed))
    assert (await house.leased("a")).engine.fingerprint == old
    assert house.runtime.calls == [("start", "a")]
    plan = await house.supervisor.plan("a")
    assert (plan.evict, plan.reasons) == (("a",), {"a": "it is started again from its newer file"})
    assert plan.verdict != "It runs already."
    await house.used("a")
    assert house.supervisor.engines["a"].fingerprint == changed.fingerprint
    assert (await house.supervisor.plan("a")).verdict == "It runs already."
    house.supervisor.replace_catalog(make_catalog())
    await house.settled()
    assert house.state("a") is EngineState.READY


async def test_replicas_come_are_renewed_one_after_the_other_and_stop_with_their_profile(house: Any) -> None:
    def written(**facts: Any) -> Catalog:
        return with_replicas(make_catalog(make_profile("a", gib=30, replicas=2, **facts)), (LOCAL, "spark2"))

    def ready(fingerprints: Mapping[str, str]) -> bool:
        states = [house.state(name) for name in fingerprints]
        return {*states} == {EngineState.READY} and fingerprints == {
            name: engine.fingerprint for name, engine in house.supervisor.engines.items()
        }

    def fingerprints(catalog: Catalog) -> dict[str, str]:
        return {name: each.fingerprint for name, each in catalog.profiles.items()}

    first, edited = written(), written(args={"max-model-len": 4096})
    await house.open(*first.profiles.values(), nodes=SecondNode(house))
    await house.supervisor.use("a", cause=SwapCause.USER)
    await house.clock.until(lambda: ready(fingerprints(first)))
    serving: list[int] = []
    house.on_fact = lambda _: serving.append(
        sum(each.state is EngineState.READY for each in house.supervisor.engines.values())
    )
    house.supervisor.replace_catalog(edited)
    await house.supervisor.use("a", cause=SwapCause.USER)
    await house.clock.until(lambda: ready(fingerprints(edited)))
    assert min(serving) == 1
    await house.stopped("a")
    assert house.supervisor.engines == {}


async def test_a_failed_engine_goes_with_its_file(house: Any) -> None:
    house.runtime.zoo["a"] = Behaviour(dies_after_s=2)
    await house.open(make_profile("a"), make_profile("b"))
    await house.clock.drive(asyncio.gather(house.ask("a").granted(), return_exceptions=True))
    house.supervisor.replace_catalog(make_catalog(make_profile("a")))
    await house.clock.drive(house.settled())
    assert house.state("a") is EngineState.FAILED
    house.supervisor.replace_catalog(make_catalog(make_profile("b")))
    await house.clock.drive(house.settled())
    assert "a" not in house.supervisor.engines
    assert house.states("a")[-1] is EngineState.ABSENT


async def test_logs_come_from_the_engine_and_stay_when_it_is_gone(house: Any) -> None:
    await house.open(make_profile("a"))
    assert [line async for line in house.supervisor.logs("a")] == []
    await house.leased("a")
    house.runtime.of("a").say("last words")
    assert [line async for line in house.supervisor.logs("a", tail=1)] == ["last words"]
    await house.stopped("a")
    assert [line async for line in house.supervisor.logs("a", tail=2)][-1] == "last words"
    with pytest.raises(AdmissionError):
        house.supervisor.logs("x")


async def test_pids_are_the_engines_own(house: Any) -> None:
    await house.open(make_profile("a"))
    assert await house.supervisor.pids("a") == set()
    await house.leased("a")
    assert await house.supervisor.pids("a") == {house.runtime.pid_of("a")}


async def test_engines_outlive_the_supervisor_unless_told_otherwise(house: Any) -> None:
    await house.served(make_profile("a"))
    await house.close()
    await house.supervisor.close(stop_engines=False)
    assert house.runtime.running() == ["a"]
    await house.supervisor.close(stop_engines=True)
    assert house.runtime.here == {}


async def test_the_end_refuses_those_who_wait_and_removes_what_was_half_made(house: Any) -> None:
    await house.open(make_profile("a"))
    waiting = await house.loading("a")
    await house.close()
    error = await waiting.refusal()
    assert isinstance(error, DaemonError)
    assert house.runtime.here == {}
    with pytest.raises(DaemonError):
        async with house.supervisor.lease("a", request_id="r", on_wait=lambda _: None):
            pass


async def test_a_cancelled_start_of_what_would_not_stop_leaves_it_registered(house: Any) -> None:
    await house.served(make_profile("a"), make_profile("b"))
    house.runtime.of("a").behaviour.wont_stop = True
    with pytest.raises(HostError):
        await house.stopped("a")
    await house.supervisor.use("a", cause=SwapCause.USER)
    await house.clock.drive(house.supervisor.cancel())
    assert house.state("a") is EngineState.FAILED
    house.runtime.of("a").behaviour.wont_stop = False
    await house.leased("b")
    assert house.runtime.running() == ["b"]


async def test_a_daemon_that_ends_tells_those_who_wait_before_those_who_are_served(house: Any) -> None:
    await house.open(make_profile("a"), make_profile("b"))
    _, lease = await house.granted("a")
    waiting = house.ask("b")
    await house.clock.rest()
    house.supervisor.retire(cut=False)
    for asking in (waiting, house.ask("a")):
        with pytest.raises(DaemonError) as caught:
            await asking.granted()
        assert (caught.value.code, caught.value.status) == ("shutting_down", 503)
    assert not lease.lost.done()
    house.supervisor.retire(cut=True)
    assert lease.lost.result().code == "shutting_down"

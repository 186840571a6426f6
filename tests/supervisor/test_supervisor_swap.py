"""A request names a profile, and the engine comes: the way it should go."""

import asyncio
from typing import Any

import pytest
from surroundings.box import Behaviour
from surroundings.house import make_profile

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import EngineChanged, SwapChanged
from sparkdash.domain.swap import SwapCause, SwapOutcome, SwapPhase, phases_of
from sparkdash.errors import EngineError, UpstreamError


async def test_a_request_brings_its_engine_up_and_gets_a_url_that_answers(house: Any) -> None:
    await house.open(make_profile("a", serves=("small",)))
    asking, lease = await house.granted("small")
    assert "a says" in await house.clock.drive(house.upstream.generate(lease.url, lease.names[0], timeout_s=60))
    assert lease.profile.name == "a"
    assert set(lease.names) >= {"a", "small"}
    assert house.state("a") is EngineState.READY
    assert house.supervisor.engines["a"].version == "0.99"
    assert house.supervisor.engines["a"].in_flight == 1
    await asking.leave()
    await house.settled()
    assert house.supervisor.engines["a"].in_flight == 0


async def test_requests_that_come_and_go_together_are_counted_once(house: Any) -> None:
    await house.served(make_profile("a"))
    await house.settled()
    house.facts.clear()
    many = [house.ask("a") for _ in range(5)]
    for asking in many:
        await house.clock.drive(asking.granted())
    await house.settled()
    await house.leased("a")
    await house.settled()
    for asking in many:
        await asking.leave()
    await house.settled()
    assert [fact.engine.in_flight for fact in house.facts if isinstance(fact, EngineChanged)] == [5, 0]


async def test_a_swap_goes_through_its_phases_in_order_and_times_each(house: Any) -> None:
    await house.served(make_profile("a"), make_profile("b"))
    await house.leased("b")
    await house.settled()
    swap = house.swaps()[-1]
    seen = [f.swap.phase for f in house.facts if isinstance(f, SwapChanged) and f.swap.id == swap.id]
    assert tuple(dict.fromkeys(seen)) == phases_of(swap)
    assert set(swap.stage_s) == set(phases_of(swap)) == set(SwapPhase) - {SwapPhase.COPY}
    assert (swap.target, swap.evict, swap.cause, swap.outcome) == ("b", ("a",), SwapCause.REQUEST, SwapOutcome.DONE)
    assert swap.stage_s[SwapPhase.LOAD] >= 3.0
    assert house.runtime.running() == ["b"]
    s = EngineState
    assert house.states("b") == [s.CREATING, s.LOADING, s.WARMING, s.READY]
    assert house.states("a")[-3:] == [s.DRAINING, s.STOPPING, s.ABSENT]
    assert house.supervisor.engines["b"].load_s >= 3.0


async def test_figures_begin_after_the_warm_up_and_before_the_first_request(house: Any, elsewhere: Any) -> None:
    house.runtime.zoo["a"] = Behaviour(load_s=15)
    far, _ = await elsewhere("far")
    await house.open(make_profile("a"), make_profile("b"), far)
    await house.leased("b")
    await house.leased("far")
    await house.crash_in_load("a")
    await house.served(make_profile("a"), make_profile("b"), far)
    assert house.began == [("b", EngineState.WARMING), ("far", EngineState.LOADING), ("a", EngineState.WARMING)]


@pytest.mark.parametrize(("load_s", "seen_s"), [(0.04, 0.05), (0.3, 0.35), (30.0, 30.25)])
async def test_an_engine_that_is_up_soon_is_not_kept_waiting(house: Any, load_s: float, seen_s: float) -> None:
    """The engine is asked after 0.05, 0.15, 0.35, 0.75 s and so on, and from then on twice a second."""
    house.runtime.zoo["a"] = Behaviour(load_s=load_s)
    await house.served(make_profile("a"), no_progress_s=60)
    took = house.swaps()[-1].stage_s[SwapPhase.LOAD]
    assert load_s <= took <= seen_s + 0.001  # sooner, when time passed while a question was on its way


async def test_an_engine_is_not_stopped_before_its_last_request_has_ended(house: Any) -> None:
    await house.open(make_profile("a"), make_profile("b"))
    long, _ = await house.granted("a")
    other, younger = house.ask("b"), house.ask("a")
    await house.clock.rest()
    assert house.state("a") is EngineState.DRAINING
    assert house.runtime.running() == ["a"]
    assert not younger.has_lease
    await long.leave()
    await house.clock.drive(other.granted())
    assert house.runtime.running() == ["b"]
    await other.leave()
    await house.clock.drive(younger.granted())
    assert [swap.target for swap in house.swaps()] == ["a", "b", "a"]


async def test_a_drain_that_takes_too_long_is_cut_and_the_holder_is_told(house: Any) -> None:
    await house.open(make_profile("a"), make_profile("b"), drain_s=60)
    _, lease = await house.granted("a")
    began = house.clock.time
    await house.leased("b")
    assert house.clock.time - began >= 60
    lost = lease.lost.result()
    assert isinstance(lost, UpstreamError)  # its request may come back
    assert (lost.code, lost.status) == ("cut", 503)
    assert lost.retry_after
    assert "b" in lost.message


async def test_an_engine_that_a_person_stops_while_it_drains_for_another_cuts_its_requests_for_good(house: Any) -> None:
    await house.open(make_profile("a"), make_profile("b"), drain_s=60)
    endless, lease = await house.granted("a")
    other = house.ask("b")
    await house.clock.rest()
    stop = asyncio.create_task(house.supervisor.stop("a"))
    lost = await house.clock.drive(lease.lost)
    assert isinstance(lost, EngineError)
    assert lost.code == "cut"
    await endless.leave()
    await house.clock.drive(other.granted())
    await other.leave()
    await house.clock.drive(stop)


async def test_places_in_the_queue_are_told_as_they_change(house: Any) -> None:
    """1 is next; those of the profile that comes first are in front, whoever leaves moves the rest up."""
    await house.open(make_profile("a"), make_profile("b"))
    seen: list[int] = []
    first, gone, last = house.ask("a"), house.ask("b"), house.ask("b", seen)
    await house.clock.rest()
    assert seen == [3]
    await gone.vanish()
    assert seen == [3, 2]
    await house.clock.drive(first.granted())
    await first.leave()
    await house.clock.drive(last.granted())
    assert seen == [3, 2, 1]


async def test_an_engine_elsewhere_is_probed_and_takes_no_place(house: Any, elsewhere: Any) -> None:
    far, server = await elsewhere("far")
    await house.served(make_profile("a"), far)
    assert (await house.leased("far")).url == far.url
    assert house.state("a") is EngineState.READY
    assert house.runtime.calls == [("start", "a")]
    await server.cleanup()
    await house.passes(20)
    assert house.state("far") is EngineState.FAILED
    assert (await house.clock.drive(house.ask("far").refusal())).code == "engine_unreachable"
    assert house.runtime.running() == ["a"]

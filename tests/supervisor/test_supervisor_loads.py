"""Several loads at the same time: what really happens around a supervisor."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from surroundings.engines import pid_of

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import SwapChanged
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.swap import SwapCause, SwapOutcome, SwapPhase
from sparkdash.host.processes import proc
from sparkdash.store import Store
from sparkdash.units import GIB

FIXED = {"kv-cache-memory-bytes": "1G"}
"""With it vLLM does not size its cache by what is free."""
RECLAIM, LOAD = SwapPhase.RECLAIM, SwapPhase.LOAD


@pytest.fixture
def fixed(make_profile: Any) -> Any:
    def make(name: str, gib: float, **facts: Any) -> Profile:
        made: Profile = make_profile(name, gib=gib, args=FIXED, **facts)
        return made

    return make


async def both_load(house: Any, first: str, second: str) -> None:
    """Let time pass until both are being loaded."""
    await house.loads(first)
    await house.loads(second)
    assert house.state(first) is EngineState.LOADING


async def test_a_short_load_does_not_wait_for_a_long_one(house: Any, fixed: Any, behaviour: Any) -> None:
    """It begins beside it, serves as soon as it is ready, and each swap tells of itself alone."""
    house.runtime.zoo.update(long=behaviour(load_s=15), short=behaviour(load_s=3))
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


async def test_an_engine_that_sizes_itself_by_what_is_free_loads_alone(
    house: Any, make_profile: Any, fixed: Any, behaviour: Any
) -> None:
    """vLLM would take what another takes off its own cache; so neither begins while the other loads."""
    house.runtime.zoo.update(sizes=behaviour(load_s=8), fixed=behaviour(load_s=8))
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


async def test_a_plan_says_whose_load_is_waited_for(house: Any, make_profile: Any, fixed: Any, behaviour: Any) -> None:
    """And nothing of that where the two load at the same time."""
    house.runtime.zoo.update(long=behaviour(load_s=15))
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


async def test_a_load_waits_until_both_peaks_fit_with_a_margin(house: Any, fixed: Any, behaviour: Any) -> None:
    """As it is measured: what the other has not taken yet is kept for it, half as much again where it is only declared."""
    house.runtime.zoo.update(a=behaviour(load_s=10), b=behaviour(load_s=3))
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


async def test_what_was_learned_needs_less_of_a_margin(house: Any, fixed: Any, behaviour: Any) -> None:
    """The same two, once each was measured alone: they load together. Nothing is learned from that."""
    store = Store(lambda _: None)
    house.runtime.zoo.update(a=behaviour(load_s=10), b=behaviour(load_s=3))
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


async def test_one_that_fails_beside_another_takes_nothing_down(house: Any, fixed: Any, behaviour: Any) -> None:
    """Its requests are told; the other goes on; the next load waits until memory is at rest."""
    house.runtime.zoo.update(a=behaviour(load_s=15), b=behaviour(dies_after_s=2))
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
async def test_cancel_and_stop_end_every_load(house: Any, fixed: Any, behaviour: Any, order: str) -> None:
    """Each is answered once all is cleaned away, and who waited is told."""
    house.runtime.zoo.update(a=behaviour(never_ready=True), b=behaviour(never_ready=True))
    await house.open(fixed("a", 30), fixed("b", 10), no_progress_s=600)
    asking = [house.ask("a"), house.ask("b")]
    await both_load(house, "a", "b")
    await house.clock.drive(house.supervisor.cancel() if order == "cancel" else house.supervisor.stop(None))
    assert house.runtime.running() == []
    assert {swap.outcome for swap in house.swaps()} == {SwapOutcome.CANCELLED}
    for each in asking:
        (error,) = await asyncio.gather(each.granted(), return_exceptions=True)
        assert error.code == ("cancelled" if order == "cancel" else "stopped")


async def test_a_stop_of_one_load_leaves_the_other(house: Any, fixed: Any, behaviour: Any) -> None:
    """The stop returns while the other still loads."""
    house.runtime.zoo.update(a=behaviour(load_s=15), b=behaviour(never_ready=True))
    await house.open(fixed("a", 30), fixed("b", 10), no_progress_s=600)
    asking = house.ask("a")
    house.ask("b")
    await both_load(house, "a", "b")
    await house.clock.drive(house.supervisor.stop("b"))
    assert (house.state("a"), house.runtime.running()) == (EngineState.LOADING, ["a"])
    await house.clock.drive(asking.granted())
    await asking.leave()


async def test_a_wish_that_fits_beside_a_load_ends_none(house: Any, fixed: Any, behaviour: Any) -> None:
    """Two profiles that a person wants come up together."""
    house.runtime.zoo.update(a=behaviour(load_s=10))
    await house.open(fixed("a", 30), fixed("b", 10))
    for name in "ab":
        await house.supervisor.use(name, cause=SwapCause.USER)
    await both_load(house, "a", "b")
    await house.settled()
    assert sorted(house.runtime.running()) == ["a", "b"]
    assert {swap.outcome for swap in house.swaps()} == {SwapOutcome.DONE}


async def test_preloads_that_fit_load_together(house: Any, fixed: Any) -> None:
    """A box that comes up is not kept waiting for one after another."""
    await house.open(fixed("a", 30), fixed("b", 10), preload=("a", "b"))
    await both_load(house, "a", "b")
    await house.settled()
    assert [(swap.target, swap.cause) for swap in house.swaps()] == [("a", SwapCause.PRELOAD), ("b", SwapCause.PRELOAD)]


async def test_a_load_that_is_stopped_while_another_weighs_it_ends_nothing_else(
    house: Any, fixed: Any, behaviour: Any
) -> None:
    """The third waits for room beside two; the runtime is slow to tell of the first while the second is stopped."""
    house.runtime.zoo.update(a=behaviour(load_s=60), b=behaviour(never_ready=True))
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
    house: Any, make_profile: Any, serve_engine: Any, unused_tcp_port: int
) -> None:
    """Nothing is awaited or told of the memory of an engine that left for the load."""
    port = unused_tcp_port
    far = make_profile("far", gib=None, engine=EngineKind.OPENAI, image=None, models={}, url=f"http://127.0.0.1:{port}")
    await house.open(make_profile("a"), make_profile("b"), far)
    server = await serve_engine("far", port)
    await house.leased("far")
    await house.leased("a")
    house.reader.leaks["a"] = 40 * GIB
    coming = house.ask("b")
    while "a" not in house.runtime.stopped or house.state("a") is not None:
        house.clock.step()
        await house.clock.rest()
    began = house.clock.time
    await house.clock.drive(house.supervisor.stop("far"))
    assert house.clock.time - began < 1
    assert [notice.code for notice in house.notices() if notice.code == "memory_not_returned"] == []
    await asyncio.gather(house.clock.drive(coming.granted()), return_exceptions=True)
    await server.cleanup()


@pytest.mark.parametrize("readable", [True, False])
async def test_a_load_that_hangs_beside_another_is_noticed_while_that_one_loads(
    house: Any, fixed: Any, behaviour: Any, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    """Memory that the neighbour takes is no sign of life of its own, where its processes can be asked."""
    taken = {pid_of("hung"): GIB, pid_of("busy"): 0}
    asked = dict if readable else lambda _: {}
    monkeypatch.setattr(proc, "taken_in", lambda pids: asked({pid: taken[pid] for pid in pids}))
    house.runtime.zoo.update(hung=behaviour(never_ready=True), busy=behaviour(never_ready=True))
    await house.open(fixed("hung", 30), fixed("busy", 10), no_progress_s=60)
    waiting, other = house.ask("hung"), house.ask("busy")
    await both_load(house, "hung", "busy")
    began = house.clock.time
    while house.state("hung") is EngineState.LOADING and house.clock.time - began < 200:
        taken[pid_of("busy")] += GIB
        house.reader.others += GIB // 64
        house.clock.step()
        await house.clock.rest()
    assert (house.state("hung") is EngineState.FAILED) is readable
    assert house.state("busy") is EngineState.LOADING
    await house.clock.drive(house.supervisor.cancel())
    await asyncio.gather(waiting.granted(), other.granted(), return_exceptions=True)

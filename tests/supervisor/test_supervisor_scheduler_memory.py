"""The decision table where memory decides: engines beside others, loads at the same time, memory that is short."""

from typing import Any

import pytest
from surroundings.box import Behaviour
from surroundings.house import make_profile
from surroundings.rig import ERROR, REQUEST, Rig, arrive, begins, beside, feed, small

from sparkdash.domain.engine import EngineState
from sparkdash.domain.memory import Holder, Holding
from sparkdash.domain.request import Task
from sparkdash.domain.swap import SwapCause, SwapPhase
from sparkdash.errors import AdmissionError
from sparkdash.settings import Policy
from sparkdash.supervisor.decide import moves
from sparkdash.units import GIB


async def test_two_that_fit_run_side_by_side_and_nobody_is_drained(house: Any) -> None:
    await house.open(make_profile("chat", gib=70), make_profile("coder", gib=30))
    await house.granted("chat")
    coming = await house.loading("coder")
    assert house.state("chat") is EngineState.READY
    other = house.ask("chat")
    await house.clock.rest()
    assert other.has_lease
    await house.clock.drive(coming.granted())
    assert sorted(house.runtime.running()) == ["chat", "coder"]
    swap = house.swaps()[-1]
    assert (swap.evict, SwapPhase.DRAIN in swap.stage_s, SwapPhase.STOP in swap.stage_s) == ((), False, False)
    assert EngineState.DRAINING not in house.states("chat")


async def test_auto_is_the_engine_that_is_in_use(house: Any) -> None:
    await house.served(make_profile("chat", gib=30), make_profile("embeds", gib=10, args={"runner": "pooling"}))
    await house.leased("embeds")
    _, lease = await house.granted("auto", task=Task.GENERATE)
    assert lease.profile.name == "chat"
    await house.settled()
    engines = house.supervisor.engines
    assert engines["chat"].asked_at.keys() == {Task.GENERATE}
    assert (engines["chat"].does, engines["embeds"].does) == (None, {Task.EMBED, Task.RERANK})


async def test_the_third_evicts_exactly_the_one_that_was_named(house: Any) -> None:
    await house.served(make_profile("a", gib=40), make_profile("b", gib=40), make_profile("c", gib=40))
    house.clock.time += 300
    await house.leased("b")
    house.clock.time += 300
    plan = await house.supervisor.plan("c")
    assert (plan.evict, plan.beside, plan.fits) == (("a",), ("b",), True)
    assert plan.reasons["a"].startswith("idle for 10m")
    assert "frees 40.0 GiB" in plan.reasons["a"]
    assert plan.verdict == "It fits once a has left, beside b."
    assert (plan.need.total_bytes, plan.now_bytes, plan.reserve_bytes) == (40 * GIB, 40 * GIB, 10 * GIB)
    await house.leased("c")
    assert sorted(house.runtime.running()) == ["b", "c"]
    swap = house.swaps()[-1]
    assert (swap.evict, swap.reasons["a"]) == (plan.evict, plan.reasons["a"])


async def test_what_can_never_fit_is_refused_at_once_with_the_figures(house: Any) -> None:
    await house.served(make_profile("a"), make_profile("whale", gib=125))
    asking = house.ask("whale")
    error = await asking.refusal()
    assert (error.code, error.status) == ("does_not_fit", 503)
    for figure in ("125.0 GiB", "weights", "10.0 GiB", "128.0 GiB"):
        assert figure in error.message
    with pytest.raises(AdmissionError, match=r"128\.0 GiB in all"):
        await house.supervisor.use("whale", cause=SwapCause.USER)
    assert (await house.supervisor.plan("whale")).verdict.startswith("It does not fit, whichever engines leave")
    assert len(house.swaps()) == 1
    assert house.state("a") is EngineState.READY


async def test_a_refusal_names_who_else_holds_memory_where_that_was_looked_at(house: Any) -> None:
    sizes = {"open-webui": 34, "firefox\x1b[2J": 6, "tail": 2}
    held = [Holding(kind=Holder.CONTAINER, name=name, bytes=size * GIB) for name, size in sizes.items()]
    await house.open(make_profile("whale", gib=125), foreign=lambda: tuple(held))
    error = await house.ask("whale").refusal()
    assert error.holders == "Others hold memory: open-webui 34.0 GiB, firefox\\u001b[2J 6.0 GiB."
    assert "open-webui" not in error.text()
    held.clear()
    error = await house.ask("whale").refusal()
    assert error.holders is None


async def test_a_pinned_engine_leaves_only_for_a_person(house: Any) -> None:
    await house.served(make_profile("a"), make_profile("b"), policy={"a": Policy(pinned=True)})
    error = await house.ask("b").refusal()
    assert (error.code, error.status) == ("pinned", 503)
    assert "a is pinned" in error.message
    assert "sparkdash use b" in error.hint
    await house.used("b")
    assert house.runtime.running() == ["b"]


async def test_what_the_owner_edits_holds_from_the_next_decision_on(house: Any) -> None:
    supervisor = await house.served(make_profile("a"), make_profile("b"), policy={"a": Policy(pinned=True)})
    supervisor.replace_settings(supervisor.settings.model_copy(update={"policy": {}, "reserve_gib": 50}))
    await house.settled()
    error = await house.ask("b").refusal()
    assert (error.code, "50.0 GiB" in error.message) == ("does_not_fit", True)
    assert house.state("a") is EngineState.READY
    supervisor.replace_settings(supervisor.settings.model_copy(update={"reserve_gib": 10, "queue_limit": 1}))
    waits = house.ask("b")
    error = await house.ask("b").refusal()
    assert error.code == "queue_full"
    await house.clock.drive(waits.granted())
    assert house.runtime.running() == ["b"]


async def test_an_engine_that_nobody_uses_is_stopped_when_its_time_is_over(house: Any) -> None:
    await house.served(
        make_profile("a", gib=20), make_profile("b", gib=20), idle_ttl_s=600, policy={"b": Policy(pinned=True)}
    )
    await house.leased("b")
    holder, _ = await house.granted("a")
    house.clock.time += 700
    await holder.leave()
    left = house.clock.time
    await house.clock.until(lambda: not house.state("a"))
    assert 600 <= house.clock.time - left < 610
    swap = house.swaps()[-1]
    assert (swap.target, swap.evict, swap.cause) == (None, ("a",), SwapCause.IDLE)
    assert "idle_ttl_s" in swap.reasons["a"]
    assert house.runtime.running() == ["b"]


async def test_preloads_come_up_in_their_order_as_far_as_they_fit(house: Any) -> None:
    profiles = [make_profile("a", gib=60), make_profile("b", gib=70), make_profile("c", gib=40, serves=("small",))]
    await house.open(*profiles, preload=("a", "b", "small", "nobody"))
    await house.settled()
    assert [(swap.target, swap.cause) for swap in house.swaps()] == [("a", SwapCause.PRELOAD), ("c", SwapCause.PRELOAD)]
    codes = {notice.code: notice.text for notice in house.notices()}
    assert codes.keys() == {"not_preloaded", "model_not_found"}
    assert "b was not preloaded: it needs 70.0 GiB" in codes["not_preloaded"]
    assert "nobody" in codes["model_not_found"]


async def test_too_many_at_once_are_told_to_come_back(house: Any) -> None:
    await house.open(make_profile("a"), policy={"a": Policy(max_concurrency=2)})
    first, second = house.ask("a"), house.ask("a")
    await house.clock.drive(first.granted())
    await house.clock.drive(second.granted())
    error = await house.ask("a").refusal()
    assert (error.code, error.status, error.retry_after) == ("too_many_requests", 429, 10.0)
    await first.leave()
    await house.leased("a")


async def test_an_engine_that_failed_is_nobody_to_run_beside(house: Any) -> None:
    house.runtime.zoo["dies"] = Behaviour(dies_after_s=2)
    most = make_profile("most", gib=None, engine_version="0.19", args={"gpu-memory-utilization": 0.9})
    await house.open(make_profile("dies", gib=20), most)
    await house.used("dies")
    assert house.state("dies") is EngineState.FAILED
    plan = await house.supervisor.plan("most")
    assert (plan.need.basis, plan.fits) == ("estimated", None)
    assert plan.need.total_bytes > 110 * GIB
    assert (await house.leased("most")).profile.name == "most"


def test_a_miss_that_waits_behind_a_load_keeps_nobody_from_the_engine_that_it_will_evict() -> None:
    rig = beside("a")
    feed(rig, arrive("1", "b"), arrive("2", "c"))
    assert feed(rig, arrive("3", "a"), arrive("4", None)) == [moves.Grant("3", "a"), moves.Grant("4", "a")]
    assert feed(rig, moves.Leave("4"), moves.SwapDone("b")) == [moves.Grant("1", "b")]
    rig.now = 60
    assert feed(rig, moves.Leave("1"), moves.Tick()) == [moves.BeginSwap("c", ("a", "b"), REQUEST)]
    assert feed(rig, arrive("5", "a")) == []
    assert feed(rig, moves.Leave("3")) == [moves.Evict("c", ("a", "b"))]


def test_what_takes_no_memory_begins_while_another_loads_and_while_it_is_cancelled(rig: Rig) -> None:
    feed(rig, arrive("1", "b"), arrive("2", "c"), moves.Evicted("a"))
    assert feed(rig, arrive("3", "far")) == begins("far")
    assert feed(rig, moves.SwapDone("far")) == [moves.Grant("3", "far")]
    assert feed(rig, moves.EngineDied("far", ERROR), moves.Leave("3"), moves.Cancel())[1:2] == [moves.CancelSwap("b")]
    assert feed(rig, arrive("4", "far")) == begins("far")
    assert feed(rig, moves.SwapCancelled("b")) == begins("c")
    assert feed(rig, moves.SwapDone("far"), moves.SwapDone("c")) == [moves.Grant("4", "far"), moves.Grant("2", "c")]


def test_the_end_of_one_swap_says_nothing_of_another(rig: Rig) -> None:
    feed(rig, arrive("1", "a"), arrive("2", "b"), arrive("3", "far"))
    assert feed(rig, moves.DrainOver("far"), moves.SwapDone("far")) == [moves.Grant("3", "far")]
    assert feed(rig, moves.Leave("1")) == [moves.Evict("b", ("a",))]
    feed(rig, moves.Evicted("a"), moves.EngineDied("far", ERROR), arrive("4", "far"), moves.SwapFailed("far", ERROR))
    assert feed(rig, moves.SwapFailed("b", ERROR))[1:] == begins("a", cause=SwapCause.FALLBACK)


def test_one_that_fits_beside_the_others_comes_although_an_older_one_is_held_back() -> None:
    rig = beside("a")
    assert feed(rig, arrive("1", "a"), arrive("2", "c"), arrive("3", "b"))[1:] == begins("b")
    assert feed(rig, moves.SwapDone("b")) == [moves.Grant("3", "b")]


def test_a_load_begins_beside_another_once_that_has_its_room() -> None:
    rig = small("a")
    assert feed(rig, arrive("1", "big")) == begins("big", "a")
    assert feed(rig, arrive("2", "b"), moves.Evicted("a"), moves.Cancel())[0] == moves.CancelSwap("big")
    assert feed(rig, moves.SwapCancelled("big")) == begins("b")
    assert feed(rig, arrive("3", "c")) == []
    assert feed(rig, moves.Admitted("b")) == begins("c")
    assert feed(rig, moves.SwapDone("c"), moves.SwapDone("b")) == [moves.Grant("3", "c"), moves.Grant("2", "b")]


def test_nobody_behind_one_who_waits_for_memory_takes_any_before_it() -> None:
    rig = small()
    feed(rig, arrive("1", "a"), moves.Admitted("a"), arrive("2", "big"))
    assert feed(rig, arrive("3", "b")) == []
    assert feed(rig, moves.SwapDone("a")) == [moves.Grant("1", "a"), moves.BeginSwap("big", ("a",), REQUEST)]
    assert feed(rig, arrive("4", "a"), moves.Leave("1")) == [moves.Evict("big", ("a",))]


def test_no_load_begins_beside_another_while_a_stop_waits_for_its_end() -> None:
    rig = small("a")
    feed(rig, arrive("1", "b"), moves.Admitted("b"), moves.Stop("a"))
    assert feed(rig, arrive("2", "c")) == []
    assert feed(rig, moves.SwapDone("b")) == [moves.Grant("1", "b"), *begins(None, "a", cause=SwapCause.USER)]
    assert feed(rig, moves.Evicted("a"), moves.SwapDone(None)) == begins("c")


def test_a_wish_ends_a_load_that_nobody_waits_for_only_where_it_stands_in_its_way() -> None:
    rig = small()
    feed(rig, moves.Use("a", SwapCause.USER), moves.Admitted("a"))
    assert feed(rig, moves.Use("b", SwapCause.USER)) == begins("b", cause=SwapCause.USER)
    assert feed(rig, moves.Use("big", SwapCause.USER)) == [moves.CancelSwap("a"), moves.CancelSwap("b")]


def test_a_wish_that_waits_to_load_beside_others_is_not_lost_to_a_newer_one() -> None:
    """Six `sparkdash use` at once brought five engines: one waited until the one before it had taken its memory."""
    rig = small()
    feed(rig, moves.Use("a", SwapCause.USER))
    assert feed(rig, moves.Use("b", SwapCause.USER), moves.Use("c", SwapCause.USER)) == []
    assert feed(rig, moves.Admitted("a")) == [moves.BeginSwap("c", (), SwapCause.USER), moves.Evict("c", ())]
    assert feed(rig, moves.Admitted("c")) == [moves.BeginSwap("b", (), SwapCause.PRELOAD), moves.Evict("b", ())]


def test_what_is_forecast_behind_several_loads_counts_each_once() -> None:
    rig = small()
    feed(rig, arrive("1", "a"), moves.Admitted("a"), arrive("2", "b"), moves.Admitted("b"))
    assert rig.scheduler.choice("c", 0.0).available == (120 - 20 - 20 - 10) * GIB
    feed(rig, moves.SwapFailed("a", ERROR))
    assert rig.scheduler.choice("c", 0.0).available == (120 - 20 - 10) * GIB
    feed(rig, moves.SwapDone("b"))
    assert rig.scheduler.choice("c", 0.0).available == (120 - 20 - 10) * GIB


def test_a_preload_waits_for_its_turn_behind_those_who_ask() -> None:
    rig = small()
    feed(rig, arrive("1", "a"), moves.Admitted("a"), arrive("2", "big"))
    assert feed(rig, moves.Preload(("b",))) == []
    assert feed(rig, moves.Leave("2")) == begins("b", cause=SwapCause.PRELOAD)


def test_a_fall_back_comes_only_where_it_fits_beside_what_runs() -> None:
    rig = beside("a", "b")
    feed(rig, arrive("1", "c"), moves.Evicted("a"), moves.Evicted("b"))
    effects = feed(rig, moves.SwapFailed("c", ERROR))
    assert effects[1:] == begins("a", cause=SwapCause.FALLBACK)
    assert feed(rig, moves.SwapDone("a")) == begins("b", cause=SwapCause.FALLBACK)
    assert feed(rig, moves.SwapDone("b")) == []

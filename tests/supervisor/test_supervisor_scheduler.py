"""The decision table, row by row: moves in, effects out; no loop, no clock."""

import asyncio
from typing import Any

import pytest
from surroundings.house import make_profile
from surroundings.rig import ERROR, REQUEST, Rig, arrive, begins, beside, feed, refusal, small, with_a

from sparkdash.domain.event import DefaultChanged, SwapChanged
from sparkdash.domain.request import Task
from sparkdash.domain.swap import DefaultProfile, SwapCause, SwapPhase
from sparkdash.settings import Policy
from sparkdash.supervisor.decide import moves
from sparkdash.supervisor.decide.breaker import REST_S
from sparkdash.supervisor.decide.decisions import UNWANTED_S
from sparkdash.supervisor.decide.queue import SETTLE_S
from sparkdash.supervisor.decide.records import CLIENTS


def test_an_engine_in_use_is_not_interrupted_before_its_dwell_is_over() -> None:
    rig = beside("a")
    feed(rig, arrive("1", "a"), arrive("2", "c"))
    assert rig.scheduler.due == 30
    rig.now = 10
    assert feed(rig, moves.Leave("1"), arrive("3", "a"), moves.Leave("3")) == [moves.Grant("3", "a")]
    assert rig.scheduler.due == 15
    rig.now = 15
    assert feed(rig, moves.Tick()) == begins("c", "a")


def test_a_person_and_whoever_has_waited_longest_interrupt_at_once() -> None:
    rig = beside("a")
    feed(rig, arrive("1", "a"))
    assert feed(rig, moves.Use("c", SwapCause.USER)) == [moves.BeginSwap("c", ("a",), SwapCause.USER)]


def test_batch_waits_for_those_who_talk_and_not_for_ever() -> None:
    rig = beside("a")
    rig.now = 100  # the dwell is over
    feed(rig, arrive("1", "a"))
    assert feed(rig, moves.Arrive("2", "c", batch=True)) == []
    assert rig.scheduler.due == 1000
    rig.now = 990
    assert feed(rig, moves.Leave("1"), arrive("3", "a")) == [moves.Grant("3", "a")]
    rig.now = 1000
    assert feed(rig, moves.Tick(), arrive("4", "a")) == [moves.BeginSwap("c", ("a",), REQUEST)]
    assert feed(rig, moves.Leave("3")) == [moves.Evict("c", ("a",))]


def test_batch_does_not_wait_for_batch() -> None:
    rig = beside("a")
    rig.now = 100
    feed(rig, moves.Arrive("1", "a", batch=True), moves.Arrive("2", "c", batch=True))
    rig.now = 100 + SETTLE_S
    assert feed(rig, moves.Tick()) == [moves.BeginSwap("c", ("a",), REQUEST)]


def test_interactive_requests_are_before_batch_in_the_line() -> None:
    rig = beside()
    feed(rig, arrive("1", "a"), moves.Arrive("2", "c", batch=True), arrive("3", "b"))
    effects = rig.handle(moves.SwapDone("a"))
    assert [e for e in effects if isinstance(e, moves.BeginSwap)] == [moves.BeginSwap("b", (), REQUEST)]


def waited(house: Any, phase: SwapPhase) -> list[str]:
    swaps = [fact.swap for fact in house.facts if isinstance(fact, SwapChanged)]
    return list(dict.fromkeys(swap.waits_for for swap in swaps if swap.phase is phase and swap.waits_for))


def until(house: Any, phase: SwapPhase) -> float:
    swaps = [fact.swap for fact in house.facts if isinstance(fact, SwapChanged)]
    return next(swap.until for swap in swaps if swap.phase is phase and swap.until is not None)


async def test_a_drain_tells_which_requests_it_waits_for_and_when_they_are_cut(house: Any) -> None:
    await house.open(make_profile("a"), drain_s=60)
    first, second = house.ask("a"), house.ask("a")
    await house.clock.drive(asyncio.gather(first.granted(), second.granted()))
    stop = asyncio.create_task(house.supervisor.stop("a"))
    await house.clock.rest()
    begun = house.clock.now()
    await first.leave()
    await second.leave()
    await house.clock.drive(stop)
    assert waited(house, SwapPhase.DRAIN) == ["2 requests of a", "1 request of a"]
    assert until(house, SwapPhase.DRAIN) == begun + 60


async def test_a_stop_tells_whom_it_waits_for_and_when_that_one_is_killed(house: Any) -> None:
    await house.open(make_profile("a"), make_profile("b", gib=20), make_profile("c", gib=20), stop_grace_s=30)
    for name in ("b", "c"):
        await house.leased(name)
    begun = house.clock.now()
    await house.stopped(None)
    assert waited(house, SwapPhase.STOP)[0] == "b and c to end"
    assert until(house, SwapPhase.STOP) == begun + 30
    assert {(swap.waits_for, swap.until) for swap in house.swaps()} == {(None, None)}, "they are over"


DEFAULT = SwapCause.DEFAULT


def returning(rig: Rig, profile: str = "b") -> Rig:
    """The same with a default, to which the box returns after 100 s."""
    feed(rig, moves.PolicyRead(moves.Patience(), 100, DefaultProfile(profile=profile, after_s=100)))
    return rig


@pytest.fixture
def back(rig: Rig) -> Rig:
    """`a` runs, and the box returns to `b` once nobody has used it for 100 s."""
    return returning(rig)


def at(rig: Rig, now: float) -> list[Any]:
    rig.now = now
    return feed(rig, moves.Tick())


BACK = begins("b", "a", cause=DEFAULT)


@pytest.mark.parametrize(
    ("running", "then"),
    [((), begins("b", cause=DEFAULT)), (("b",), []), (("a", "b"), [])],
    ids=["on an empty box", "where it runs", "beside another"],
)
def test_a_default_comes_unless_it_runs(running: tuple[str, ...], then: list[moves.Effect]) -> None:
    rig = returning(small(*running))
    assert at(rig, 100) == then


def test_it_comes_in_the_place_of_one_that_nobody_uses(back: Rig) -> None:
    assert back.scheduler.due == 100
    assert at(back, 99) == []
    assert at(back, 100) == BACK


def test_every_use_begins_the_time_anew(back: Rig) -> None:
    back.now = 60
    feed(back, arrive("1", "a"))
    assert at(back, 150) == []
    assert back.scheduler.due == 250
    back.now = 200
    feed(back, moves.Leave("1"))
    assert at(back, 299) == []
    assert at(back, 300) == BACK


def test_what_a_person_stopped_stays_stopped_until_something_is_loaded(back: Rig) -> None:
    feed(back, moves.Stop(None), moves.Evicted("a"), moves.SwapDone(None))
    assert at(back, 10_000) == []
    feed(back, moves.Use("c", SwapCause.USER), moves.SwapDone("c"))
    assert at(back, 10_099) == []
    assert at(back, 10_100) == begins("b", "c", cause=DEFAULT)


def defaults(house: Any) -> list[DefaultProfile | None]:
    return [fact.default for fact in house.facts if isinstance(fact, DefaultChanged)]


async def test_a_daemon_returns_to_its_default_and_tells_of_it(house: Any) -> None:
    await house.open(
        make_profile("big", gib=90, serves=("usual",)),
        make_profile("small", gib=60),
        default="usual",
        default_after_s=300,
    )
    assert defaults(house)[-1] == DefaultProfile(profile="big", after_s=300)
    await house.leased("small")
    await house.clock.until(lambda: house.runtime.running() == ["big"])
    await house.settled()
    swap = house.swaps()[-1]
    assert (swap.target, swap.evict, swap.cause) == ("big", ("small",), DEFAULT)


async def test_a_default_that_is_no_profile_is_told(house: Any) -> None:
    await house.open(make_profile("a", gib=20), default="nobody", policy={"a": Policy(pinned=True)})
    await house.settled()
    assert defaults(house) == [None]
    assert any("`default` in config.toml" in notice.text for notice in house.notices())


def test_those_who_wait_when_a_swap_is_done_go_together_and_then_the_oldest_miss_has_its_turn(rig: Rig) -> None:
    feed(rig, arrive("1", "b"), arrive("2", "a"), arrive("3", "b"), moves.Evicted("a"))
    done = feed(rig, moves.SwapDone("b"))
    assert done == [moves.Grant("1", "b"), moves.Grant("3", "b"), moves.BeginSwap("a", ("b",), REQUEST)]
    assert feed(rig, arrive("4", "b"), moves.Leave("1")) == []
    assert feed(rig, moves.Leave("3")) == [moves.Evict("a", ("b",))]


def test_no_swap_for_nobody(rig: Rig) -> None:
    feed(rig, arrive("1", "a"), arrive("2", "b"), arrive("3", "a"))
    assert feed(rig, moves.Leave("2")) == [moves.CancelSwap("b")]
    assert feed(rig, moves.SwapCancelled("b")) == [moves.Grant("3", "a")]


def test_a_failed_swap_refuses_all_of_its_target_and_falls_back_once(rig: Rig) -> None:
    feed(rig, arrive("1", "b"), arrive("2", "b"), moves.Evicted("a"))
    effects = feed(rig, moves.SwapFailed("b", ERROR))
    assert effects[:2] == [moves.Refuse("1", ERROR), moves.Refuse("2", ERROR)]
    assert effects[2:] == begins("a", cause=SwapCause.FALLBACK)
    assert feed(rig, moves.SwapFailed("a", ERROR)) == []


def test_no_fall_back_when_nothing_was_evicted(rig: Rig) -> None:
    feed(rig, arrive("1", "b"))
    assert feed(rig, moves.SwapFailed("b", ERROR)) == [moves.Refuse("1", ERROR)]
    assert feed(rig, arrive("2", "a")) == [moves.Grant("2", "a")]


def test_who_waits_for_a_third_profile_goes_before_the_fall_back(rig: Rig) -> None:
    feed(rig, arrive("1", "b"), arrive("2", "c"), moves.Evicted("a"))
    assert feed(rig, moves.SwapFailed("b", ERROR))[1:] == begins("c")
    assert feed(rig, moves.SwapFailed("c", ERROR))[1:] == begins("a", cause=SwapCause.FALLBACK)


def test_no_fall_back_to_a_profile_that_went_away(rig: Rig) -> None:
    feed(rig, arrive("1", "b"), arrive("2", "c"), moves.Evicted("a"), moves.SwapFailed("b", ERROR), moves.Cancel())
    feed(rig, moves.CatalogRead({name: moves.ProfileFacts(f"f-{name}") for name in "bc"}))
    assert feed(rig, moves.SwapCancelled("c")) == []
    assert not rig.records.swaps


@pytest.mark.parametrize(("release", "now"), [
    (moves.Use("b", SwapCause.USER), 1.0), (moves.Release("b"), 1.0),
    (moves.CatalogRead({"b": moves.ProfileFacts("f-b")}), 1.0), (moves.Leave("x"), REST_S),
])  # fmt: skip
def test_a_failure_is_remembered_until_a_person_a_repair_a_catalog_or_its_rest(
    empty: Rig, release: moves.Move, now: float
) -> None:
    feed(empty, arrive("1", "b"), moves.SwapFailed("b", ERROR))
    empty.now = 20.0
    error = refusal(feed(empty, arrive("2", "b")))
    assert (error.code, error.retry_after) == ("engine_crash", None)
    empty.now = now
    feed(empty, release, arrive("3", "b"))
    assert empty.records.swaps
    assert "3" in empty.records.queue


def test_a_newer_wish_replaces_an_older_one(rig: Rig) -> None:
    feed(rig, arrive("1", "a"), moves.Use("b", SwapCause.USER))
    assert feed(rig, moves.Use("c", SwapCause.USER)) == [moves.CancelSwap("b")]
    assert feed(rig, moves.SwapCancelled("b")) == [moves.BeginSwap("c", ("a",), SwapCause.USER)]


def test_a_wish_does_not_end_a_load_that_a_request_waits_for(empty: Rig) -> None:
    feed(empty, arrive("1", "b"))
    assert feed(empty, moves.Use("c", SwapCause.USER)) == []
    assert feed(empty, moves.SwapDone("b")) == [moves.Grant("1", "b"), moves.BeginSwap("c", ("b",), SwapCause.USER)]


def test_an_engine_that_was_not_edited_or_that_a_person_stops_meanwhile_does_not_come_back() -> None:
    scheduler = with_a()
    feed(scheduler, moves.EngineHeld("a", ERROR), moves.Use("a", SwapCause.USER), moves.Evicted("a"))
    assert feed(scheduler, moves.SwapFailed("a", ERROR)) == []
    scheduler = with_a()
    feed(
        scheduler,
        moves.CatalogRead({"a": moves.ProfileFacts("newer")}),
        moves.Use("a", SwapCause.USER),
        moves.Evicted("a"),
        moves.Stop("a"),
    )
    assert feed(scheduler, moves.SwapFailed("a", ERROR)) == []


def test_auto_never_swaps(empty: Rig) -> None:
    assert refusal(feed(empty, arrive("1", None))).code == "no_engine"
    feed(empty, arrive("2", "a"))
    assert feed(empty, arrive("3", None)) == []
    assert feed(empty, moves.SwapDone("a")) == [moves.Grant("2", "a"), moves.Grant("3", "a")]
    feed(empty, arrive("4", "far"), moves.SwapDone("far"))
    assert feed(empty, arrive("5", None)) == [moves.Grant("5", "far")]


def ask(id_: str, profile: str | None, task: Task = Task.GENERATE, client: str = "agent") -> moves.Arrive:
    return moves.Arrive(id_, profile, False, task, client)


def test_auto_is_the_engine_that_was_last_used_for_the_task() -> None:
    rig = small("a", "b", "c")
    rig.now = 1
    feed(rig, ask("1", "a"), moves.Leave("1"))
    rig.now = 2
    feed(rig, ask("2", "c", Task.EMBED), moves.Leave("2"))
    assert feed(rig, ask("3", None)) == [moves.Grant("3", "a")]
    assert feed(rig, ask("4", None, Task.EMBED)) == [moves.Grant("4", "c")]
    rig.now = 3
    feed(rig, ask("5", "b", client="other"))
    assert feed(rig, ask("6", None), ask("7", None, client="third")) == [moves.Grant("6", "a"), moves.Grant("7", "b")]
    feed(rig, moves.EngineDied("a", ERROR))
    assert feed(rig, ask("8", None)) == [moves.Grant("8", "b")], "its own is gone"


def test_auto_is_no_engine_that_cannot_do_what_is_asked() -> None:
    rig = small("a")
    rig.able = {"a": frozenset({Task.EMBED}), "b": frozenset({Task.GENERATE})}
    error = refusal(feed(rig, ask("1", None)))
    assert (error.code, "can generate" in error.message) == ("no_engine", True)
    feed(rig, ask("2", "b"))
    assert feed(rig, ask("3", None)) == []
    assert feed(rig, moves.SwapDone("b")) == [moves.Grant("2", "b"), moves.Grant("3", "b")]
    assert feed(rig, ask("4", None, Task.EMBED)) == [moves.Grant("4", "a")]


def test_only_so_many_clients_are_remembered() -> None:
    rig = small("a")
    for number in range(CLIENTS + 5):
        feed(rig, ask(str(number), "a", client=f"client {number}"), moves.Leave(str(number)))
    assert len(rig.records.clients) == CLIENTS
    assert next(iter(rig.records.clients)) == ("client 5", Task.GENERATE)


def test_auto_takes_what_runs_when_its_target_failed(rig: Rig) -> None:
    feed(rig, arrive("1", "b"), arrive("2", None), moves.Evicted("a"))
    assert feed(rig, moves.SwapFailed("b", ERROR))[0] == moves.Refuse("1", ERROR)
    assert feed(rig, moves.SwapDone("a")) == [moves.Grant("2", "a")]


def test_a_died_engine_takes_its_leases_with_it(rig: Rig) -> None:
    feed(rig, arrive("1", "a"), arrive("2", "b"))
    assert feed(rig, moves.EngineDied("a", ERROR)) == [moves.Cut(("1",), ERROR), moves.Evict("b", ("a",))]


def test_a_full_queue_refuses_misses_and_not_hits() -> None:
    scheduler = with_a(limit=1)
    feed(scheduler, arrive("1", "far"))
    assert refusal(feed(scheduler, arrive("2", "b"))).code == "queue_full"
    assert feed(scheduler, arrive("3", "a")) == [moves.Grant("3", "a")]


def test_leaving_twice_or_as_a_stranger_is_nothing(rig: Rig) -> None:
    assert feed(rig, arrive("1", "a"), moves.Leave("1"), moves.Leave("1"), moves.Leave("x")) == [moves.Grant("1", "a")]


def test_a_stop_that_comes_as_the_load_succeeds_stops_what_came_up(empty: Rig) -> None:
    feed(empty, moves.Use("b", SwapCause.USER), moves.Stop("b"))
    assert feed(empty, moves.SwapDone("b")) == begins(None, "b", cause=SwapCause.USER)
    assert empty.stopping
    feed(empty, moves.Evicted("b"), moves.SwapDone(None))
    assert not empty.stopping
    assert empty.records.residents == {}


def test_an_engine_of_ours_that_leaves_for_a_server_that_is_not_ours_gives_memory_back(rig: Rig) -> None:
    rig.handle(moves.CatalogRead({"a": moves.ProfileFacts("f-new", managed=False), "b": moves.ProfileFacts("f-b")}))
    assert feed(rig, moves.Use("a", SwapCause.USER)) == begins("a", "a", cause=SwapCause.USER)
    assert feed(rig, arrive("1", "b"), moves.Evicted("a")) == []
    assert feed(rig, moves.SwapDone("a"))[0] == moves.BeginSwap("b", (), REQUEST)


def test_who_waits_for_an_engine_in_use_is_told_whose_it_is_and_until_when() -> None:
    rig = beside("a")
    rig.handle(arrive("1", "a"))
    assert rig.handle(arrive("2", "c")) == [moves.Wait("2", 1, moves.Hold(("a",), 30))]
    assert rig.scheduler.hold("c", 0.0) == moves.Hold(("a",), 30)
    rig.now = 30
    assert rig.handle(moves.Tick()) == [moves.BeginSwap("c", ("a",), REQUEST), moves.Wait("2", 1)]


def test_what_is_typed_and_given_up_evicts_nobody() -> None:
    rig = beside("a")
    rig.now = 100
    feed(rig, arrive("1", "a"), moves.Leave("1"))
    rig.now = 200
    assert feed(rig, arrive("2", "c")) == []
    assert rig.scheduler.due == 200 + SETTLE_S
    assert feed(rig, moves.Leave("2")) == []
    assert rig.scheduler.due is None


def test_a_load_that_nobody_waits_for_ends_when_somebody_else_waits(rig: Rig) -> None:
    feed(rig, arrive("1", "b"), moves.Evicted("a"), moves.Leave("1"))
    assert feed(rig, arrive("2", "c")) == []
    assert rig.scheduler.due == UNWANTED_S
    rig.now = UNWANTED_S
    assert feed(rig, moves.Tick()) == [moves.CancelSwap("b")]
    assert feed(rig, moves.SwapCancelled("b")) == begins("c")


def test_a_load_that_nobody_waits_for_ends_when_it_interrupted_somebody_who_gets_the_engine_back(rig: Rig) -> None:
    feed(rig, arrive("1", "a"), moves.Leave("1"), arrive("2", "b"), moves.Evicted("a"), moves.Leave("2"))
    rig.now = UNWANTED_S
    assert feed(rig, moves.Tick()) == [moves.CancelSwap("b")]
    assert feed(rig, moves.SwapCancelled("b")) == begins("a", cause=SwapCause.FALLBACK)


def test_a_load_goes_on_for_a_client_that_tries_again(rig: Rig) -> None:
    feed(rig, arrive("1", "a"), moves.Leave("1"), arrive("2", "b"), moves.Evicted("a"), moves.Leave("2"))
    rig.now = UNWANTED_S - 1
    feed(rig, arrive("3", "b"))
    rig.now = 2 * UNWANTED_S
    assert feed(rig, moves.Tick(), moves.SwapDone("b")) == [moves.Grant("3", "b")]


def test_a_load_that_took_an_unused_engines_place_goes_on_without_anybody(rig: Rig) -> None:
    feed(rig, arrive("1", "b"), moves.Evicted("a"), moves.Leave("1"))
    rig.now = 60
    assert feed(rig, moves.Tick(), moves.SwapDone("b")) == []
    assert "b" in rig.records.residents


def complete(id_: str, profile: str | None) -> moves.Arrive:
    return moves.Arrive(id_, profile, autocomplete=True)


def refused_with(effects: list[moves.Effect]) -> list[tuple[int, str]]:
    return [(effect.error.status, effect.error.code) for effect in effects if isinstance(effect, moves.Refuse)]


def test_autocomplete_gets_what_runs_and_otherwise_an_answer_at_once(rig: Rig) -> None:
    assert feed(rig, complete("1", "a"), complete("2", None)) == [moves.Grant("1", "a"), moves.Grant("2", "a")]
    effects = feed(rig, complete("3", "b"))
    assert refused_with(effects) == [(503, "autocomplete_not_ready")]
    assert len(effects) == 1, "nobody leaves for it"
    feed(rig, arrive("4", "b"))
    assert refused_with(feed(rig, complete("5", "a"))) == [(503, "autocomplete_not_ready")], "a leaves"


def test_autocomplete_brings_its_engine_where_that_fits_beside_what_runs() -> None:
    rig = small("a")
    effects = feed(rig, complete("1", "b"))
    assert refused_with(effects) == [(503, "autocomplete_not_ready")]
    assert effects[1:] == begins("b", cause=SwapCause.PRELOAD)
    assert refused_with(feed(rig, complete("2", "b"))) == [(503, "autocomplete_not_ready")], "it loads"
    assert feed(rig, moves.SwapDone("b"), complete("3", "b")) == [moves.Grant("3", "b")]


def test_each_request_for_a_profile_of_that_class_is_autocomplete() -> None:
    rig = small("a", big={"autocomplete": True})
    assert refused_with(feed(rig, arrive("1", "big"))) == [(503, "autocomplete_not_ready")]
    assert feed(rig, moves.Use("big", SwapCause.USER))[0] == moves.BeginSwap("big", ("a",), SwapCause.USER)


def test_requests_that_wait_for_one_engine_have_the_box_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 of them had it read 200 times on every move, which left the loop no time to answer anybody."""
    rig, looks = beside("a"), []
    feed(rig, arrive("1", "a"), *(arrive(f"c{n}", "c") for n in range(40)))
    box = rig.box()
    monkeypatch.setattr(rig, "box", lambda: looks.append(1) or box)
    feed(rig, arrive("2", "a"))
    assert 0 < len(looks) < 10

"""Engines that are stuck: who waits for them, who goes elsewhere, and what comes in their place. Moves in, effects out."""

from __future__ import annotations

from typing import Any

import pytest
from surroundings.rig import ERROR, REQUEST, Rig, arrive, feed, new, with_a

from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError, EngineError
from sparkdash.supervisor.decide.breaker import MOST_STUCK, STUCK_WITHIN_S, WITHIN_S
from sparkdash.supervisor.decide.fit import REPAIRED
from sparkdash.supervisor.decide.moves import (
    STUCK,
    Adopted,
    BeginSwap,
    Cancel,
    CancelSwap,
    Cut,
    Decline,
    DrainOver,
    Effect,
    EngineDied,
    EngineHeld,
    EngineRecovered,
    Evict,
    Evicted,
    Grant,
    Leave,
    Move,
    Refuse,
    Stop,
    SwapDone,
    SwapFailed,
    Tick,
    Use,
)
from sparkdash.supervisor.decide.queue import PAUSE_S

FROZEN = EngineError("a is stuck: its answers stand still.", code=STUCK)
REPAIR_BEGINS = [BeginSwap("a", (), SwapCause.REPAIR), Evict("a", ())]


def with_a_stuck(**rest: Any) -> Rig:
    """`a` runs, served one request, and is stuck."""
    scheduler = with_a(**rest)
    feed(scheduler, arrive("held", "a"), EngineHeld("a", FROZEN))
    return scheduler


def repaired(scheduler: Rig, now: float) -> list[Effect]:
    """The engine is stuck at this time, was ended, and comes up again if anything brings it up."""
    scheduler.now = now
    effects = feed(scheduler, EngineHeld("a", FROZEN), EngineDied("a", FROZEN))
    if any(isinstance(effect, BeginSwap) for effect in effects):
        feed(scheduler, SwapDone("a"))
    return effects


def test_requests_on_an_engine_that_is_stuck_are_cut_with_the_reason() -> None:
    scheduler = with_a()
    effects = feed(scheduler, arrive("1", "a"), arrive("2", "a"), EngineHeld("a", FROZEN))
    assert effects[-1] == Cut(("1", "2"), FROZEN)
    assert not scheduler.records.leases


@pytest.mark.parametrize("move", [EngineHeld("a", FROZEN), EngineDied("a", FROZEN)])
def test_requests_on_an_engine_that_a_person_stops_are_cut_for_good(move: Move) -> None:
    """Those who came back would start again what was to be gone."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "a"), Stop("a"))
    (cut,) = (effect for effect in feed(scheduler, move) if isinstance(effect, Cut))
    assert (cut.ids, cut.error.code) == (("1",), "cut")
    assert FROZEN.message in cut.error.message


def test_requests_wait_for_an_engine_that_is_stuck_and_begin_no_swap() -> None:
    scheduler = with_a_stuck()
    assert feed(scheduler, arrive("1", "a"), Tick()) == []
    assert scheduler.scheduler.grant_at_once(arrive("2", "a"), 0.0) is None
    assert list(scheduler.records.queue) == ["1"]


def test_requests_that_a_swap_cut_find_room_in_a_queue_that_is_full() -> None:
    scheduler = with_a(limit=1)
    feed(scheduler, arrive("held", "a"), arrive("next", "b"))
    (cut,) = (effect for effect in feed(scheduler, DrainOver("b")) if isinstance(effect, Cut))
    assert (cut.ids, cut.error.code) == (("held",), "cut")
    assert not any(isinstance(effect, Refuse) for effect in feed(scheduler, arrive("back", "a")))
    assert list(scheduler.records.queue) == ["next", "back"]


def test_requests_that_were_cut_find_room_in_a_queue_that_is_shorter_than_they_are_many() -> None:
    scheduler = with_a(limit=2)
    feed(scheduler, *(arrive(f"held{i}", "a") for i in range(5)), EngineHeld("a", FROZEN))
    assert feed(scheduler, *(arrive(f"back{i}", "a") for i in range(5))) == []
    assert len(scheduler.records.queue) == 5


def test_room_for_requests_that_were_cut_is_given_once() -> None:
    scheduler = with_a(limit=1)
    feed(scheduler, arrive("held", "a"), EngineHeld("a", FROZEN))
    (refused,) = feed(scheduler, arrive("back", "a"), arrive("1", "a"), arrive("2", "a"))
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, AdmissionError)
    assert (refused.id, refused.error.code) == ("2", "queue_full")


def test_an_engine_that_recovers_serves_who_waited() -> None:
    scheduler = with_a_stuck()
    effects = feed(scheduler, arrive("1", "a"), arrive("2", "a"), EngineRecovered("a"))
    assert effects == [Grant("1", "a"), Grant("2", "a")]
    assert feed(scheduler, arrive("3", "a")) == [Grant("3", "a")]


def test_what_is_told_of_an_engine_that_is_not_there_changes_nothing() -> None:
    scheduler = new()
    assert feed(scheduler, EngineHeld("a", FROZEN), EngineRecovered("a"), EngineRecovered("nobody")) == []
    assert not scheduler.records.residents


def test_auto_takes_another_engine_than_the_one_that_is_stuck() -> None:
    scheduler = with_a()
    feed(scheduler, Adopted("far", "f-far"), arrive("used", "a"), EngineHeld("a", FROZEN))
    assert feed(scheduler, arrive("1", None)) == [Grant("1", "far")]


def test_auto_waits_for_an_engine_that_is_stuck_where_no_other_runs_and_takes_the_first_that_does() -> None:
    scheduler = with_a_stuck()
    assert feed(scheduler, arrive("1", None)) == []
    assert feed(scheduler, Adopted("far", "f-far")) == [Grant("1", "far")]


def test_another_profile_evicts_an_engine_that_is_stuck_at_once() -> None:
    """Neither the dwell nor the pause of who used it a moment ago protects it: nobody uses it."""
    scheduler = with_a_stuck()
    scheduler.now = PAUSE_S / 2
    assert feed(scheduler, arrive("waits", "a"), arrive("1", "b")) == [
        BeginSwap("b", ("a",), REQUEST),
        Evict("b", ("a",)),
    ]


def test_a_person_who_asks_for_an_engine_that_is_stuck_has_it_started_again() -> None:
    scheduler = with_a_stuck()
    began, evicted = feed(scheduler, arrive("1", "a"), Use("a", SwapCause.USER))
    assert began == BeginSwap("a", ("a",), SwapCause.USER)
    assert isinstance(began, BeginSwap)
    assert began.reasons == {"a": REPAIRED}
    assert evicted == Evict("a", ("a",))
    assert feed(scheduler, Evicted("a"), SwapDone("a")) == [Grant("1", "a")]


@pytest.mark.parametrize("first", ["the swap", "the hold"])
def test_a_drain_does_not_wait_for_an_engine_that_is_stuck(first: str) -> None:
    scheduler = with_a()
    feed(scheduler, arrive("held", "a"))
    moves = [Use("b", SwapCause.USER), EngineHeld("a", FROZEN)]
    effects = feed(scheduler, *(moves if first == "the swap" else moves[::-1]))
    assert Cut(("held",), FROZEN) in effects
    assert Evict("b", ("a",)) in effects


def test_an_engine_whose_swap_was_called_off_in_the_drain_is_still_stuck() -> None:
    scheduler = with_a()
    feed(scheduler, Adopted("far", "f-far"), arrive("held", "a"), Use("b", SwapCause.USER))
    assert CancelSwap("b") in feed(scheduler, Cancel())
    feed(scheduler, EngineHeld("a", FROZEN), arrive("1", "a"))
    assert "1" in scheduler.records.queue


def test_a_stop_ends_an_engine_that_is_stuck_and_who_waits_for_it() -> None:
    scheduler = with_a_stuck()
    effects = feed(scheduler, arrive("1", "a"), Stop("a"))
    assert [type(effect) for effect in effects] == [Refuse, BeginSwap, Evict]
    assert feed(scheduler, EngineDied("a", FROZEN), SwapDone(None)) == [], "nobody wanted another"


def test_after_the_end_of_a_stuck_engine_another_comes_in_its_place_once() -> None:
    scheduler = with_a_stuck()
    assert feed(scheduler, EngineDied("a", FROZEN)) == REPAIR_BEGINS
    assert feed(scheduler, SwapFailed("a", ERROR), Tick()) == []


def test_who_waited_for_a_stuck_engine_gets_the_one_in_its_place() -> None:
    scheduler = with_a_stuck()
    assert feed(scheduler, arrive("1", "a"), EngineDied("a", FROZEN)) == REPAIR_BEGINS
    assert feed(scheduler, SwapDone("a")) == [Grant("1", "a")]


def test_the_load_in_place_of_a_stuck_engine_goes_on_when_nobody_waits_for_it_any_more() -> None:
    scheduler = with_a_stuck()
    feed(scheduler, arrive("1", "a"), EngineDied("a", FROZEN))
    assert feed(scheduler, Leave("1"), Tick()) == []
    assert list(scheduler.records.swaps) == ["a"]


def test_another_death_brings_nothing_up() -> None:
    scheduler = with_a_stuck()
    assert feed(scheduler, EngineDied("a", ERROR)) == []


def test_nothing_comes_in_the_place_of_a_stuck_engine_where_another_was_wanted_there() -> None:
    scheduler = with_a()
    feed(scheduler, arrive("held", "a"), Use("b", SwapCause.USER))
    effects = feed(scheduler, EngineHeld("a", FROZEN), EngineDied("a", FROZEN), SwapDone("b"), Tick())
    assert not any(isinstance(effect, BeginSwap | Decline) for effect in effects)


def test_what_cannot_come_in_the_place_of_a_stuck_engine_is_told() -> None:
    """Engines run alone on this box, and another one came in the same moment."""
    scheduler = with_a_stuck()
    feed(scheduler, Adopted("b", "f-b"))
    (told,) = feed(scheduler, EngineDied("a", FROZEN))
    assert isinstance(told, Decline)
    assert told.error.code == "not_restarted"
    assert "a was not started again after it was stuck" in told.error.message


def test_a_profile_that_is_stuck_twice_within_ten_minutes_is_parked_and_who_waits_is_told() -> None:
    scheduler = with_a()
    repaired(scheduler, 0.0)
    scheduler.now = WITHIN_S / 2
    effects = feed(scheduler, EngineHeld("a", FROZEN), arrive("1", "a"), EngineDied("a", FROZEN))
    (refused,) = effects
    assert isinstance(refused, Refuse)
    assert refused.id == "1"
    assert "a is parked after 2 failures within 10m00s" in refused.error.message
    assert refused.error.code == STUCK


def test_a_profile_that_is_stuck_more_than_three_times_within_an_hour_is_parked() -> None:
    scheduler = with_a()
    for time in range(MOST_STUCK):
        assert repaired(scheduler, time * 2 * WITHIN_S) == REPAIR_BEGINS
    assert repaired(scheduler, STUCK_WITHIN_S - 1) == []
    (refused,) = feed(scheduler, arrive("1", "a"))
    assert isinstance(refused, Refuse)
    assert "a is parked after it was stuck 4 times within an hour" in refused.error.message


def test_a_profile_that_is_stuck_now_and_then_is_not_parked() -> None:
    scheduler = with_a()
    for time in range(3 * MOST_STUCK):
        assert repaired(scheduler, time * STUCK_WITHIN_S / MOST_STUCK) == REPAIR_BEGINS

"""The breaker: what is tried again, what rests, what is parked, and what lets it go."""

from pathlib import Path
from typing import Any

import pytest
from surroundings.box import Behaviour
from surroundings.house import make_profile
from surroundings.rig import ERROR, Rig, arrive, begins, feed, refusal, with_a

from sparkdash.domain.engine import Failure, Parked
from sparkdash.domain.event import ParkedChanged
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError, EngineError, HostError, SparkdashError
from sparkdash.store import Store
from sparkdash.supervisor.decide import breaker as breaking
from sparkdash.supervisor.decide import moves
from sparkdash.supervisor.decide.breaker import MOST_STUCK, STUCK_WITHIN_S, WITHIN_S, Breaker
from sparkdash.supervisor.decide.queue import PAUSE_S
from sparkdash.supervisor.state.registry import failure_of

FROZEN = EngineError("a is stuck: its answers stand still.", code=moves.STUCK)
REPAIR_BEGINS = begins("a", cause=SwapCause.REPAIR)


@pytest.fixture
def stuck(rig: Rig) -> Rig:
    feed(rig, arrive("held", "a"), moves.EngineHeld("a", FROZEN))
    return rig


def repaired(scheduler: Rig, now: float) -> list[moves.Effect]:
    """The engine is stuck at this time, was ended, and comes up again if anything brings it up."""
    scheduler.now = now
    effects = feed(scheduler, moves.EngineHeld("a", FROZEN), moves.EngineDied("a", FROZEN))
    if any(isinstance(effect, moves.BeginSwap) for effect in effects):
        feed(scheduler, moves.SwapDone("a"))
    return effects


@pytest.mark.parametrize("move", [moves.EngineHeld("a", FROZEN), moves.EngineDied("a", FROZEN)])
def test_requests_on_an_engine_that_a_person_stops_are_cut_for_good(rig: Rig, move: moves.Move) -> None:
    feed(rig, arrive("1", "a"), moves.Stop("a"))
    (cut,) = (effect for effect in feed(rig, move) if isinstance(effect, moves.Cut))
    assert (cut.ids, cut.error.code) == (("1",), "cut")
    assert FROZEN.message in cut.error.message


def test_requests_that_a_swap_cut_find_room_in_a_queue_that_is_full() -> None:
    scheduler = with_a(limit=1)
    feed(scheduler, arrive("held", "a"), arrive("next", "b"))
    (cut,) = (effect for effect in feed(scheduler, moves.DrainOver("b")) if isinstance(effect, moves.Cut))
    assert (cut.ids, cut.error.code) == (("held",), "cut")
    assert not any(isinstance(effect, moves.Refuse) for effect in feed(scheduler, arrive("back", "a")))
    assert list(scheduler.records.queue) == ["next", "back"]


def test_requests_that_were_cut_find_room_in_a_queue_that_is_shorter_than_they_are_many() -> None:
    scheduler = with_a(limit=2)
    feed(scheduler, *(arrive(f"held{i}", "a") for i in range(5)), moves.EngineHeld("a", FROZEN))
    assert feed(scheduler, *(arrive(f"back{i}", "a") for i in range(5))) == []
    assert len(scheduler.records.queue) == 5


def test_what_is_told_of_an_engine_that_is_not_there_changes_nothing(empty: Rig) -> None:
    assert feed(empty, moves.EngineHeld("a", FROZEN), moves.EngineRecovered("a")) == []
    assert not empty.records.residents


def test_auto_takes_another_engine_than_the_one_that_is_stuck(rig: Rig) -> None:
    feed(rig, moves.Adopted("far", "f-far"), arrive("used", "a"), moves.EngineHeld("a", FROZEN))
    assert feed(rig, arrive("1", None)) == [moves.Grant("1", "far")]


def test_auto_waits_for_an_engine_that_is_stuck_where_no_other_runs_and_takes_the_first_that_does(stuck: Rig) -> None:
    assert feed(stuck, arrive("1", None)) == []
    assert feed(stuck, moves.Adopted("far", "f-far")) == [moves.Grant("1", "far")]


def test_another_profile_evicts_an_engine_that_is_stuck_at_once(stuck: Rig) -> None:
    stuck.now = PAUSE_S / 2
    assert feed(stuck, arrive("waits", "a"), arrive("1", "b")) == begins("b", "a")


def test_a_person_who_asks_for_an_engine_that_is_stuck_has_it_started_again(stuck: Rig) -> None:
    began, evicted = feed(stuck, arrive("1", "a"), moves.Use("a", SwapCause.USER))
    assert [began, evicted] == begins("a", "a", cause=SwapCause.USER)
    assert isinstance(began, moves.BeginSwap)
    assert began.reasons == {"a": "it is stuck, so it is started again"}


def test_an_engine_whose_swap_was_called_off_in_the_drain_is_still_stuck(rig: Rig) -> None:
    feed(rig, moves.Adopted("far", "f-far"), arrive("held", "a"), moves.Use("b", SwapCause.USER))
    assert moves.CancelSwap("b") in feed(rig, moves.Cancel())
    feed(rig, moves.EngineHeld("a", FROZEN), arrive("1", "a"))
    assert "1" in rig.records.queue


def test_after_the_end_of_a_stuck_engine_another_comes_in_its_place_once(stuck: Rig) -> None:
    assert feed(stuck, moves.EngineDied("a", FROZEN)) == REPAIR_BEGINS
    assert feed(stuck, moves.SwapFailed("a", ERROR), moves.Tick()) == []


def test_the_load_in_place_of_a_stuck_engine_goes_on_when_nobody_waits_for_it_any_more(stuck: Rig) -> None:
    feed(stuck, arrive("1", "a"), moves.EngineDied("a", FROZEN))
    assert feed(stuck, moves.Leave("1"), moves.Tick()) == []
    assert list(stuck.records.swaps) == ["a"]


def test_another_death_brings_nothing_up(stuck: Rig) -> None:
    assert feed(stuck, moves.EngineDied("a", ERROR)) == []


def test_nothing_comes_in_the_place_of_a_stuck_engine_where_another_was_wanted_there(rig: Rig) -> None:
    feed(rig, arrive("held", "a"), moves.Use("b", SwapCause.USER))
    effects = feed(rig, moves.EngineHeld("a", FROZEN), moves.EngineDied("a", FROZEN), moves.SwapDone("b"), moves.Tick())
    assert not any(isinstance(effect, moves.BeginSwap | moves.Decline) for effect in effects)


def test_what_cannot_come_in_the_place_of_a_stuck_engine_is_told(stuck: Rig) -> None:
    feed(stuck, moves.Adopted("b", "f-b"))
    (told,) = feed(stuck, moves.EngineDied("a", FROZEN))
    assert isinstance(told, moves.Decline)
    assert told.error.code == "not_restarted"
    assert "a was not started again after it was stuck" in told.error.message


def test_a_profile_that_is_stuck_twice_within_ten_minutes_is_parked_and_who_waits_is_told(rig: Rig) -> None:
    repaired(rig, 0.0)
    rig.now = WITHIN_S / 2
    error = refusal(feed(rig, moves.EngineHeld("a", FROZEN), arrive("1", "a"), moves.EngineDied("a", FROZEN)))
    assert "a is parked after 2 failures within 10m00s" in error.message
    assert error.code == moves.STUCK


def test_a_profile_that_is_stuck_more_than_three_times_within_an_hour_is_parked(rig: Rig) -> None:
    for time in range(MOST_STUCK):
        assert repaired(rig, time * 2 * WITHIN_S) == REPAIR_BEGINS
    assert repaired(rig, STUCK_WITHIN_S - 1) == []
    assert "a is parked after it was stuck 4 times within an hour" in refusal(feed(rig, arrive("1", "a"))).message


def test_a_profile_that_is_stuck_now_and_then_is_not_parked(rig: Rig) -> None:
    for time in range(3 * MOST_STUCK):
        assert repaired(rig, time * STUCK_WITHIN_S / MOST_STUCK) == REPAIR_BEGINS


OOM = EngineError("a did not start. It ran out of memory.", code="out_of_memory", hint="Take less.", log_tail=("CUDA",))
CRASH = EngineError("a did not start. The engine died: KeyError: 'w1' at 0x7f00", code="engine_crash")
FLAG = EngineError("a did not start. It refused its command line.", code="unknown_flag")
HANGS = HostError("`podman run` gave no answer for 180 s.", code="runtime_timeout")


@pytest.fixture
def breaker() -> Breaker:
    return Breaker()


def test_a_failure_that_is_told_again_names_the_evidence() -> None:
    error = EngineError("a hung.", code="engine_stuck", log_tail=("x",), evidence="/state/incidents/1")
    assert vars(failure_of(error).error()) == vars(error)


def test_a_first_failure_rests_for_two_minutes(breaker: Breaker) -> None:
    breaker.failed("a", "f", OOM, 100.0)
    assert (found := breaker.refusal("a", 110.0)) is not None
    assert (found.code, found.message, found.retry_after) == ("out_of_memory", OOM.message, None)
    assert found.hint == "Take less. No request starts a for another 1m50s; `sparkdash use a` starts it now."
    assert OOM.hint == "Take less."
    assert breaker.refusal("a", 220.0) is None
    assert breaker.parked == {}


def test_a_failure_that_names_a_time_keeps_it_while_it_rests(breaker: Breaker) -> None:
    breaker.failed("a", "f", AdmissionError("Not returned.", code="memory_not_returned", retry_after=60.0), 100.0)
    assert (found := breaker.refusal("a", 110.0)) is not None
    assert (found.message, found.retry_after, found.hint) == ("Not returned.", 50.0, None)
    assert breaker.refusal("a", 160.0) is None


def test_the_second_within_ten_minutes_parks_with_the_reason(breaker: Breaker) -> None:
    breaker.failed("a", "f", CRASH, 0.0)
    breaker.failed("a", "f", OOM, 599.0)
    found = breaker.refusal("a", 99_999.0)
    assert isinstance(found, EngineError)
    assert (found.code, found.retry_after, found.log_tail) == ("out_of_memory", None, ("CUDA",))
    assert found.message == "a is parked after 2 failures within 10m00s: a did not start. It ran out of memory."
    assert "Take less. Then `sparkdash status --release a`" in (found.hint or "")
    assert OOM.message == "a did not start. It ran out of memory."
    assert breaker.parked["a"].failures == 2


def test_one_that_an_earlier_daemon_parked_is_tried_once_more_when_a_person_wants_it(breaker: Breaker) -> None:
    breaker.recall("a", breaking.ParkedFailure(OOM, 2, "f"))
    assert "a is parked after 2 failures" in str(breaker.refusal("a", 0.0))
    breaker.tried_again("a")
    assert breaker.refusal("a", 0.0) is None
    breaker.failed("a", "f", OOM, 1.0)
    assert breaker.parked["a"].failures == 2
    breaker.tried_again("a")
    breaker.came_up("a")
    assert (breaker.parked, breaker.refusal("a", 2.0)) == ({}, None)


@pytest.mark.parametrize(("first", "second", "parks"), [
    (OOM, OOM, True), (CRASH, EngineError(CRASH.message.replace("7f00", "8a10"), code="engine_crash"), True),
    (CRASH, EngineError("a did not start. The engine died: another", code="engine_crash"), False),
    (OOM, CRASH, False),
])  # fmt: skip
def test_the_same_error_twice_is_not_tried_a_third_time(
    breaker: Breaker, first: SparkdashError, second: SparkdashError, parks: bool
) -> None:
    breaker.failed("a", "f", first, 0.0)
    breaker.failed("a", "f", second, 3600.0)
    assert ("a" in breaker.parked) is parks
    told = "a is parked as it failed for the same reason again: a did not start."
    assert (told in str(breaker.refusal("a", 3601.0))) is parks


def test_what_no_try_can_help_is_parked_at_once(breaker: Breaker) -> None:
    breaker.failed("a", "f", FLAG, 0.0)
    assert (found := breaker.refusal("a", 1.0)) is not None
    assert "parked since no try helps" in found.message


def test_the_boxs_faults_park_nobody_and_rest_longer_each_time() -> None:
    breaker, now = Breaker(), 0.0
    for rest in (120, 240, 480, 600, 600):
        breaker.failed("a", "f", HANGS, now)
        assert breaker.refusal("a", now + rest - 1) is not None
        assert breaker.refusal("a", now + rest) is None
        now += 1000.0
    assert breaker.parked == {}


@pytest.mark.parametrize("code", sorted(breaking.LACKING))
def test_what_the_box_lacks_parks_nobody_and_is_looked_for_again_in_a_moment(code: str) -> None:
    breaker, error = Breaker(), HostError("It is not there.", code=code)
    for now in (0.0, 10.0, 20.0):
        breaker.failed("a", "f", error, now, evicted=False)
        assert breaker.refusal("a", now + 1) is not None
        assert breaker.refusal("a", now + breaking.LOOKED_S) is None
    breaker.failed("a", "f", error, 30.0)
    assert breaker.refusal("a", 30.0 + breaking.REST_S - 1) is not None, "it was seen only once an engine had left"
    assert breaker.parked == {}


def test_deaths_count_for_ten_minutes_even_though_it_came_up_between(breaker: Breaker) -> None:
    breaker.failed("a", "f", OOM, 0.0)
    breaker.came_up("a")
    breaker.died("a", "f", CRASH, 10.0)
    assert breaker.refusal("a", 10.0) is None
    breaker.came_up("a")
    breaker.died("a", "f", CRASH, 700.0)
    assert breaker.parked == {}
    breaker.came_up("a")
    breaker.died("a", "f", CRASH, 1299.0)
    assert set(breaker.parked) == {"a"}


def test_what_the_memory_guard_killed_rests_and_is_never_parked_for_it() -> None:
    breaker, killed = Breaker(), EngineError("The memory guard killed a.", code="memory_guard")
    breaker.died("a", "f", killed, 0.0)
    found = breaker.refusal("a", 10.0)
    assert found is not None
    assert (found.code, found.retry_after) == ("memory_guard", None)
    assert breaker.refusal("a", breaking.REST_S) is None
    breaker.died("a", "f", killed, 200.0)
    assert breaker.parked == {}


def test_what_lets_go(breaker: Breaker) -> None:
    for name in "abcd":
        breaker.failed(name, "f", FLAG, 0.0)
    breaker.failed("e", "f", OOM, 0.0)
    breaker.release("a")
    breaker.read({"b": "edited", "c": "f", "e": "f"})
    assert set(breaker.parked) == {"c"}
    assert breaker.refusal("e", 1.0) is None
    breaker.release(None)
    assert breaker.parked == {}


async def test_release_of_an_unknown_profile_is_told(house: Any) -> None:
    await house.open(make_profile("a"))
    with pytest.raises(AdmissionError, match="nobody"):
        await house.supervisor.release("nobody")


async def test_parked_is_parked_also_after_a_restart_until_it_is_released(house: Any, tmp_path: Path) -> None:
    """With the same words and since the same moment; `release` is for good."""
    profile, file = make_profile("a"), tmp_path / "registry.db"
    house.runtime.zoo["a"] = Behaviour(dies_after_s=2)
    async with Store.opened(file, print) as store:
        await house.open(profile, store=store)
        for _ in range(2):
            await house.used("a")
        first, swaps = parked(house)["a"], len(house.swaps())
        told = await house.refused("a")
        await house.close()
    async with Store.opened(file, print) as store:
        await house.open(profile, store=store)
        assert parked(house) == {"a": first}
        again = await house.refused("a")
        assert (again.message, again.code, again.log_tail) == (told.message, told.code, told.log_tail)
        assert len(house.swaps()) == swaps
        await house.supervisor.release("a")
        await house.settled()
        assert parked(house) == {}
        del house.runtime.zoo["a"]
        await house.leased("a")
        await house.close()
    async with Store.opened(file, print) as store:
        assert store.parked == {}


async def test_a_launch_that_was_edited_while_no_daemon_ran_is_not_parked(house: Any, tmp_path: Path) -> None:
    async with Store.opened(tmp_path / "registry.db", print) as store:
        failure = Failure(code="unknown_flag", message="It refused its command line.")
        store.parked = {
            name: Parked(since=1.0, failures=1, failure=failure, fingerprint="of another launch") for name in ("a", "x")
        }
        await house.open(make_profile("a"), store=store)
        assert parked(house) == {}
        await house.leased("a")


def parked(house: Any) -> dict[str, Parked]:
    found: dict[str, Parked] = [fact.parked for fact in house.facts if isinstance(fact, ParkedChanged)][-1]
    return found

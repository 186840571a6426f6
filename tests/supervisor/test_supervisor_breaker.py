"""The breaker: what is tried again, what rests, what is parked, and what lets it go."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.engine import EngineState, Failure, Parked
from sparkdash.domain.event import ParkedChanged
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError, EngineError, HostError, SparkdashError
from sparkdash.store import Store
from sparkdash.supervisor.decide import breaker as breaking
from sparkdash.supervisor.decide.breaker import Breaker
from sparkdash.supervisor.state.registry import error_of, failure_of

OOM = EngineError("a did not start. It ran out of memory.", code="out_of_memory", hint="Take less.", log_tail=("CUDA",))
CRASH = EngineError("a did not start. The engine died: KeyError: 'w1' at 0x7f00", code="engine_crash")
FLAG = EngineError("a did not start. It refused its command line.", code="unknown_flag")
HANGS = HostError("`podman run` gave no answer for 180 s.", code="runtime_timeout")


def refusal(breaker: Breaker, now: float) -> SparkdashError | None:
    return breaker.refusal("a", now)


def test_a_failure_that_is_told_again_names_the_evidence() -> None:
    """What was parked by an earlier daemon still says where the hang was kept."""
    error = EngineError("a hung.", code="engine_stuck", log_tail=("x",), evidence="/state/incidents/1")
    assert vars(error_of(failure_of(error))) == vars(error)


def test_a_first_failure_rests_for_two_minutes() -> None:
    """Refused at once with its words and the time that is left, but no time that a client obeys; then tried."""
    breaker = Breaker()
    breaker.failed("a", "f", OOM, 100.0)
    assert (found := refusal(breaker, 110.0)) is not None
    assert (found.code, found.message, found.retry_after) == ("out_of_memory", OOM.message, None)
    assert found.hint == "Take less. No request starts a for another 1m50s; `sparkdash use a` starts it now."
    assert OOM.hint == "Take less."
    assert refusal(breaker, 220.0) is None
    assert breaker.parked == {}


def test_a_failure_that_names_a_time_keeps_it_while_it_rests() -> None:
    """Memory that is on its way back: a client may come again by itself, and nothing was loaded in vain."""
    breaker = Breaker()
    breaker.failed("a", "f", AdmissionError("Not returned.", code="memory_not_returned", retry_after=60.0), 100.0)
    assert (found := refusal(breaker, 110.0)) is not None
    assert (found.message, found.retry_after, found.hint) == ("Not returned.", 50.0, None)
    assert refusal(breaker, 160.0) is None


def test_the_second_within_ten_minutes_parks_with_the_reason() -> None:
    """Whatever each was; the last one is told, with its words, and how to let it go."""
    breaker = Breaker()
    breaker.failed("a", "f", CRASH, 0.0)
    breaker.failed("a", "f", OOM, 599.0)
    found = refusal(breaker, 99_999.0)
    assert isinstance(found, EngineError)
    assert (found.code, found.retry_after, found.log_tail) == ("out_of_memory", None, ("CUDA",))
    assert found.message == "a is parked after 2 failures within 10m00s: a did not start. It ran out of memory."
    assert "Take less. Then `sparkdash status --release a`" in (found.hint or "")
    assert OOM.message == "a did not start. It ran out of memory."
    assert breaker.parked["a"].failures == 2


def test_one_that_an_earlier_daemon_parked_is_tried_once_more_when_a_person_wants_it() -> None:
    """It fails for the same reason, and that is its last try; one that comes up is forgiven."""
    breaker = Breaker()
    breaker.recall("a", breaking.ParkedFailure(OOM, 2, "f"))
    assert "a is parked after 2 failures" in str(refusal(breaker, 0.0))
    breaker.tried_again("a")
    assert refusal(breaker, 0.0) is None
    breaker.failed("a", "f", OOM, 1.0)
    assert breaker.parked["a"].failures == 2
    breaker.tried_again("a")
    breaker.came_up("a")
    assert (breaker.parked, refusal(breaker, 2.0)) == ({}, None)


@pytest.mark.parametrize(
    ("first", "second", "parks"),
    [
        (OOM, OOM, True),
        (CRASH, EngineError(CRASH.message.replace("7f00", "8a10"), code="engine_crash"), True),
        (CRASH, EngineError("a did not start. The engine died: another", code="engine_crash"), False),
        (OOM, CRASH, False),
    ],
)
def test_the_same_error_twice_is_not_tried_a_third_time(
    first: SparkdashError, second: SparkdashError, parks: bool
) -> None:
    """An hour apart too; figures and addresses do not make two crashes different."""
    breaker = Breaker()
    breaker.failed("a", "f", first, 0.0)
    breaker.failed("a", "f", second, 3600.0)
    assert ("a" in breaker.parked) is parks


def test_what_no_try_can_help_is_parked_at_once() -> None:
    """Each try would evict whoever runs."""
    breaker = Breaker()
    breaker.failed("a", "f", FLAG, 0.0)
    assert (found := refusal(breaker, 1.0)) is not None
    assert "parked since no try helps" in found.message


def test_the_boxs_faults_park_nobody_and_rest_longer_each_time() -> None:
    """Two, four, eight … at most ten minutes; a fault of the profile's own begins anew."""
    breaker, now = Breaker(), 0.0
    for rest in (120, 240, 480, 600, 600):
        breaker.failed("a", "f", HANGS, now)
        assert refusal(breaker, now + rest - 1) is not None
        assert refusal(breaker, now + rest) is None
        now += 1000.0
    assert breaker.parked == {}


def test_deaths_count_for_ten_minutes_even_though_it_came_up_between() -> None:
    """One is no reason to refuse; the second is. Failures of starts do not outlive a start that went well."""
    breaker = Breaker()
    breaker.failed("a", "f", OOM, 0.0)
    breaker.came_up("a")
    breaker.died("a", "f", CRASH, 10.0)
    assert refusal(breaker, 10.0) is None
    breaker.came_up("a")
    breaker.died("a", "f", CRASH, 700.0)
    assert breaker.parked == {}
    breaker.came_up("a")
    breaker.died("a", "f", CRASH, 1299.0)
    assert set(breaker.parked) == {"a"}


def test_what_the_memory_guard_killed_rests_and_is_never_parked_for_it() -> None:
    """It was the box that was short; a restart at once would meet the same shortage."""
    breaker, killed = Breaker(), EngineError("The memory guard killed a.", code="memory_guard")
    breaker.died("a", "f", killed, 0.0)
    found = refusal(breaker, 10.0)
    assert found is not None
    assert (found.code, found.retry_after) == ("memory_guard", None)
    assert refusal(breaker, breaking.REST_S) is None
    breaker.died("a", "f", killed, 200.0)
    assert breaker.parked == {}


def test_a_death_and_a_failed_restart_are_two() -> None:
    """A restart loop by another name."""
    breaker = Breaker()
    breaker.died("a", "f", CRASH, 0.0)
    breaker.failed("a", "f", OOM, 30.0)
    assert set(breaker.parked) == {"a"}


def test_what_lets_go() -> None:
    """Release, an edit of the launch, the profile's removal; an edit that changes no launch ends a rest only."""
    breaker = Breaker()
    for name in "abcd":
        breaker.failed(name, "f", FLAG, 0.0)
    breaker.failed("e", "f", OOM, 0.0)
    breaker.release("a")
    breaker.read({"b": "edited", "c": "f", "e": "f"})
    assert set(breaker.parked) == {"c"}
    assert breaker.refusal("e", 1.0) is None
    breaker.release(None)
    assert breaker.parked == {}


def test_a_persons_wish_is_one_try_more() -> None:
    """If it fails, what was known counts."""
    breaker = Breaker()
    breaker.failed("a", "f", OOM, 0.0)
    breaker.failed("a", "f", OOM, 1.0)
    breaker.tried_again("a")
    assert refusal(breaker, 2.0) is None
    breaker.failed("a", "f", OOM, 5000.0)
    assert set(breaker.parked) == {"a"}
    assert "a is parked as it failed for the same reason again: a did not start." in str(refusal(breaker, 5001.0))


async def refused(house: Any, name: str) -> SparkdashError:
    """What a request for `name` is refused with."""
    (result,) = await house.clock.drive(asyncio.gather(house.ask(name).granted(), return_exceptions=True))
    assert isinstance(result, SparkdashError), result
    return result


async def test_parked_is_published_kept_and_released(house: Any, make_profile: Any, behaviour: Any) -> None:
    """In the snapshot with the last words; requests no longer evict anyone; released, it is tried and comes up."""
    house.runtime.zoo["b"] = behaviour(dies_after_s=2)
    await house.open(make_profile("a"), make_profile("b"))
    await house.leased("a")
    await refused(house, "b")
    house.clock.time += breaking.REST_S + 1
    await refused(house, "b")
    parked = [fact.parked for fact in house.facts if isinstance(fact, ParkedChanged)][-1]
    assert parked["b"].failure.code == "out_of_memory"
    assert "CUDA out of memory" in parked["b"].failure.log_tail[-1]
    house.clock.time += 9999
    await house.settled()
    swaps = len(house.swaps())
    error = await refused(house, "b")
    assert error.code == "out_of_memory"
    assert "parked after 2 failures" in error.message
    assert len(house.swaps()) == swaps
    del house.runtime.zoo["b"]
    await house.supervisor.release("b")
    await house.leased("b")
    assert house.state("b") is EngineState.READY
    assert [fact.parked for fact in house.facts if isinstance(fact, ParkedChanged)][-1] == {}


async def test_release_of_an_unknown_profile_is_told(house: Any, make_profile: Any) -> None:
    """A slip of the keyboard is no success."""
    await house.open(make_profile("a"))
    with pytest.raises(AdmissionError, match="nobody"):
        await house.supervisor.release("nobody")


async def test_use_tries_a_parked_profile_once(house: Any, make_profile: Any, behaviour: Any) -> None:
    """And parks it again when it fails."""
    house.runtime.zoo["b"] = behaviour(dies_after_s=2)
    await house.open(make_profile("b"))
    for _ in range(3):
        await house.supervisor.use("b", cause=SwapCause.USER)
        await house.settled()
    assert len(house.swaps()) == 3
    assert "parked" in (await refused(house, "b")).message


async def test_parked_is_parked_also_after_a_restart_until_it_is_released(
    house: Any, make_profile: Any, behaviour: Any, tmp_path: Path
) -> None:
    """With the same words and since the same moment; `release` is for good."""
    profile, file = make_profile("a"), tmp_path / "registry.db"
    house.runtime.zoo["a"] = behaviour(dies_after_s=2)
    async with Store.opened(file, print) as store:
        await house.open(profile, store=store)
        for _ in range(2):
            await house.supervisor.use("a", cause=SwapCause.USER)
            await house.settled()
        first, swaps = parked(house)["a"], len(house.swaps())
        told = await refused(house, "a")
        await house.close()
    async with Store.opened(file, print) as store:
        await house.open(profile, store=store)
        assert parked(house) == {"a": first}
        again = await refused(house, "a")
        assert (again.message, again.code, again.log_tail) == (told.message, told.code, told.log_tail)
        assert len(house.swaps()) == swaps
        await house.supervisor.release("a")
        await house.settled()
        await house.close()
    async with Store.opened(file, print) as store:
        assert store.parked == {}


async def test_a_launch_that_was_edited_while_no_daemon_ran_is_not_parked(
    house: Any, make_profile: Any, tmp_path: Path
) -> None:
    """As if it had been edited while one ran."""
    async with Store.opened(tmp_path / "registry.db", print) as store:
        failure = Failure(code="unknown_flag", message="It refused its command line.")
        store.parked = {
            name: Parked(since=1.0, failures=1, failure=failure, fingerprint="of another launch") for name in ("a", "x")
        }
        await house.open(make_profile("a"), store=store)
        assert parked(house) == {}
        await house.leased("a")


def parked(house: Any) -> dict[str, Parked]:
    """As everybody sees it."""
    found: dict[str, Parked] = [fact.parked for fact in house.facts if isinstance(fact, ParkedChanged)][-1]
    return found

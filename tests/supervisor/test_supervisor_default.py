"""The default profile: an unused box returns to it, and nobody who uses or pinned an engine notices."""

from __future__ import annotations

from typing import Any

from surroundings.rig import ERROR, REQUEST, Rig, arrive, feed, new, with_a

from sparkdash.domain.event import DefaultChanged
from sparkdash.domain.swap import DefaultProfile, SwapCause
from sparkdash.settings import Policy
from sparkdash.supervisor.decide.moves import (
    Adopted,
    BeginSwap,
    Evict,
    Evicted,
    Grant,
    Leave,
    Patience,
    PolicyRead,
    ProfileFacts,
    Stop,
    SwapDone,
    SwapFailed,
    Tick,
    Use,
)

DEFAULT = SwapCause.DEFAULT


def returning(rig: Rig, profile: str = "b") -> Rig:
    """The same with a default, to which the box returns after 100 s."""
    feed(rig, PolicyRead(Patience(), 100, DefaultProfile(profile=profile, after_s=100)))
    return rig


def at(rig: Rig, now: float) -> list[Any]:
    rig.now = now
    return feed(rig, Tick())


BACK = [BeginSwap("b", ("a",), DEFAULT), Evict("b", ("a",))]


def test_it_comes_in_the_place_of_one_that_nobody_uses() -> None:
    rig = returning(with_a())
    assert rig.scheduler.due == 100
    assert at(rig, 99) == []
    assert at(rig, 100) == BACK


def test_every_use_begins_the_time_anew() -> None:
    rig = returning(with_a())
    rig.now = 60
    feed(rig, arrive("1", "a"))
    assert at(rig, 150) == []
    assert rig.scheduler.due == 250
    rig.now = 200
    feed(rig, Leave("1"))
    assert at(rig, 299) == []
    assert at(rig, 300) == BACK


def test_a_use_that_takes_the_short_way_counts_too() -> None:
    rig = returning(with_a())
    assert rig.scheduler.grant_at_once(arrive("1", "a"), 50.0) == "a"
    assert rig.scheduler.end_at_once("1", 60.0)
    assert at(rig, 100) == []
    assert rig.scheduler.due == 160
    assert at(rig, 160) == BACK


def test_an_empty_box_gets_it_too() -> None:
    rig = returning(new())
    assert at(rig, 100) == [BeginSwap("b", (), DEFAULT), Evict("b", ())]


def test_what_a_person_stopped_stays_stopped_until_something_is_loaded() -> None:
    rig = returning(with_a())
    feed(rig, Stop(None), Evicted("a"), SwapDone(None))
    assert at(rig, 10_000) == []
    feed(rig, Use("c", SwapCause.USER), SwapDone("c"))
    assert at(rig, 10_099) == []
    assert at(rig, 10_100) == [BeginSwap("b", ("c",), DEFAULT), Evict("b", ("c",))]


def test_a_pinned_engine_stays() -> None:
    rig = with_a()
    rig.records.profiles["a"] = ProfileFacts("f-a", pinned=True)
    returning(rig)
    assert at(rig, 100) == []
    assert rig.scheduler.due == 200


def test_a_request_that_waits_comes_first() -> None:
    rig = returning(with_a())
    rig.now = 100
    assert feed(rig, arrive("1", "c")) == [BeginSwap("c", ("a",), REQUEST), Evict("c", ("a",))]
    assert feed(rig, Evicted("a"), SwapDone("c")) == [Grant("1", "c")]


def test_a_default_that_does_not_come_up_rests() -> None:
    """Like any profile that failed; what left for it comes back."""
    rig = returning(with_a())
    assert at(rig, 100) == BACK
    feed(rig, Evicted("a"))
    assert feed(rig, SwapFailed("b", ERROR)) == [BeginSwap("a", (), SwapCause.FALLBACK), Evict("a", ())]
    feed(rig, SwapDone("a"))
    assert at(rig, 110) == []


def test_the_default_that_runs_needs_nothing() -> None:
    rig = new()
    feed(rig, Adopted("b", "f-b"))
    returning(rig)
    assert rig.scheduler.due is None
    assert at(rig, 1000) == []


def defaults(house: Any) -> list[DefaultProfile | None]:
    """What was published."""
    return [fact.default for fact in house.facts if isinstance(fact, DefaultChanged)]


async def test_a_daemon_returns_to_its_default_and_tells_of_it(house: Any, make_profile: Any) -> None:
    await house.open(
        make_profile("big", gib=90, serves=("usual",)),
        make_profile("small", gib=60),
        default="usual",
        default_after_s=300,
    )
    assert defaults(house)[-1] == DefaultProfile(profile="big", after_s=300)
    await house.leased("small")
    while house.runtime.running() != ["big"]:
        house.clock.step()
        await house.clock.rest()
    await house.settled()
    swap = house.swaps()[-1]
    assert (swap.target, swap.evict, swap.cause) == ("big", ("small",), DEFAULT)


async def test_a_default_that_is_no_profile_is_told(house: Any, make_profile: Any) -> None:
    await house.open(make_profile("a", gib=20), default="nobody", policy={"a": Policy(pinned=True)})
    await house.settled()
    assert defaults(house) == [None]
    assert any("`default` in config.toml" in notice.text for notice in house.notices())

"""Who leaves, why, and whether it fits, in plain figures. All in GiB; a box of 128 with 10 in reserve."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.node import LOCAL
from sparkdash.supervisor.decide.fit import BoxMemory, Choice, Occupant, choose, must_be_free
from sparkdash.units import GIB


def need(gib: float | None, basis: Basis = Basis.LEARNED, peak: float | None = None) -> Need:
    """One term."""
    if gib is None:
        return Need()
    term = Term(name="steady", bytes=int(gib * GIB), source="test")
    return Need(basis=basis, terms=(term,), peak_bytes=None if peak is None else int(peak * GIB))


def engine(name: str, gib: float | None, *, basis: Basis = Basis.LEARNED, **facts: Any) -> Occupant:
    return Occupant(name, need(gib, basis), **facts)


def ask(
    gib: float | None,
    available: float | None,
    *there: Occupant,
    basis: Basis = Basis.LEARNED,
    person: bool = False,
    **box: Any,
) -> Choice:
    """`new` needs so much."""
    free = None if available is None else int(available * GIB)
    given = {"total": 128 * GIB, "available": free, "reserve": 10 * GIB, **box}
    return choose(Occupant("new", need(gib, basis)), there, {LOCAL: BoxMemory(**given)}, person=person)


def test_what_fits_beside_the_others_evicts_nobody() -> None:
    """30 are available, 20 are needed, and 10 stay in reserve."""
    choice = ask(20, 30, engine("a", 60), engine("b", 30))
    assert (choice.leaving, choice.fits, choice.available) == ((), True, 20 * GIB)


def test_a_byte_less_and_somebody_leaves() -> None:
    """The reserve is kept to the byte."""
    box = {LOCAL: BoxMemory(total=128 * GIB, available=30 * GIB - 1, reserve=10 * GIB)}
    choice = choose(Occupant("new", need(20)), [engine("a", 40)], box, person=False)
    assert choice.names == ("a",)


@pytest.mark.parametrize(
    ("there", "leaves"),
    [
        ([engine("old", 40, idle_s=900), engine("new-ish", 40, idle_s=60)], ("old",)),
        ([engine("small", 10, idle_s=900), engine("large", 40, idle_s=60)], ("large",)),
        ([engine("old", 40, idle_s=900, busy=1), engine("idle", 40, idle_s=60)], ("idle",)),
        ([engine("x", 20, idle_s=900), engine("y", 20, idle_s=800), engine("busy", 40, busy=1)], ("x", "y")),
        ([engine("slow", 40, idle_s=70, reload_s=600), engine("fast", 40, idle_s=65, reload_s=30)], ("fast",)),
        ([engine("one", 40, busy=3), engine("two", 20, busy=1)], ("one",)),
        ([engine("a", 20, idle_s=9), engine("b", 20, idle_s=8)], ("a", "b")),
        ([engine("far", None, managed=False), engine("a", 40)], ("a",)),
    ],
)
def test_the_smallest_set_that_makes_room_leaves_idle_first_then_oldest_then_quickest_back(
    there: list[Occupant], leaves: tuple[str, ...]
) -> None:
    """30 more are needed than there are."""
    assert ask(40, 20, *there).names == leaves


def test_each_who_leaves_is_told_why() -> None:
    """In words that name what a person can check."""
    (idle,) = ask(40, 20, engine("a", 40, idle_s=754)).leaving
    assert idle.reason == "idle for 12m34s; it frees 40.0 GiB"
    (busy,) = ask(40, 20, engine("a", 40, busy=2)).leaving
    assert busy.reason == "no idle engine frees enough; its 2 requests may finish; it frees 40.0 GiB"
    (pinned,) = ask(40, 20, engine("a", 40, pinned=True, idle_s=5), person=True).leaving
    assert pinned.reason == "pinned, and nothing else frees enough; idle for 5.0s; it frees 40.0 GiB"


def test_a_pinned_engine_leaves_for_a_person_and_for_no_request() -> None:
    """And for a person only when nothing else does."""
    both = engine("pinned", 60, pinned=True, idle_s=9000), engine("busy", 40, busy=1)
    assert ask(40, 10, *both).names == ("busy",)
    assert ask(60, 10, *both).pinned == ("pinned",)
    assert ask(60, 10, *both).refused
    assert ask(40, 10, *both, person=True).names == ("busy",)
    assert ask(60, 10, *both, person=True).names == ("pinned",)


def test_an_engine_whose_need_is_not_known_runs_alone() -> None:
    """Whether it comes or is there; pinned ones stand in its way."""
    alone = ask(None, 100, engine("a", 10), engine("b", 10))
    assert alone.names == ("a", "b")
    assert alone.fits is None
    assert "new" in alone.leaving[0].reason
    assert ask(10, 100, engine("a", 10), engine("who", None)).names == ("who",)
    assert ask(None, 100, engine("a", 10, pinned=True)).pinned == ("a",)
    assert ask(10, None, engine("a", 10)).names == ("a",)


def test_an_owner_may_want_one_engine_at_a_time() -> None:
    """However much memory there is."""
    choice = ask(10, 100, engine("a", 10), side_by_side=False)
    assert choice.names == ("a",)
    assert "side_by_side" in choice.leaving[0].reason


def test_a_restart_and_one_that_would_not_stop_always_leave() -> None:
    """Whatever the memory says."""
    stuck = engine("stuck", 10, unstopped=True)
    choice = choose(engine("a", 10), [engine("a", 10), stuck], {LOCAL: BoxMemory(128 * GIB, 100 * GIB)}, person=True)
    assert choice.names == ("a", "stuck")


def test_what_engines_hold_in_the_page_cache_is_not_given_away_twice() -> None:
    """100 seem available, since the kernel could drop the weights of a mapped file: together they still must fit."""
    assert ask(60, 100, engine("mapped", 70)).names == ("mapped",)


def test_a_peak_is_what_must_be_free_and_the_sum_what_stays() -> None:
    """Loading takes more for a while."""
    comer = Occupant("new", need(20, peak=35))
    choice = choose(comer, [engine("a", 20)], {LOCAL: BoxMemory(128 * GIB, 40 * GIB, 10 * GIB)}, person=False)
    assert choice.names == ("a",)
    assert choice.needs == 35 * GIB


L, D, E = Basis.LEARNED, Basis.DECLARED, Basis.ESTIMATED


@pytest.mark.parametrize(
    ("gib", "basis", "available", "there", "fits"),
    [
        (119, D, 120, [], False),
        (118, D, 128, [], True),
        (60, D, 50, [], False),
        (60, D, 65, [], False),
        (60, L, 65, [], True),
        (60, L, 50, [], False),
        (60, D, 20, [engine("a", 30)], False),
        (60, L, 35, [engine("a", 30)], True),
        (60, L, 20, [engine("a", 30)], False),
        (60, L, 20, [engine("a", 30, basis=D)], None),
        (129, L, 20, [engine("a", 30, basis=D)], False),
        (60, L, 20, [engine("who", None)], None),
        (60, L, None, [engine("a", 30)], None),
        (119, D, None, [], False),
        (119, E, 120, [], None),
        (60, E, 120, [], True),
        (None, L, 50, [], None),
    ],
)
def test_never_is_said_only_when_it_is_known(
    gib: float | None, basis: Basis, available: float | None, there: list[Occupant], fits: bool | None
) -> None:
    """An estimate refuses nobody; what was seen to run here alone may use the reserve; an engine of which it was never
    measured what it holds may give back more than it declares."""
    assert ask(gib, available, *there, basis=basis).fits is fits


def test_memory_that_is_still_coming_back_is_no_reason_to_refuse() -> None:
    """How much will come is not known."""
    assert ask(60, 50).fits is False
    assert ask(60, 50, owed=True).fits is None


@pytest.mark.parametrize(
    ("gib", "basis", "alone", "expected"),
    [
        (40, D, True, 50),
        (40, D, False, 50),
        (40, L, True, 40),
        (40, L, False, 50),
        (40, E, True, None),
        (40, E, False, 50),
    ],
)
def test_beside_others_the_reserve_is_always_kept(gib: float, basis: Basis, alone: bool, expected: int | None) -> None:
    """The last look before a start, 10 in reserve."""
    asked = must_be_free(need(gib, basis), 10 * GIB, alone=alone)
    assert asked == (None if expected is None else expected * GIB)

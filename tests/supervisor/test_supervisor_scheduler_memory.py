"""The decision table where memory decides: engines beside others, loads at the same time, memory that is short."""

from __future__ import annotations

from surroundings.rig import ERROR, REQUEST, Rig, arrive, beside, feed, new, small, with_a

from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError
from sparkdash.supervisor.decide.moves import (
    Admitted,
    Adopted,
    BeginSwap,
    Cancel,
    CancelSwap,
    Decline,
    DrainOver,
    EngineDied,
    Evict,
    Evicted,
    Grant,
    Leave,
    Preload,
    Refuse,
    Stop,
    SwapCancelled,
    SwapDone,
    SwapFailed,
    Tick,
    Use,
)
from sparkdash.units import GIB


def test_a_miss_that_waits_behind_a_load_keeps_nobody_from_the_engine_that_it_will_evict() -> None:
    """Until its turn comes that engine would only stand idle, for as long as another loads. From then on nobody overtakes it."""
    rig = beside("a")
    feed(rig, arrive("1", "b"), arrive("2", "c"))
    assert feed(rig, arrive("3", "a"), arrive("4", None)) == [Grant("3", "a"), Grant("4", "a")]
    assert feed(rig, Leave("4"), SwapDone("b")) == [Grant("1", "b")]
    rig.now = 60
    assert feed(rig, Leave("1"), Tick()) == [BeginSwap("c", ("a", "b"), REQUEST)]
    assert feed(rig, arrive("5", "a")) == []
    assert feed(rig, Leave("3")) == [Evict("c", ("a", "b"))]


def test_what_takes_no_memory_begins_while_another_loads_and_while_it_is_cancelled() -> None:
    """An engine elsewhere is only probed: neither a load, nor one that waits for its turn, holds that up."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "b"), arrive("2", "c"), Evicted("a"))
    assert feed(scheduler, arrive("3", "far")) == [BeginSwap("far", (), REQUEST), Evict("far", ())]
    assert feed(scheduler, SwapDone("far")) == [Grant("3", "far")]
    assert feed(scheduler, EngineDied("far", ERROR), Leave("3"), Cancel())[1:2] == [CancelSwap("b")]
    assert feed(scheduler, arrive("4", "far")) == [BeginSwap("far", (), REQUEST), Evict("far", ())]
    assert feed(scheduler, SwapCancelled("b")) == [BeginSwap("c", (), REQUEST), Evict("c", ())]
    assert feed(scheduler, SwapDone("far"), SwapDone("c")) == [Grant("4", "far"), Grant("2", "c")]


def test_the_end_of_one_swap_says_nothing_of_another() -> None:
    """Its drain goes on, and who left for it comes back when it fails."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "a"), arrive("2", "b"), arrive("3", "far"))
    assert feed(scheduler, DrainOver("far"), SwapDone("far")) == [Grant("3", "far")]
    assert feed(scheduler, Leave("1")) == [Evict("b", ("a",))]
    feed(scheduler, Evicted("a"), EngineDied("far", ERROR), arrive("4", "far"), SwapFailed("far", ERROR))
    assert feed(scheduler, SwapFailed("b", ERROR))[1:] == [BeginSwap("a", (), SwapCause.FALLBACK), Evict("a", ())]


def test_a_stop_of_what_is_elsewhere_does_not_wait_for_a_load() -> None:
    """It gives no memory back. A stop of an engine of this box does wait: one that loads must not see memory come back."""
    scheduler = with_a()
    feed(scheduler, Adopted("far", "f-far"), arrive("1", "b"), Evicted("a"))
    assert feed(scheduler, Stop("far")) == [BeginSwap(None, ("far",), SwapCause.USER), Evict(None, ("far",))]
    assert feed(scheduler, Evicted("far"), SwapDone(None)) == []
    rig = beside("a")
    feed(rig, arrive("1", "b"))
    assert feed(rig, Stop("a")) == []
    assert rig.stopping
    assert feed(rig, arrive("2", "a")) == []
    assert feed(rig, SwapDone("b")) == [Grant("1", "b"), BeginSwap(None, ("a",), SwapCause.USER), Evict(None, ("a",))]


def test_one_that_fits_beside_the_others_comes_although_an_older_one_is_held_back() -> None:
    """c would interrupt a, which is in use; b interrupts nobody."""
    rig = beside("a")
    assert feed(rig, arrive("1", "a"), arrive("2", "c"), arrive("3", "b"))[1:] == [
        BeginSwap("b", (), REQUEST),
        Evict("b", ()),
    ]
    assert feed(rig, SwapDone("b")) == [Grant("3", "b")]


def test_a_load_begins_beside_another_once_that_has_its_room() -> None:
    """Not before: what leaves for the first, or is still on its way back, is not there for a second."""
    rig = small("a")
    assert feed(rig, arrive("1", "big")) == [BeginSwap("big", ("a",), REQUEST), Evict("big", ("a",))]
    assert feed(rig, arrive("2", "b"), Evicted("a"), Cancel())[0] == CancelSwap("big")
    assert feed(rig, SwapCancelled("big")) == [BeginSwap("b", (), REQUEST), Evict("b", ())]
    assert feed(rig, arrive("3", "c")) == []
    assert feed(rig, Admitted("b")) == [BeginSwap("c", (), REQUEST), Evict("c", ())]
    assert feed(rig, SwapDone("c"), SwapDone("b")) == [Grant("3", "c"), Grant("2", "b")]


def test_nobody_behind_one_who_waits_for_memory_takes_any_before_it() -> None:
    """The older one needs room that others must make: a stream of small loads would keep it out for ever."""
    rig = small()
    feed(rig, arrive("1", "a"), Admitted("a"), arrive("2", "big"))
    assert feed(rig, arrive("3", "b")) == []
    assert feed(rig, SwapDone("a")) == [Grant("1", "a"), BeginSwap("big", ("a",), REQUEST)]
    assert feed(rig, arrive("4", "a"), Leave("1")) == [Evict("big", ("a",))]


def test_no_load_begins_beside_another_while_a_stop_waits_for_its_end() -> None:
    """A person's word comes before the queue."""
    rig = small("a")
    feed(rig, arrive("1", "b"), Admitted("b"), Stop("a"))
    assert feed(rig, arrive("2", "c")) == []
    assert feed(rig, SwapDone("b")) == [Grant("1", "b"), BeginSwap(None, ("a",), SwapCause.USER), Evict(None, ("a",))]
    assert feed(rig, Evicted("a"), SwapDone(None)) == [BeginSwap("c", (), REQUEST), Evict("c", ())]


def test_who_sizes_itself_by_what_is_free_loads_alone() -> None:
    """Neither beside another, nor another beside it."""
    rig = small(b={"loads_alone": True})
    feed(rig, arrive("1", "a"), Admitted("a"))
    assert feed(rig, arrive("2", "b")) == []
    assert feed(rig, SwapDone("a"), Admitted("b")) == [Grant("1", "a"), BeginSwap("b", (), REQUEST), Evict("b", ())]
    assert feed(rig, arrive("3", "c")) == []


def test_a_wish_ends_a_load_that_nobody_waits_for_only_where_it_stands_in_its_way() -> None:
    """One that fits beside it comes beside it."""
    rig = small()
    feed(rig, Use("a", SwapCause.USER), Admitted("a"))
    assert feed(rig, Use("b", SwapCause.USER)) == [BeginSwap("b", (), SwapCause.USER), Evict("b", ())]
    assert feed(rig, Use("big", SwapCause.USER)) == [CancelSwap("a"), CancelSwap("b")]


def test_what_is_forecast_behind_several_loads_counts_each_once() -> None:
    """The box as it was before them, less what comes; one that fails gives its share back."""
    rig = small()
    feed(rig, arrive("1", "a"), Admitted("a"), arrive("2", "b"), Admitted("b"))
    assert rig.scheduler.choice("c", 0.0).available == (120 - 20 - 20 - 10) * GIB
    feed(rig, SwapFailed("a", ERROR))
    assert rig.scheduler.choice("c", 0.0).available == (120 - 20 - 10) * GIB
    feed(rig, SwapDone("b"))
    assert rig.scheduler.choice("c", 0.0).available == (120 - 20 - 10) * GIB


def test_a_preload_waits_for_its_turn_behind_those_who_ask() -> None:
    """It comes beside a load, and not while somebody waits for memory."""
    rig = small()
    feed(rig, arrive("1", "a"), Admitted("a"), arrive("2", "big"))
    assert feed(rig, Preload(("b",))) == []
    assert feed(rig, Leave("2")) == [BeginSwap("b", (), SwapCause.PRELOAD), Evict("b", ())]


def test_a_fall_back_comes_only_where_it_fits_beside_what_runs() -> None:
    """c failed after a and b had left for it: both come back, one after the other."""
    rig = beside("a", "b")
    feed(rig, arrive("1", "c"), Evicted("a"), Evicted("b"))
    effects = feed(rig, SwapFailed("c", ERROR))
    assert effects[1:] == [BeginSwap("a", (), SwapCause.FALLBACK), Evict("a", ())]
    assert feed(rig, SwapDone("a")) == [BeginSwap("b", (), SwapCause.FALLBACK), Evict("b", ())]
    assert feed(rig, SwapDone("b")) == []


SHORT = AdmissionError("Memory is short.", code="memory_low", status=503, retry_after=10.0)


def test_while_memory_is_short_a_load_for_which_nobody_leaves_is_refused_on_arrival() -> None:
    """What runs goes on serving, what runs elsewhere takes nothing here, and a wish is declined."""
    rig = beside("a")
    rig.shortage = SHORT
    assert feed(rig, arrive("1", "b")) == [Refuse("1", SHORT)]
    assert feed(rig, Use("b", SwapCause.USER)) == [Decline("b", SHORT)]
    assert feed(rig, Preload(("b",))) == [Decline("b", SHORT)]
    assert feed(rig, arrive("2", "a")) == [Grant("2", "a")]
    assert feed(new_short(), arrive("1", "far")) == [BeginSwap("far", (), REQUEST), Evict("far", ())]


def test_while_memory_is_short_a_load_that_makes_room_first_may_begin() -> None:
    """Who leaves is what made it short; and who comes to wait for what loads already is not sent away for its memory."""
    rig = with_a()
    rig.shortage = SHORT
    assert feed(rig, arrive("1", "b"))[0] == BeginSwap("b", ("a",), REQUEST)
    feed(rig, Evicted("a"))
    assert feed(rig, arrive("2", "b")) == []


def new_short() -> Rig:
    """Nothing runs, and memory is short."""
    rig = new()
    rig.shortage = SHORT
    return rig

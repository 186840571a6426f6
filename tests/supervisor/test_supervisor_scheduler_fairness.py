"""The decision table where turns and time decide: dwell, patience and batch."""

from __future__ import annotations

from surroundings.rig import REQUEST, arrive, beside, feed

from sparkdash.domain.swap import SwapCause
from sparkdash.supervisor.decide.moves import Arrive, BeginSwap, Evict, Grant, Leave, SwapDone, Tick, Use


def test_an_engine_in_use_is_not_interrupted_before_its_dwell_is_over() -> None:
    """Hits go on until then; the alarm is set to the end of the dwell, or of the pause of who used it last."""
    rig = beside("a")
    feed(rig, arrive("1", "a"), arrive("2", "c"))
    assert rig.scheduler.due == 30
    rig.now = 10
    assert feed(rig, Leave("1"), arrive("3", "a"), Leave("3")) == [Grant("3", "a")]
    assert rig.scheduler.due == 15
    rig.now = 15
    assert feed(rig, Tick()) == [BeginSwap("c", ("a",), REQUEST), Evict("c", ("a",))]


def test_a_person_and_whoever_has_waited_longest_interrupt_at_once() -> None:
    """The dwell is for requests, and ends with their patience."""
    rig = beside("a")
    feed(rig, arrive("1", "a"))
    assert feed(rig, Use("c", SwapCause.USER)) == [BeginSwap("c", ("a",), SwapCause.USER)]


def test_batch_waits_for_those_who_talk_and_not_for_ever() -> None:
    """It is behind them in the line, does not interrupt their engine, and goes first after the longest wait."""
    rig = beside("a")
    rig.now = 100  # the dwell is over
    feed(rig, arrive("1", "a"))
    assert feed(rig, Arrive("2", "c", batch=True)) == []
    assert rig.scheduler.due == 1000
    rig.now = 990
    assert feed(rig, Leave("1"), arrive("3", "a")) == [Grant("3", "a")]
    rig.now = 1000
    assert feed(rig, Tick(), arrive("4", "a")) == [BeginSwap("c", ("a",), REQUEST)]
    assert feed(rig, Leave("3")) == [Evict("c", ("a",))]


def test_batch_does_not_wait_for_batch() -> None:
    """Nobody talks to the engine that it interrupts."""
    rig = beside("a")
    rig.now = 100
    feed(rig, Arrive("1", "a", batch=True))
    assert feed(rig, Arrive("2", "c", batch=True)) == [BeginSwap("c", ("a",), REQUEST)]


def test_interactive_requests_are_before_batch_in_the_line() -> None:
    """Whatever loads first, the next swap is theirs."""
    rig = beside()
    feed(rig, arrive("1", "a"), Arrive("2", "c", batch=True), arrive("3", "b"))
    effects = rig.handle(SwapDone("a"))
    assert [e for e in effects if isinstance(e, BeginSwap)] == [BeginSwap("b", (), REQUEST)]

"""The mirror: the feed folded, histories, staleness, and the daemon's clock."""

from typing import Any

import pytest

from sparkdash.domain.event import Event, Level, Notice
from sparkdash.domain.history import RecentFigures, RecentSeries
from sparkdash.domain.metric import Metric
from sparkdash.tui.history import KEPT, MEMORY_STEP_S, STEP_S, BucketRing, FigureHistory
from sparkdash.tui.mirror import SAID_S, ConnectionState, Disconnected, Mirror, RecordedPast


@pytest.fixture
def now(box: Any) -> list[float]:
    return [box.now]


@pytest.fixture
def mirror(now: list[float]) -> Mirror:
    return Mirror(lambda: now[0])


def test_a_missing_event_asks_for_a_snapshot(mirror: Mirror, box: Any) -> None:
    assert mirror.fold(Event(seq=1, at=box.now, fact=box.tick(box.now))) is False, "nothing came before it"
    mirror.fold(box.snapshot())
    before = mirror.view().snapshot
    assert mirror.fold(Event(seq=150, at=box.now, fact=Notice(level=Level.INFO, code="x", text="x"))) is False
    assert mirror.view().snapshot is before


def test_a_lost_link_is_a_state_with_its_time(mirror: Mirror, box: Any, now: list[float]) -> None:
    """Known figures stay, and are old; the next item says that the link is back."""
    mirror.fold(box.snapshot())
    now[0] += 2
    mirror.fold(Disconnected())
    now[0] += 5
    view = mirror.view()
    assert (view.connection, view.here - view.connection_since, view.sample_age_s) == (ConnectionState.LOST, 5.0, 7.0)
    mirror.fold(Event(seq=101, at=now[0], fact=box.tick(now[0])))
    assert (mirror.view().connection, mirror.view().sample_age_s) == (ConnectionState.LIVE, None)


def test_a_sample_is_stale_after_three_seconds(mirror: Mirror, box: Any, now: list[float]) -> None:
    mirror.fold(box.snapshot())
    now[0] += 3.0
    assert mirror.view().sample_age_s is None
    now[0] += 1.0
    assert mirror.view().sample_age_s == 4.0
    assert mirror.view().engine_age_s(box.gpt) == 4.0


def test_a_daemon_with_another_clock_is_not_stale(mirror: Mirror, box: Any) -> None:
    ahead = 3600.0
    mirror.fold(box.snapshot())
    mirror.fold(Event(seq=101, at=box.now + ahead, fact=box.tick(box.now + ahead)))
    view = mirror.view()
    assert (view.now - view.here, view.sample_age_s) == (ahead, None)


def test_an_answer_goes_after_a_few_seconds(mirror: Mirror, now: list[float]) -> None:
    mirror.say("copied")
    assert mirror.view().feedback is not None
    now[0] += SAID_S
    assert mirror.view().feedback is None


def test_bars_stand_still_once_the_next_one_began() -> None:
    """A bucket is drawn by the extreme that lies farther from the one before; without a measurement it is None."""
    ring = BucketRing()
    for at, value in ((100.0, 10.0), (101.0, 20.0), (106.0, 30.0)):
        ring.add(at, value)
    assert ring.last(4, 106.5) == [20.0, None, None, 30.0]
    assert ring.last(4, 108.5) == [None, None, 30.0, None]


def test_a_ring_forgets_the_oldest() -> None:
    ring = BucketRing()
    for i in range(KEPT + 10):
        ring.add(i * STEP_S, 1.0)
    assert sum(value is not None for value in ring.last(KEPT + 10, (KEPT + 9) * STEP_S)) == KEPT


def test_a_silent_engine_adds_nothing_to_its_history(mirror: Mirror, box: Any) -> None:
    mirror.fold(box.snapshot())
    mirror.fold(Event(seq=101, at=box.now + 4, fact=box.tick(box.now)))
    bars = mirror.view().history.last(box.gpt, Metric.DECODE, 4, box.now + 4)
    assert [value is None for value in bars] == [True, False, True, True]


def recorded(box: Any, profile: str, **figures: tuple[float | None, ...]) -> RecentFigures:
    length = max(map(len, figures.values()))
    return RecentFigures(
        begin=(box.now // STEP_S - length + 1) * STEP_S,
        step_s=STEP_S,
        series=tuple(
            RecentSeries(figure=name, profile=profile, node="local", mean=means) for name, means in figures.items()
        ),
    )


def test_recorded_figures_stand_where_none_were_seen(box: Any) -> None:
    """A bucket that the dashboard saw itself is its own; gaps stay gaps; unknown figures are ignored."""
    history, name = FigureHistory(), next(iter(box.tick(box.now).sample.engines))
    history.add(box.tick(box.now).sample)
    own = history.last(name, Metric.DECODE, 1, box.now)[0]
    history.recall(recorded(box, name, decode_tok_s=(10.0, None, 30.0, 99.0), invented=(1.0,)))
    history.recall(recorded(box, "", decode_tok_s=(7.0,)))
    assert history.last(name, Metric.DECODE, 5, box.now) == [None, 10.0, None, 30.0, own]


def test_recorded_memory_stands_before_the_one_that_was_seen(box: Any) -> None:
    """With the engines' parts; what is not recorded is as it is now."""
    memory = box.tick(box.now).sample.memory
    history = FigureHistory()
    begin = (box.now // MEMORY_STEP_S - 2) * MEMORY_STEP_S
    told = [
        RecentSeries(figure=figure, profile=profile, node="local", mean=(float(value), None))
        for figure, profile, value in (("memory_available_bytes", "", 2**35), ("memory_bytes", "a", 2**34))
    ]
    history.recall_memory(RecentFigures(begin=begin, step_s=MEMORY_STEP_S, series=tuple(told)), memory)
    first, second, third = history.memory(3, box.now)
    assert first is not None
    assert (first.available, first.engines, first.total) == (2**35, {"a": 2**34}, memory.total)
    assert (second, third) == (None, None)


async def test_the_first_frame_has_the_minutes_before_the_dashboard(stage: Any, box: Any, daemon: Any) -> None:
    """Asked for with the first snapshot; a daemon that does not know them costs nothing."""
    snapshot = box.snapshot()
    name = next(iter(snapshot.sample.engines))
    daemon.past = RecordedPast(
        recorded(box, name, decode_tok_s=(5.0,) * 40), RecentFigures(begin=box.now, step_s=MEMORY_STEP_S)
    )
    async with stage(snapshot) as screen:
        await screen.settle()
        known = screen.app.view.history.last(name, Metric.DECODE, 30, box.now)
        assert known[:-1] == [5.0] * 29

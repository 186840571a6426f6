"""A dashboard that begins now shows the minutes before it."""

from __future__ import annotations

from typing import Any

from sparkdash.domain.history import RecentFigures, RecentSeries
from sparkdash.domain.metric import Metric
from sparkdash.tui.history import MEMORY_STEP_S, STEP_S, FigureHistory
from sparkdash.tui.mirror import RecordedPast


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


async def test_the_first_frame_has_the_minutes_before_the_dashboard(stage: Any, box: Any, link: Any) -> None:
    """Asked for with the first snapshot; a daemon that does not know them costs nothing."""
    snapshot = box.snapshot()
    name = next(iter(snapshot.sample.engines))
    link.past = RecordedPast(
        recorded(box, name, decode_tok_s=(5.0,) * 40), RecentFigures(begin=box.now, step_s=MEMORY_STEP_S)
    )
    async with stage(snapshot) as screen:
        await screen.settle()
        known = screen.app.view.history.last(name, Metric.DECODE, 30, box.now)
        assert known[:-1] == [5.0] * 29

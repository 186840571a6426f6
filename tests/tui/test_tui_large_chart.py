"""The keys of the large figure: each or all, the window of its chart, and the same chart in the history."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.history import Series
from sparkdash.domain.metric import Metric
from sparkdash.domain.state import Figures
from sparkdash.tui.choices import HOUR_S, HeroChoice, farthest
from sparkdash.tui.history import BucketRing


async def test_e_makes_the_rate_of_each_request_large_and_e_again_that_of_all(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(120, 40)) as on:
        assert "each 28.9 tok/s" in on.text
        await on.press("e")
        assert "total 57.9 tok/s" in on.text
        assert "each, tok/s" in on.text
        await on.press("e")
        assert "each 28.9 tok/s" in on.text


async def test_brackets_choose_the_window_of_the_large_chart(stage: Any, box: Any) -> None:
    """The axis below says what it shows; the last window is a day, the first the live chart."""
    async with stage(box.snapshot(), size=(120, 40)) as on:
        await on.press("right_square_bracket")
        assert "-45m" in on.text
        await on.press("right_square_bracket", "right_square_bracket")
        assert "-18h" in on.text
        await on.press("left_square_bracket", "left_square_bracket", "left_square_bracket")
        assert "-2m" in on.text


@pytest.mark.parametrize(("keys", "title"), [(("h",), "decode, total"), (("e", "h"), "decode, each")])
async def test_h_opens_the_history_with_the_large_chart(
    stage: Any, box: Any, keys: tuple[str, ...], title: str
) -> None:
    async with stage(box.snapshot(), size=(120, 40)) as on:
        await on.press(*keys)
        await on.settle()
        assert f"{box.gpt} · {title}" in on.lines[1]


def hour(values: dict[int, float]) -> Series:
    """Decode rates of an hour in buckets of ten seconds; the key is the bucket's number."""
    each = [values.get(place) for place in range(360)]
    return Series(
        figure=Metric.DECODE.value, unit="tok/s", profile="a", node="", since=0.0, until=HOUR_S, step_s=10.0,
        start=tuple(10.0 * place for place in range(360)), min=tuple(each), mean=tuple(each), max=tuple(each),
        count=tuple(0 if one is None else 1 for one in each),
    )  # fmt: skip


def test_a_column_of_a_window_shows_its_highest_value_and_a_gap_stays_a_gap() -> None:
    """A spike of ten seconds is seen in an hour of 60 columns."""
    choice = HeroChoice(window_s=HOUR_S, series=hour({0: 5.0, 1: 90.0, 2: 5.0, 359: 7.0}))
    columns = choice.columns("a", 60, HOUR_S)
    assert (columns[0], columns[1], columns[59]) == (90.0, None, 7.0)
    assert set(choice.columns("b", 60, HOUR_S)) == {None}


def test_a_series_is_read_again_once_a_bucket_is_due_and_for_another_engine() -> None:
    choice = HeroChoice(window_s=HOUR_S, series=hour({}))
    assert [choice.wants("a", HOUR_S + 9), choice.wants("a", HOUR_S + 11), choice.wants("b", 0.0)] == [
        False,
        True,
        True,
    ]
    assert not HeroChoice().wants("a", 0.0)


def test_a_spike_and_a_gap_of_one_second_survive_in_the_live_chart() -> None:
    """A bucket of two seconds is drawn by the value that lies farther from the bucket before."""
    ring = BucketRing()
    for at, value in enumerate([50.0, 50.0, 50.0, 90.0, 50.0, 50.0, 0.0, 50.0]):
        ring.add(float(at), value)
    assert ring.last(4, 7.0) == [50.0, 90.0, 50.0, 0.0]
    assert farthest(None, 1.0, 2.0) == 2.0


async def test_the_value_of_a_line_is_whole_at_rates_above_a_thousand(stage: Any, box: Any) -> None:
    fast = Figures(requests=2, rates=(1220.0, 1220.0), best=1488.0)
    one = {"r": box.request("r")}
    async with stage(box.snapshot(figures={box.gpt: fast}, requests=one), size=(120, 40)) as on:
        assert "median 1220 " in on.text

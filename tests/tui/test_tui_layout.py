"""The rows of the dashboard at every size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.tui.layout import (
    BARS,
    Arrangement,
    Contents,
    chart_height,
    has_two_columns,
    heights,
    is_compact,
)

CONTENTS = st.builds(
    Contents,
    beside=st.integers(0, 12),
    memory=st.integers(4, 8),
    gpu=st.integers(0, 2),
    charted=st.booleans(),
)


SHOWN = st.sampled_from(Arrangement)


@given(columns=st.integers(40, 400), rows=st.integers(22, 120), wanted=CONTENTS, shown=SHOWN)
def test_the_heights_add_up_to_the_terminal(columns: int, rows: int, wanted: Contents, shown: Arrangement) -> None:
    got = heights(columns, rows, wanted, shown)
    assert min(got) >= 0
    left = got.card + got.beside + got.memory_chart + got.power + got.swaps + wanted.memory + wanted.gpu
    if has_two_columns(columns, rows, shown):
        assert left == rows - BARS
        assert got.requests + got.today + got.weeks + got.log == rows - BARS
    else:
        assert left + got.requests == rows - BARS or got.card == 1
        assert got.today == got.weeks == got.power == got.log == 0


@given(columns=st.integers(60, 400), rows=st.integers(24, 120), wanted=CONTENTS, shown=SHOWN)
def test_a_load_beside_takes_its_rows_from_the_card_alone(
    columns: int, rows: int, wanted: Contents, shown: Arrangement
) -> None:
    """The panels below keep their height, and their place by at most the rounding of one row."""
    before = heights(columns, rows, wanted, shown)
    after = heights(columns, rows, wanted._replace(beside=wanted.beside + 1), shown)
    below = ("memory_chart", "power", "swaps", "today", "weeks", "log")
    assert [getattr(after, name) for name in below] == [getattr(before, name) for name in below]
    assert abs(after.requests - before.requests) <= 1


@pytest.mark.parametrize(("columns", "rows"), [(200, 60), (300, 80)])
def test_a_wide_terminal_has_every_panel(columns: int, rows: int) -> None:
    got = heights(columns, rows, Contents(beside=3, memory=5, gpu=1))
    assert min(got.today, got.weeks) >= 7
    assert min(got.card, got.requests, got.log, got.swaps, got.power) >= 6


@given(columns=st.integers(60, 400), rows=st.integers(22, 120), wanted=CONTENTS)
def test_hero_shows_the_figure_and_rows_shows_the_requests(columns: int, rows: int, wanted: Contents) -> None:
    every, hero, few = (heights(columns, rows, wanted, shown) for shown in Arrangement)
    assert (hero.requests, hero.memory_chart) == (0, 0)
    assert hero.card >= every.card >= min(few.card, every.card)
    assert few.requests + few.swaps >= every.requests


@pytest.mark.parametrize("shown", Arrangement)
@pytest.mark.parametrize("rows", [10, 15, 21])
def test_a_low_terminal_has_no_frames_and_all_its_rows(rows: int, shown: Arrangement) -> None:
    wanted = Contents(beside=1, memory=1, gpu=0)
    got = heights(60, rows, wanted, shown)
    assert is_compact(rows)
    assert got.card + got.beside + got.requests + wanted.memory == rows - 2


def test_the_chart_of_the_history_leaves_no_void_below_a_short_table() -> None:
    """A long table keeps a part of the screen, a low terminal its least chart."""
    assert chart_height(80, 5) == 57
    assert chart_height(60, 30) == 24
    assert chart_height(24, 40) == 14
    assert chart_height(15, 5) == 9

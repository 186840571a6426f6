"""The rows of the dashboard at every size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.tui.layout import BARS, TWO_COLUMNS_FROM, Contents, heights, is_compact, left_cells

CONTENTS = st.builds(
    Contents,
    beside=st.integers(0, 12),
    memory=st.integers(4, 8),
    gpu=st.integers(0, 2),
    compare=st.integers(0, 15),
    charted=st.booleans(),
)


@given(columns=st.integers(40, 400), rows=st.integers(22, 120), wanted=CONTENTS)
def test_the_heights_add_up_to_the_terminal(columns: int, rows: int, wanted: Contents) -> None:
    """So that no frame can be cut; no height is negative."""
    got = heights(columns, rows, wanted)
    assert min(got) >= 0
    left = got.card + got.beside + got.memory_chart + got.compare + got.swaps + wanted.memory + wanted.gpu
    if columns >= TWO_COLUMNS_FROM:
        assert left == rows - BARS
        assert got.requests + got.log == rows - BARS
    else:
        assert left + got.requests == rows - BARS or got.card == 1


@given(columns=st.integers(60, 400), rows=st.integers(24, 120), wanted=CONTENTS)
def test_a_load_beside_takes_its_rows_from_the_card_alone(columns: int, rows: int, wanted: Contents) -> None:
    """The panels below keep their height, and their place by at most the rounding of one row."""
    before, after = heights(columns, rows, wanted), heights(columns, rows, wanted._replace(beside=wanted.beside + 1))
    assert after.memory_chart == before.memory_chart
    assert abs(after.requests - before.requests) <= 1


@pytest.mark.parametrize("rows", [10, 15, 21])
def test_a_low_terminal_has_no_frames_and_all_its_rows(rows: int) -> None:
    """Title and footer are the only other rows."""
    wanted = Contents(beside=1, memory=1, gpu=0, compare=0)
    got = heights(60, rows, wanted)
    assert is_compact(rows)
    assert got.card + got.beside + got.requests + wanted.memory == rows - 2


def test_the_right_column_keeps_room_for_the_requests_figures() -> None:
    """From the first width with two columns on."""
    assert all(columns - left_cells(columns) >= 88 for columns in range(TWO_COLUMNS_FROM, 400))

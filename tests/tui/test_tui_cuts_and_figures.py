"""Names are cut so that they differ, figures are shortened and never cut, and what is no number is unknown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sparkdash.domain.metric import Metric
from sparkdash.tui.mirror import without_odd_figures
from sparkdash.tui.text import shorten_apart
from sparkdash.units import fitted

FAMILY = frozenset({"qwen3-30b-nvfp4/eagle3-long", "qwen3-30b-nvfp4/eagle3-short", "qwen3-30b-nvfp4/plain-long"})
NAN, INF = float("nan"), float("inf")


def test_names_that_begin_and_end_alike_are_cut_apart() -> None:
    """Where the middle would make two of them the same, the cut moves; else the part that differs is shown."""
    assert shorten_apart("gpt-oss-120b", 20, FAMILY) == "gpt-oss-120b"
    assert len({shorten_apart(name, 14, FAMILY) for name in FAMILY}) == 3
    teams = frozenset(f"agents-of-team-{i}-in-the-lab" for i in range(9))
    assert shorten_apart("agents-of-team-4-in-the-lab", 14, teams) == "a…4-in-the-lab"
    teams = frozenset(f"agents-of-team-{i}-in-the-laboratory" for i in range(9))
    assert shorten_apart("agents-of-team-4-in-the-laboratory", 14, teams) == "ag…of-team-4-…"


def test_where_no_cut_is_enough_the_middle_it_is() -> None:
    assert shorten_apart("agents-4", 3, frozenset({"agents-5"})) == "a…4"
    assert shorten_apart("aaaa4aaaa", 3, frozenset({"aaaa5aaaa"})) == "a…a"


@given(st.text("ab端-1", max_size=20), st.integers(0, 24), st.sets(st.text("ab端-1", max_size=20), max_size=6))
def test_a_cut_name_is_never_wider_than_its_place(name: str, width: int, others: set[str]) -> None:
    assert cell_len(shorten_apart(name, width, frozenset(others))) <= width


@pytest.mark.parametrize(
    ("value", "cells", "digits", "text"),
    [
        (None, 6, 1, "-"), (57.94, 6, 1, "57.9"), (12345.6, 6, 1, "12346"), (999_999, 6, 0, "999999"),
        (12_345_678, 6, 0, "12.3M"), (1234.5, 4, 1, "1234"), (12_345, 4, 0, "12k"), (123_456, 4, 0, "123k"),
        (9_999_999_999, 5, 0, "10.0G"), (-12_345.0, 5, 0, "-12k"),
    ],
)  # fmt: skip
def test_a_figure_that_is_too_long_is_written_shorter(value: float | None, cells: int, digits: int, text: str) -> None:
    assert fitted(value, cells, digits) == text


def test_a_figure_that_is_no_number_is_unknown(box: Any) -> None:
    """What cannot be without it goes; what has none stays the same object."""
    whole = box.sample()
    assert without_odd_figures(whole) is whole
    odd = whole.engines[box.gpt].replace(values={Metric.DECODE: NAN, Metric.KV_USED: 0.5}, acceptance_at=(0.5, INF))
    found = without_odd_figures(whole.replace(engines={box.gpt: odd}, gpu=whole.gpu.replace(power_w=INF)))
    assert found is not None
    assert found.gpu.power_w is None
    assert found.gpu.utilization == whole.gpu.utilization
    assert found.engines[box.gpt].values == {Metric.KV_USED: 0.5}
    assert found.engines[box.gpt].acceptance_at is None
    assert without_odd_figures(whole.replace(at=NAN)) is None


async def test_a_sample_that_is_no_sample_leaves_the_last_one(stage: Any, box: Any) -> None:
    async with stage(box.snapshot()) as on:
        await on.happen(box.tick(NAN))
        assert "57.9 tok/s" in on.rows[0]
        await on.happen(box.tick(box.now + 1, decode=NAN))
        assert "57.9 tok/s" not in on.rows[0]
        assert "╺━╸" in on.text

"""Names with numbers, in the order in which people count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.units import natural


@pytest.mark.parametrize(
    "names",
    [
        ["model-1", "model-2", "model-10"],
        ["qwen3.5-9b", "qwen3.5-27b", "qwen3.5-122b", "qwen3.10-9b"],
        ["a", "a/2", "a/10", "b"],
        ["1", "a", "Ä"],
        ["Alpha", "beta", "Gamma"],
        ["a-01", "a-1", "a-02"],
        ["x" + "9" * 5000, "x1" + "0" * 5000],
    ],
)
def test_names_with_numbers_count(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(backwards, key=natural) == names


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_names_have_one_order(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(names, key=natural) == sorted(backwards, key=natural)

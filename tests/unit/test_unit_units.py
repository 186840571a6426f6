"""Numbers as people read them, and names in the order in which people count."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash import units
from sparkdash.domain.phrases import by_family
from sparkdash.units import natural


def memory(count: float) -> str:
    return units.gib(count * units.GIB, 0)


def launches(count: int) -> str:
    return units.counted(count, "launch")


@pytest.mark.parametrize(
    ("write", "texts"),
    [
        (units.duration, {None: "-", 0.44: "0.4s", 12.9: "12s", 220: "3m40s", 8040: "2h14m", 442800: "5d03h"}),
        (units.tokens, {None: "-", 0: "0", 950: "950", 12_600: "12.6k", 1_400_000: "1.4M"}),
        (units.size, {None: "-", 0: "0 KiB", 1: "1 KiB", 5000: "5 KiB", 3_000_000: "2.9 MiB", 60_000_000: "57 MiB"}),
        (units.size, {2 * units.GIB: "2.0 GiB", 62 * units.GIB: "62 GiB"}),
        (launches, {0: "0 launches", 1: "1 launch", 6: "6 launches"}),
        (memory, {77.4: "77 GiB", 4.0: "4.0 GiB", 0.5: "0.5 GiB", 0.02: "0.02 GiB", 0: "0 GiB"}),
    ],
    ids=[
        "duration",
        "tokens",
        "size",
        "large size",
        "counted",
        "memory, which is never shown as none where it is some",
    ],
)
def test_figures_are_said_as_people_say_them(write: Any, texts: dict[Any, str]) -> None:
    assert {value: write(value) for value in texts} == texts


def test_unknown_is_never_zero() -> None:
    assert [units.number(None), units.percent(None), units.gib(None)] == ["-", "-", "-"]
    assert [units.number(0.0, 1), units.percent(0.0), units.gib(0)] == ["0.0", "0 %", "0.0 GiB"]


@pytest.mark.parametrize("names", [
    ["model-1", "model-2", "model-10"], ["qwen3.5-9b", "qwen3.5-27b", "qwen3.5-122b", "qwen3.10-9b"],
    ["a", "a/2", "a/10", "b"], ["1", "a", "Ä"], ["Alpha", "beta", "Gamma"], ["a-01", "a-1", "a-02"],
    ["x" + "9" * 5000, "x1" + "0" * 5000],
])  # fmt: skip
def test_names_with_numbers_count(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(backwards, key=natural) == names


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_names_have_one_order(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(names, key=natural) == sorted(backwards, key=natural)


def profile(name: str, cannot_run: str | None = None) -> Any:
    return SimpleNamespace(name=name, cannot_run=cannot_run)


def test_families_that_cannot_run_come_last() -> None:
    """In natural order, the base before its variants; a family with one member that can run keeps its place."""
    given = [
        profile("a", "no image"),
        profile("a/x", "no image"),
        profile("m-10"),
        profile("m-2/z"),
        profile("m-2"),
        profile("b", "no image"),
        profile("b/y"),
    ]
    assert [one.name for one in by_family(given)] == ["b", "b/y", "m-2", "m-2/z", "m-10", "a", "a/x"]

"""Numbers as people read them."""

import pytest

from sparkdash import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.44, "0.4s"), (12.9, "12s"), (220, "3m40s"), (8040, "2h14m"), (442800, "5d03h")],
)
def test_durations_are_said_as_people_say_them(seconds: float | None, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(None, "-"), (0, "0"), (950, "950"), (12_600, "12.6k"), (1_400_000, "1.4M")]
)
def test_token_counts_are_short(count: float | None, text: str) -> None:
    assert units.tokens(count) == text


def test_unknown_is_never_zero() -> None:
    assert [units.number(None), units.percent(None), units.gib(None)] == ["-", "-", "-"]
    assert [units.number(0.0, 1), units.percent(0.0), units.gib(0)] == ["0.0", "0 %", "0.0 GiB"]


@pytest.mark.parametrize(
    ("count", "digits", "text"),
    [
        (77.4, 0, "77 GiB"),
        (4.0, 0, "4.0 GiB"),
        (0.5, 0, "0.5 GiB"),
        (0.5, 1, "0.5 GiB"),
        (0.02, 0, "0.02 GiB"),
        (0, 0, "0 GiB"),
    ],
)
def test_memory_that_is_something_is_never_shown_as_none(count: float, digits: int, text: str) -> None:
    assert units.gib(count * units.GIB, digits) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"), (0, "0 KiB"), (1, "1 KiB"), (5000, "5 KiB"), (3_000_000, "2.9 MiB"),
        (60_000_000, "57 MiB"), (2 * units.GIB, "2.0 GiB"), (62 * units.GIB, "62 GiB"),
    ],
)  # fmt: skip
def test_sizes_are_short(count: int | None, text: str) -> None:
    assert units.size(count) == text

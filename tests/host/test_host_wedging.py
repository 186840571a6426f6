"""Signs that a box is about to stand still: published courses of loads, and healthy ones that look alike."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.host.memory.wedge_signs import HALF_S, SILENT_S, Sign, Signs, Vitals, Wedge
from sparkdash.units import GIB

COURSES = sorted((Path(__file__).parent.parent / "data/wedges").glob("*.txt"))
LOW = 12 * GIB
"""The floor under which a Spark's guard warns."""


def vitals(row: list[float]) -> Vitals:
    at, available, free, scanned, reclaimed, stalls, read, faults, lines, said = row
    return Vitals(
        at=at,
        available=int(available * GIB),
        free=int(free * GIB),
        scanned=int(scanned),
        reclaimed=int(reclaimed),
        stalls=int(stalls),
        read_bytes=int(read * GIB),
        faults=int(faults),
        driver_lines=int(lines),
        said_at=said,
    )


def course(file: Path) -> tuple[list[str], list[Vitals]]:
    """Looks half a second apart, and the sign that must be seen."""
    lines = file.read_text().splitlines()
    sign = next(line for line in lines if line.startswith("# sign: ")).split()[2:]
    rows = [[float(word) for word in line.split()] for line in lines if not line.startswith("#")]
    looks = []
    for before, after in pairwise(rows):
        steps = round((after[0] - before[0]) * 2)
        for step in range(steps):
            looks.append(vitals([b + (a - b) * step / steps for b, a in zip(before, after, strict=True)]))
    return sign, [*looks, vitals(rows[-1])]


def first(looks: list[Vitals]) -> tuple[float, Wedge] | None:
    signs = Signs()
    return next(((look.at, wedge) for look in looks if (wedge := signs.see(look, LOW))), None)


@pytest.mark.parametrize("file", COURSES, ids=lambda file: file.stem)
def test_a_published_course_is_judged_as_it_ended(file: Path) -> None:
    """A wedge is seen in time, by its own sign; a load that went well is left alone."""
    (sign, *when), looks = course(file)
    found = first(looks)
    if sign == "none":
        assert found is None
        return
    assert found is not None
    at, wedge = found
    assert wedge.sign is Sign(sign)
    assert float(when[0]) <= at <= float(when[1])


def test_the_words_have_the_figures() -> None:
    words = {file.stem: found[1].evidence for file in COURSES if (found := first(course(file)[1]))}
    assert words["reclaim-dsv41"] == "the kernel won back one page of 97 in the last 27s"
    assert "10 lines" not in words["driver-vllm56824"]
    assert "the driver was refused memory" in words["driver-vllm56824"]
    assert "for 5m00s nothing was read" in words["livelock-mmap"]


@pytest.mark.parametrize("file", COURSES, ids=lambda file: file.stem)
def test_a_kernel_that_tells_none_of_it_gives_no_sign(file: Path) -> None:
    """Unless the driver's own lines do."""
    _, looks = course(file)
    nothing = {"free": None, "scanned": None, "reclaimed": None, "stalls": None, "read_bytes": None, "faults": None}
    found = first([replace(look, **nothing) for look in looks])
    assert found is None or found[1].sign is Sign.DRIVER


def test_a_load_that_goes_on_writing_lines_is_in_no_livelock() -> None:
    """Nor one whose lines nobody can follow."""
    _, looks = course(next(file for file in COURSES if file.stem == "livelock-mmap"))
    assert first([replace(look, said_at=look.at - 30) for look in looks]) is None
    assert first([replace(look, said_at=None) for look in looks]) is None


def test_what_was_seen_of_an_earlier_load_says_nothing_of_the_next() -> None:
    """The time begins anew, and so do the lines."""
    _, looks = course(next(file for file in COURSES if file.stem == "reclaim-dsv41"))
    signs = Signs()
    until = next(index for index, look in enumerate(looks) if look.at > 600 + 2 * HALF_S - 5)
    assert not any(signs.see(look, LOW) for look in looks[:until])
    signs.reset()
    assert not any(signs.see(look, LOW) for look in looks[until : until + 40])
    counted = Signs()
    counted.see(replace(looks[0], driver_lines=9), LOW)
    assert counted.see(replace(looks[20], driver_lines=1, available=2 * GIB), LOW) is not None


@given(
    st.lists(
        st.tuples(st.floats(0, 120), st.floats(0, 120), st.integers(0, 10**7), st.floats(0.1, 1), st.integers(0, 100)),
        min_size=2,
        max_size=60,
    )
)
def test_no_course_gives_a_sign_where_the_kernel_wins_a_tenth_and_the_load_speaks(
    steps: list[tuple[float, float, int, float, int]],
) -> None:
    """With any memory free or available, however it jumps."""
    signs, scanned, reclaimed, stalls = Signs(), 0, 0, 0
    for number, (available, free, looked, won, waited) in enumerate(steps):
        scanned, reclaimed, stalls = scanned + looked, reclaimed + int(looked * won) + 1, stalls + waited
        at = number * SILENT_S / 10
        look = Vitals(
            at=at, available=int(available * GIB), free=int(free * GIB), scanned=scanned, reclaimed=reclaimed,
            stalls=stalls, read_bytes=0, faults=0, said_at=at,
        )  # fmt: skip
        assert signs.see(look, LOW) is None

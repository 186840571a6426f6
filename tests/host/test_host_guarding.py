"""Decisions of the memory guard from its readings, and the signs that a box is about to stand still."""

from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.memory import Floors, GuardLevel
from sparkdash.host.guard_rules import (
    EVERY_S,
    HOLD,
    KILL,
    KILL_S,
    OK,
    OWED_S,
    QUICK_S,
    REACH_S,
    WARN,
    GuardReading,
    Rules,
)
from sparkdash.host.memory.guard_decisions import FROZEN, Victim, cheapest_victim, choose_floors, rule_floors
from sparkdash.host.memory.wedge_signs import HALF_S, SILENT_S, Sign, Signs, Vitals, Wedge
from sparkdash.settings import Settings
from sparkdash.units import GIB

SPARK = 127_600_748 * 1024
FLOORS = Floors(warn=12 * GIB, hold=8 * GIB, kill=5 * GIB)


class Box:
    """Looks half a second apart."""

    def __init__(self) -> None:
        self.judge = Rules(rule_floors(FLOORS))
        self.at = (i / 2 for i in count())

    def see(self, *gib: float, pressure: float | None = None) -> Any:
        for available in gib:
            look = GuardReading(next(self.at), int(available * GIB), pressure)
            verdict = self.judge.see(look)
            if verdict.kill:
                self.judge.killed(look)
        return verdict


def never() -> int:
    raise AssertionError


def victim(name: str, **facts: Any) -> Victim:
    return Victim(name, name, never, **{"bytes": 40 * GIB, "reload_s": 60.0, **facts})


def test_a_spark_has_the_floors_that_its_owners_report_and_a_small_box_is_not_held_up_by_them() -> None:
    found = choose_floors(Settings(), SPARK)
    assert [found.warn / GIB, found.hold / GIB, found.kill / GIB] == [12, 8, 5]
    assert choose_floors(Settings(), 24 * GIB).level(3 * GIB) is GuardLevel.OK


def test_a_floor_that_the_owner_sets_counts_as_it_is_and_lifts_the_milder_ones() -> None:
    found = choose_floors(Settings(guard_kill_gib=20), 24 * GIB)
    assert (found.warn, found.hold, found.kill) == (20 * GIB, 20 * GIB, 20 * GIB)


LEVELS: dict[str, tuple[float | None, bool, list[tuple[float, int]]]] = {
    "begins under its floor, which belongs to the milder one": (None, False, [(30, OK), (12, OK), (11, WARN)]),
    "grows floor by floor": (None, False, [(7.9, HOLD), (4.9, KILL)]),
    "is left only with a margin, so that a floor is told of once": (
        None,
        False,
        [(7.9, HOLD), (8.1, HOLD), (8.9, WARN)],
    ),
    "is one worse while pressure rises": (0.12, True, [(11, HOLD)]),
    "stays well under pressure alone, as of weights that are read": (0.9, True, [(50, OK)]),
    "is not worse under a steady pressure": (0.02, False, [(11, WARN)] * 20),
}
"""Pressure after a first look at 0.02, whether it presses, and the level of each look at so many GiB."""


@pytest.mark.parametrize("case", LEVELS)
def test_a_level(case: str) -> None:
    pressure, pressed, looks = LEVELS[case]
    box = Box()
    box.see(looks[0][0], pressure=0.02)
    seen = [box.see(gib, pressure=pressure) for gib, _ in looks]
    assert [verdict.level for verdict in seen] == [level for _, level in looks]
    assert seen[0].pressed is pressed


@pytest.mark.parametrize("looks", [
    [(4.9, False), (4.9, True)],  # one look is not enough while memory does not fall
    [(20, False), (2.4, True)],  # under half of the floor it is: at 2 GiB a second there is no time for another
    [(7.0, False), (5.7, True)],  # in 0.5 s it is under the floor; a look and a kill take 0.3 s
    [(7.0, False), (5.9, False)], [(5.2, False), (5.1, False)],
    [(4.5, False), (4.5, True), (4.2, True)],  # memory that goes on falling costs the next one at once
])  # fmt: skip
def test_the_looks_that_kill(looks: list[tuple[float, bool]]) -> None:
    box = Box()
    assert [box.see(gib).kill for gib, _ in looks] == [kills for _, kills in looks]


def test_memory_that_has_not_come_back_in_its_time_costs_the_next_one() -> None:
    box = Box()
    box.see(4.5, 4.5)
    assert [box.see(4.5).kill for _ in range(int(2 * OWED_S) + 2)].count(True) == 1


def test_while_memory_falls_under_the_hold_floor_it_is_looked_at_more_often() -> None:
    assert [Box().see(before, now).again_s for before, now in ((9, 8.5), (7, 7), (7, 6.9))] == [
        EVERY_S,
        EVERY_S,
        QUICK_S,
    ]


@given(st.floats(0.5, 8), st.floats(8, 12), st.floats(0, 1))
def test_memory_that_falls_quickly_is_caught(gib_s: float, start: float, phase: float) -> None:
    """At half as much again as the quickest reported fall above the kill floor, at four times of it above the freeze."""
    assert lowest(gib_s, start, phase) >= (FLOORS.kill if gib_s <= 3 else FROZEN) - 1


def lowest(gib_s: float, start: float, phase: float) -> float:
    """Bytes left when a kill ends a steady fall from `start` GiB that begins `phase` of the way between looks."""
    judge, at, begins = Rules(rule_floors(FLOORS)), 0.0, (1 + phase) * EVERY_S
    while not (verdict := judge.see(GuardReading(at, int((start - gib_s * max(0.0, at - begins)) * GIB)))).kill:
        at += verdict.again_s
    return (start - gib_s * (at + KILL_S - begins)) * GIB


def test_what_memory_loses_until_the_killed_are_dead_costs_nobody_else() -> None:
    """A process that was killed ends what the kernel does for it first."""
    judge = Rules(rule_floors(FLOORS))
    judge.see(GuardReading(0.0, 7 * GIB))
    look = GuardReading(0.5, int(5.7 * GIB))
    assert judge.see(look).kill
    judge.killed(look)
    assert not judge.see(GuardReading(0.7, int(5.2 * GIB))).kill
    assert not judge.see(GuardReading(1.2, int(5.2 * GIB))).kill
    assert judge.see(GuardReading(1.7, int(4.7 * GIB))).kill


def test_whoever_serves_nobody_yet_goes_first() -> None:
    loading = victim("loads", serves=False, pinned=True, reload_s=None, bytes=None)
    assert cheapest_victim([victim("idle"), loading], GIB) is loading
    assert cheapest_victim([], GIB) is None


@pytest.mark.parametrize(("spared", "goes"), [
    ({"pinned": True}, {"in_flight": 3}), ({"in_flight": 1}, {"reload_s": 900.0}),
    ({"reload_s": None}, {"reload_s": 900.0}), ({"reload_s": 61.0}, {"bytes": 20 * GIB}),
    ({"bytes": 20 * GIB}, {"bytes": 60 * GIB}), ({"bytes": 1 * GIB, "reload_s": 2.0}, {"pinned": True}),
])  # fmt: skip
def test_whom_it_costs_least(spared: dict[str, Any], goes: dict[str, Any]) -> None:
    """Enough before too little, not pinned before pinned, idle before busy, soon back before late, big before small."""
    one, other = victim("spared", **spared), victim("goes", **goes)
    assert cheapest_victim([one, other], 3 * GIB) is other
    assert cheapest_victim([other, one], 3 * GIB) is other


@given(st.lists(st.floats(0, 40), min_size=3, max_size=60))
def test_whatever_memory_does_nobody_is_killed_who_need_not_be(gib: list[float]) -> None:
    """Above the floor only for a fall that reaches it at once, above the hold floor never; and two looks in a row under
    it always cost somebody, unless memory is owed from the last time."""
    box, before, owed = Box(), gib[0], False
    for available in gib:
        kill, reach = box.see(available).kill, max(0.0, before - available) / EVERY_S * REACH_S
        assert not kill or (available < 8 and available - reach < 5 + 1e-6)
        assert kill or owed or not (available < 5 and before < 5) or available is gib[0]
        owed = kill or (owed and box.judge.level >= HOLD)
        before = available


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
    _, looks = course(file)
    nothing = {"free": None, "scanned": None, "reclaimed": None, "stalls": None, "read_bytes": None, "faults": None}
    found = first([replace(look, **nothing) for look in looks])
    assert found is None or found[1].sign is Sign.DRIVER


def test_a_load_that_goes_on_writing_lines_is_in_no_livelock() -> None:
    _, looks = course(next(file for file in COURSES if file.stem == "livelock-mmap"))
    assert first([replace(look, said_at=look.at - 30) for look in looks]) is None
    assert first([replace(look, said_at=None) for look in looks]) is None


def test_what_was_seen_of_an_earlier_load_says_nothing_of_the_next() -> None:
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
    signs, scanned, reclaimed, stalls = Signs(), 0, 0, 0
    for number, (available, free, looked, won, waited) in enumerate(steps):
        scanned, reclaimed, stalls = scanned + looked, reclaimed + int(looked * won) + 1, stalls + waited
        at = number * SILENT_S / 10
        look = Vitals(
            at=at, available=int(available * GIB), free=int(free * GIB), scanned=scanned, reclaimed=reclaimed,
            stalls=stalls, read_bytes=0, faults=0, said_at=at,
        )  # fmt: skip
        assert signs.see(look, LOW) is None

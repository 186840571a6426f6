"""Decisions of the memory guard from its readings."""

from __future__ import annotations

from itertools import count
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


def test_a_spark_has_the_floors_that_its_owners_report() -> None:
    found = choose_floors(Settings(), SPARK)
    assert [found.warn / GIB, found.hold / GIB, found.kill / GIB] == [12, 8, 5]


def test_a_small_box_is_not_held_up_by_a_sparks_floors() -> None:
    """On 24 GiB with 3 GiB available nothing is short."""
    assert choose_floors(Settings(), 24 * GIB).level(3 * GIB) is GuardLevel.OK


def test_a_floor_that_the_owner_sets_counts_as_it_is_and_lifts_the_milder_ones() -> None:
    """Killing under 20 GiB without holding loads back there would make no sense."""
    found = choose_floors(Settings(guard_kill_gib=20), 24 * GIB)
    assert (found.warn, found.hold, found.kill) == (20 * GIB, 20 * GIB, 20 * GIB)


@pytest.mark.parametrize(("gib", "level"), [(30, OK), (12, OK), (11, WARN), (7.9, HOLD), (4.9, KILL)])
def test_a_level_begins_under_its_floor(gib: float, level: int) -> None:
    """The floor itself still belongs to the milder one."""
    assert Box().see(gib).level == level


def test_one_look_under_the_floor_is_not_enough_to_kill_while_memory_does_not_fall() -> None:
    box = Box()
    assert not box.see(4.9).kill
    assert box.see(4.9).kill


@pytest.mark.parametrize(("before", "now", "kill"), [(7.0, 5.7, True), (7.0, 5.9, False), (5.2, 5.1, False)])
def test_a_fall_that_reaches_the_floor_too_soon_is_not_waited_for(before: float, now: float, kill: bool) -> None:
    """2.6 GiB a second and 0.7 GiB to go: the next look is 0.1 s away, and a kill takes hold 0.2 s after it."""
    assert Box().see(before, now).kill is kill


def test_while_memory_falls_under_the_hold_floor_it_is_looked_at_more_often() -> None:
    assert [Box().see(before, now).again_s for before, now in ((9, 8.5), (7, 7), (7, 6.9))] == [
        EVERY_S,
        EVERY_S,
        QUICK_S,
    ]


@given(st.floats(0.5, 3), st.floats(8, 12), st.floats(0, 1))
def test_memory_that_loses_3_gib_a_second_never_comes_under_the_kill_floor(
    gib_s: float, start: float, phase: float
) -> None:
    """Half as much again as the quickest fall that was reported; wherever above the hold floor it begins."""
    assert lowest(gib_s, start, phase) >= FLOORS.kill - 1


@given(st.floats(3, 8), st.floats(8, 12), st.floats(0, 1))
def test_memory_that_loses_8_gib_a_second_never_comes_to_where_boxes_freeze(
    gib_s: float, start: float, phase: float
) -> None:
    """Four times the quickest that was reported."""
    assert lowest(gib_s, start, phase) >= FROZEN - 1


def lowest(gib_s: float, start: float, phase: float) -> float:
    """Bytes left when a kill ends a steady fall from `start` GiB that begins `phase` of the way between looks."""
    judge, at, begins = Rules(rule_floors(FLOORS)), 0.0, (1 + phase) * EVERY_S
    while not (verdict := judge.see(GuardReading(at, int((start - gib_s * max(0.0, at - begins)) * GIB)))).kill:
        at += verdict.again_s
    return (start - gib_s * (at + KILL_S - begins)) * GIB


def test_under_half_of_the_floor_one_look_is_enough() -> None:
    """At 2 GiB a second there is no time for a second look."""
    assert Box().see(20, 2.4).kill


def test_a_level_is_left_only_with_a_margin() -> None:
    """Memory that hovers about a floor is told of once."""
    box = Box()
    assert box.see(7.9).level == HOLD
    assert box.see(8.1).level == HOLD
    assert box.see(8.9).level == WARN


def test_after_that_time_the_next_one_goes() -> None:
    """Memory that has not come back by then does not come."""
    box = Box()
    box.see(4.5, 4.5)
    kills = [box.see(4.5).kill for _ in range(int(2 * OWED_S) + 2)]
    assert kills.count(True) == 1


def test_memory_that_goes_on_falling_after_a_kill_costs_the_next_one_at_once() -> None:
    box = Box()
    assert box.see(4.5, 4.5).kill
    assert box.see(4.2).kill


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


def test_rising_pressure_makes_each_level_one_worse() -> None:
    """Processes stand still for memory already, and it is getting worse."""
    box = Box()
    assert box.see(11, pressure=0.02).level == WARN
    pressed = box.see(11, pressure=0.12)
    assert (pressed.level, pressed.pressed) == (HOLD, True)


def test_pressure_alone_is_no_shortage() -> None:
    """Reading weights through a full page cache raises it while memory is plenty."""
    box = Box()
    box.see(50, pressure=0.0)
    assert box.see(50, pressure=0.9).level == OK


def test_steady_pressure_adds_nothing() -> None:
    box = Box()
    assert box.see(*[11] * 20, pressure=0.3).level == WARN


def test_whoever_serves_nobody_yet_goes_first() -> None:
    """The one that loads is the one that takes memory, however dear."""
    loading = victim("loads", serves=False, pinned=True, reload_s=None, bytes=None)
    assert cheapest_victim([victim("idle"), loading], GIB) is loading


@pytest.mark.parametrize(
    ("spared", "goes"),
    [
        ({"pinned": True}, {"in_flight": 3}),
        ({"in_flight": 1}, {"reload_s": 900.0}),
        ({"reload_s": None}, {"reload_s": 900.0}),
        ({"reload_s": 61.0}, {"bytes": 20 * GIB}),
        ({"bytes": 20 * GIB}, {"bytes": 60 * GIB}),
        ({"bytes": 1 * GIB, "reload_s": 2.0}, {"pinned": True}),
    ],
)
def test_whom_it_costs_least(spared: dict[str, Any], goes: dict[str, Any]) -> None:
    """Enough before too little, not pinned before pinned, idle before busy, soon back before late, big before small."""
    one, other = victim("spared", **spared), victim("goes", **goes)
    assert cheapest_victim([one, other], 3 * GIB) is other
    assert cheapest_victim([other, one], 3 * GIB) is other


def test_nobody_there_nobody_goes() -> None:
    assert cheapest_victim([], GIB) is None


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

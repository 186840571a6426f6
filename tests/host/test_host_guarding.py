"""When memory is too short, and who goes: pure decisions."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.guard import Floors, GuardLevel
from sparkdash.host.guarding import OWED_S, Judge, Look, Victim, cheapest, floors
from sparkdash.settings import Settings
from sparkdash.units import GIB

SPARK = 127_600_748 * 1024
FLOORS = Floors(warn=12 * GIB, hold=8 * GIB, kill=5 * GIB)


class Box:
    """Looks half a second apart."""

    def __init__(self) -> None:
        self.judge = Judge(FLOORS)
        self.at = (i / 2 for i in count())

    def see(self, *gib: float, pressure: float | None = None) -> Any:
        """The verdict on the last of these."""
        for available in gib:
            look = Look(next(self.at), int(available * GIB), pressure)
            verdict = self.judge.see(look)
            if verdict.kill:
                self.judge.killed(look)
        return verdict


class Nothing:
    """A target that is never hit."""

    def kill(self) -> int:
        raise AssertionError


def victim(name: str, **facts: Any) -> Victim:
    return Victim(name, name, Nothing(), **{"bytes": 40 * GIB, "reload_s": 60.0, **facts})


def test_a_spark_has_the_floors_that_its_owners_report() -> None:
    """12, 8 and 5 GiB."""
    found = floors(Settings(), SPARK)
    assert [found.warn / GIB, found.hold / GIB, found.kill / GIB] == [12, 8, 5]


def test_a_small_box_is_not_held_up_by_a_sparks_floors() -> None:
    """On 24 GiB with 3 GiB available nothing is short."""
    assert floors(Settings(), 24 * GIB).level(3 * GIB) is GuardLevel.OK


def test_a_floor_that_the_owner_sets_counts_as_it_is_and_lifts_the_milder_ones() -> None:
    """Killing under 20 GiB without holding loads back there would make no sense."""
    found = floors(Settings(guard_kill_gib=20), 24 * GIB)
    assert (found.warn, found.hold, found.kill) == (20 * GIB, 20 * GIB, 20 * GIB)


@pytest.mark.parametrize(("gib", "level"), [(30, "ok"), (12, "ok"), (11, "warn"), (7.9, "hold"), (4.9, "kill")])
def test_a_level_begins_under_its_floor(gib: float, level: str) -> None:
    """The floor itself still belongs to the milder one."""
    assert Box().see(gib).level == level


def test_one_look_under_the_floor_is_not_enough_to_kill() -> None:
    """Two in a row are."""
    box = Box()
    assert not box.see(4.9).kill
    assert not box.see(6, 4.9).kill
    assert box.see(4.8).kill


def test_under_half_of_the_floor_one_look_is_enough() -> None:
    """At 2 GiB a second there is no time for a second look."""
    assert Box().see(20, 2.4).kill


def test_a_level_is_left_only_with_a_margin() -> None:
    """Memory that hovers about a floor is told of once."""
    box = Box()
    assert box.see(7.9).level is GuardLevel.HOLD
    assert box.see(8.1).level is GuardLevel.HOLD
    assert box.see(8.9).level is GuardLevel.WARN


def test_a_kill_is_given_time_to_bring_memory_back() -> None:
    """On a GB10 that takes long; the next engine is not killed for the first one's debt."""
    box = Box()
    assert box.see(4.5, 4.5).kill
    assert not box.see(*[4.5] * int(OWED_S)).kill
    assert box.see(*[4.5] * int(OWED_S + 2)).level is GuardLevel.KILL


def test_after_that_time_the_next_one_goes() -> None:
    """What has not come back by then does not come."""
    box = Box()
    box.see(4.5, 4.5)
    kills = [box.see(4.5).kill for _ in range(int(2 * OWED_S) + 2)]
    assert kills.count(True) == 1


def test_memory_that_goes_on_falling_after_a_kill_costs_the_next_one_at_once() -> None:
    """The first one was not who took it."""
    box = Box()
    assert box.see(4.5, 4.5).kill
    assert box.see(4.2, 4.2).kill


def test_rising_pressure_makes_each_level_one_worse() -> None:
    """Processes stand still for memory already, and it is getting worse."""
    box = Box()
    assert box.see(11, pressure=0.02).level is GuardLevel.WARN
    pressed = box.see(11, pressure=0.12)
    assert (pressed.level, pressed.pressed) == (GuardLevel.HOLD, True)


def test_pressure_alone_is_no_shortage() -> None:
    """Reading weights through a full page cache raises it while memory is plenty."""
    box = Box()
    box.see(50, pressure=0.0)
    assert box.see(50, pressure=0.9).level is GuardLevel.OK


def test_steady_pressure_adds_nothing() -> None:
    """High and no longer rising."""
    box = Box()
    assert box.see(*[11] * 20, pressure=0.3).level is GuardLevel.WARN


def test_whoever_serves_nobody_yet_goes_first() -> None:
    """The one that loads is the one that takes memory, however dear."""
    loading = victim("loads", serves=False, pinned=True, reload_s=None, bytes=None)
    assert cheapest([victim("idle"), loading], GIB) is loading


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
    assert cheapest([one, other], 3 * GIB) is other
    assert cheapest([other, one], 3 * GIB) is other


def test_nobody_there_nobody_goes() -> None:
    """Memory may be short for reasons that are not ours."""
    assert cheapest([], GIB) is None


@given(st.lists(st.floats(0, 40), min_size=3, max_size=60))
def test_whatever_memory_does_nobody_is_killed_above_the_floor(gib: list[float]) -> None:
    """And two looks in a row under it always cost somebody, unless memory is owed from the last time."""
    box, before, owed = Box(), 40.0, False
    for available in gib:
        kill = box.see(available).kill
        assert not kill or available < 5
        assert kill or owed or not (available < 5 and before < 5)
        owed = kill or (owed and box.judge.level.rank >= GuardLevel.HOLD.rank)
        before = available

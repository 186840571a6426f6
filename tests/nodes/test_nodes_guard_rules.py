"""The rules of a node's guard are those of this box's guard: every decision of the two is compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.memory import Floors
from sparkdash.host.memory.guard_decisions import GuardJudge, GuardReading, Victim, cheapest_victim
from sparkdash.nodes.agent.lease import FIGURES, GuardedContainer, make_lease
from sparkdash.nodes.agent.remote.guard_rules import KillCandidate, Look, Rules, worst
from sparkdash.settings import Settings
from sparkdash.units import GIB, MIB

TOTAL = 121 * GIB
SPARK = {"warn": 12 * GIB, "hold": 8 * GIB, "kill": 5 * GIB}

steps = st.lists(
    st.tuples(
        st.sampled_from([0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 61.0]),
        st.integers(min_value=0, max_value=20 * 1024).map(lambda mib: mib * MIB),
        st.sampled_from([None, 0.0, 0.05, 0.11, 0.2, 0.5]),
        st.booleans(),
    ),
    max_size=40,
)


@given(steps)
def test_both_guards_decide_the_same_after_any_series_of_looks(
    series: Iterable[tuple[float, int, float | None, bool]],
) -> None:
    judge, rules = GuardJudge(Floors(**SPARK)), Rules(dict(SPARK), FIGURES)
    at = 0.0
    for pause, available, pressure, kills in series:
        at += pause
        here = judge.see(GuardReading(at, available, pressure))
        there = rules.see(Look(at, available, pressure))
        assert (here.level.rank, here.kill, here.fall, here.again_s) == tuple(there)
        if here.kill and kills:
            judge.killed(GuardReading(at, available, pressure))
            rules.killed(Look(at, available, pressure))


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.booleans(),
            st.integers(0, 3),
            st.none() | st.integers(0, 100),
            st.none() | st.floats(0, 900),
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(-20, 60),
)
def test_both_guards_choose_an_engine_of_the_same_cost(
    engines: list[tuple[bool, bool, int, int | None, float | None]], lacking: int
) -> None:
    class Nobody:
        def kill(self) -> int:
            return 0

    listed = [
        GuardedContainer(f"c{at}", f"p{at}", serves, pinned, in_flight, size, reload_s)
        for at, (serves, pinned, in_flight, size, reload_s) in enumerate(engines)
    ]
    candidates = [KillCandidate(each.container, asdict(each), 0, 0) for each in listed]
    victims = [
        Victim(
            profile=each.profile, container=each.container, target=Nobody(), serves=each.serves, pinned=each.pinned,
            in_flight=each.in_flight, bytes=each.bytes, reload_s=each.reload_s,
        )
        for each in listed
    ]  # fmt: skip
    here, there = cheapest_victim(victims, lacking), worst(candidates, lacking)
    assert here is not None
    assert there is not None
    assert here.container == there.container


def test_a_container_that_the_daemon_has_not_named_yet_is_killed_before_one_that_serves() -> None:
    serving = KillCandidate("old", asdict(GuardedContainer("old", "a", serves=True)), 90, start=5)
    unnamed = KillCandidate("new", {}, 1, start=9)
    found = worst([serving, unnamed], 0)
    assert found is unnamed


def test_of_two_loads_the_younger_one_is_killed() -> None:
    older, younger = KillCandidate("a", {}, 5, start=5), KillCandidate("b", {}, 5, start=9)
    assert worst([older, younger], 0) is younger


def test_the_lease_of_a_node_has_the_floors_that_a_guard_there_would_have() -> None:
    lease = make_lease(Settings(), TOTAL, [GuardedContainer("c", "p")])
    assert lease["floors"] == SPARK
    assert lease["act"] is True
    assert lease["engines"][0]["profile"] == "p"


@pytest.mark.parametrize(("guard", "act"), [("act", True), ("warn", False)])
def test_a_guard_that_only_warns_is_told_so(guard: str, act: bool) -> None:
    assert make_lease(Settings.model_validate({"guard": guard}), TOTAL, [])["act"] is act


def test_a_guard_that_is_off_gets_a_lease_that_ends_it() -> None:
    assert make_lease(Settings(guard="off"), TOTAL, []) == {"stop": True}

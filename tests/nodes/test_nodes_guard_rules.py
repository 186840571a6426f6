"""The guard of a node: its rules are those of this box's guard, and its lease has the limits of a guard there."""

from __future__ import annotations

from dataclasses import asdict

from sparkdash.host.memory import guard
from sparkdash.nodes.agent import remote_guard as remote_guard
from sparkdash.nodes.agent.node_guard import GUARD, GuardedContainer, make_lease
from sparkdash.nodes.agent.remote_guard import KillCandidate, worst
from sparkdash.settings import Settings
from sparkdash.units import GIB

TOTAL = 121 * GIB
SPARK = {"warn": 12 * GIB, "hold": 8 * GIB, "kill": 5 * GIB}


def test_the_guard_of_a_node_has_the_very_rules_of_this_boxs_guard() -> None:
    assert remote_guard.Rules is guard.Rules
    assert GUARD[0] == remote_guard.Rules.__module__


def test_a_container_that_the_daemon_has_not_named_yet_is_killed_before_one_that_serves() -> None:
    serving = KillCandidate("old", asdict(GuardedContainer("old", "a", serves=True)), start=5)
    unnamed = KillCandidate("new", {}, start=9)
    found = worst([serving, unnamed], 0)
    assert found is unnamed


def test_of_two_loads_the_younger_one_is_killed() -> None:
    older, younger = KillCandidate("a", {}, start=5), KillCandidate("b", {}, start=9)
    assert worst([older, younger], 0) is younger


def test_the_lease_of_a_node_has_the_floors_that_a_guard_there_would_have() -> None:
    lease = make_lease(Settings(), TOTAL, [GuardedContainer("c", "p")])
    assert lease["floors"] == SPARK
    assert lease["act"] is True
    assert lease["engines"][0]["profile"] == "p"

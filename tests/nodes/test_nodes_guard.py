"""The guard of a node: the rules of this box's guard, its lease, and its kills of real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from sparkdash.host.memory import guard
from sparkdash.nodes.agent import remote_guard as remote_guard
from sparkdash.nodes.agent.guard_files import GuardFolder
from sparkdash.nodes.agent.node_guard import GUARD, GuardedContainer, make_lease
from sparkdash.nodes.agent.remote_guard import KillCandidate, NodeGuard, worst
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


OWNER = "0123456789ab"
GIB_KB = 1 << 20
FLOORS = {"warn": 12 << 30, "hold": 8 << 30, "kill": 5 << 30}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts an engine's process, and shows it in a /proc of the test's own."""
    started = []

    def start(container: str) -> subprocess.Popen[bytes]:
        waits = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]
        mark = {"SPARKDASH_ENGINE": f"{OWNER}/{container}"}
        process = subprocess.Popen(waits, env=mark, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        (tmp_path / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def available(tmp_path: Path, gib: float) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: {121 * GIB_KB} kB\nMemAvailable: {int(gib * GIB_KB)} kB\n")


def test_an_engine_that_has_just_ended_is_not_killed_in_place_of_one_that_lives(
    tmp_path: Path, engine: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    """The list of processes is as old as two seconds, and a kill is waited for: a dead one must not count as one."""
    loads, serves = engine("sparkdash-loads"), engine("sparkdash-serves")
    folder = GuardFolder(OWNER, str(tmp_path))
    folder.renew(
        {"act": True, "ttl_s": 60, "floors": FLOORS, "engines": [{"container": "sparkdash-serves", "serves": True}]}
    )
    available(tmp_path, 60)
    guard = NodeGuard(OWNER, folder, str(tmp_path))
    guard.step()
    loads.kill()
    loads.wait()
    available(tmp_path, 1.2)
    guard.step()
    assert serves.wait(10) == -signal.SIGKILL
    assert [each["container"] for each in folder.kills()] == ["sparkdash-serves"]

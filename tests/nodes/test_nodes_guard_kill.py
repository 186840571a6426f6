"""Kills by the memory guard of a node: real processes, over figures of memory of our own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkdash.nodes.agent.guard_files import GuardFolder
from sparkdash.nodes.agent.remote_guard import NodeGuard

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

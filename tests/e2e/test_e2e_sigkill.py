"""The daemon dies in the middle of a swap, in each phase of it; the next one makes one consistent whole of what is left."""

import json
import signal
import subprocess
import urllib.error
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from daemons import ready_engines

from sparkdash import paths
from sparkdash.host.processes import leftovers

DOOMED = Path(__file__).with_name("doomed.py")


def engines(daemon: Any) -> dict[str, str]:
    return {name: engine["state"] for name, engine in daemon.state()["engines"].items()}


def marked(daemon: Any) -> set[str]:
    """Containers that have living processes of this daemon's engines, whoever their parent is."""
    return {mark.partition("/")[2] for mark in leftovers.processes_of_owner(paths.owner(daemon.root / "state"))}


def dies(daemon: Any, *when: object) -> None:
    """North runs, the swap to south begins, and the daemon is gone in the middle of it; `when` is for doomed.py."""
    daemon.start(str(DOOMED), *map(str, when))
    daemon.post("/api/use", {"profile": "north"})
    daemon.until(lambda state: state["swaps"] and "north" in ready_engines(state))
    with suppress(urllib.error.URLError, HTTPException, ConnectionError, json.JSONDecodeError):
        daemon.post("/api/use", {"profile": "south"})
    assert daemon.died() == -signal.SIGKILL


def comes_back(daemon: Any, expected: set[str]) -> None:
    """One consistent state, no orphan, no lost profile: the other one can be used, and nothing is left at the end."""
    daemon.start()
    # the daemon serves before it has looked at what its predecessor left
    state = daemon.until(lambda state: state["swap"] is None and ready_engines(state) == expected)
    assert {profile["name"] for profile in state["profiles"]} == {"north", "south"}
    assert ("north", "user", "done") in [(one["target"], one["cause"], one["outcome"]) for one in state["swaps"]]
    assert engines(daemon) == dict.fromkeys(expected, "ready")
    assert marked(daemon) == {f"sparkdash-{name}" for name in expected}
    for name in ("north",) if expected == {"south"} else ("south",):
        daemon.post("/api/use", {"profile": name})
        daemon.until(lambda state, name=name: state["swap"] is None and name in state["engines"])
        assert engines(daemon)[name] == "ready"
    daemon.post("/api/stop", {"profile": None})
    assert marked(daemon) == set()


@pytest.mark.parametrize(("phase", "delay", "expected"), [
    pytest.param("drain", 0, {"north"}, id="drain"), pytest.param("stop", 0, {"north"}, id="stop"),
    pytest.param("reclaim", 0, set(), id="reclaim"), pytest.param("preflight", 0, set(), id="preflight"),
    pytest.param("create", 0, set(), id="create"), pytest.param("load", 0, {"south"}, id="load"),
    pytest.param("load", 0.1, {"south"}, id="load-under-way"), pytest.param("warm", 0, {"south"}, id="warm"),
])  # fmt: skip
def test_a_daemon_killed_in_any_phase(
    new_daemon: Callable[..., Any], tiny_process: Callable[..., str], phase: str, delay: float, expected: set[str]
) -> None:
    daemon = new_daemon(runtime="process", stop_grace_s=2, side_by_side=False)
    for name in ("north", "south"):
        daemon.write(name, tiny_process(name))
    dies(daemon, "phase", "south", phase, delay)
    comes_back(daemon, expected)


@pytest.mark.full
@pytest.mark.podman
@pytest.mark.parametrize(
    ("profile", "verb", "expected"), [("north", "stop", set()), ("south", "run", {"south"})], ids=["stop", "run"]
)
def test_a_command_of_podman_that_outlives_the_daemon(
    new_daemon: Callable[..., Any], tiny: Any, profile: str, verb: str, expected: set[str]
) -> None:
    daemon = new_daemon(runtime="podman", stop_grace_s=2, side_by_side=False)
    for name in ("north", "south"):
        daemon.write(name, tiny(name))
    dies(daemon, "podman", profile, verb, 0.1)
    comes_back(daemon, expected)
    shown = subprocess.run(
        ["podman", "ps", "--all", "--quiet", "--filter", f"label=sparkdash.owner={paths.owner(daemon.root / 'state')}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout == ""

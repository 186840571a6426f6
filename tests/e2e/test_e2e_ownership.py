"""Ownership of engines: one daemon to a state folder; engines that it cannot adopt are shown and stopped."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from daemons import ready_engines

from sparkdash import paths
from sparkdash.host.processes import leftovers


@pytest.mark.parametrize("same", ["state", "runtime"])
def test_two_daemons_refuse_each_other(new_daemon: Callable[..., Any], same: str) -> None:
    first, second = new_daemon(runtime="process").start(), new_daemon(runtime="process")
    shared = f"SPARKDASH_{same.upper()}_DIR"
    second.env[shared] = first.env[shared]
    done = second.sparkdash("serve", "--port", "0")
    assert done.returncode == 7
    assert f"pid {first.process.pid}, {first.url}" in " ".join(done.stderr.split())
    assert first.get("/health") == {"status": "ok"}


def test_an_engine_that_cannot_be_adopted_is_shown_and_stopped_with_all_others(
    new_daemon: Callable[..., Any], tiny_process: Callable[..., str]
) -> None:
    daemon = new_daemon(runtime="process", stop_grace_s=1)
    daemon.write("north", tiny_process("north"))
    daemon.start()
    daemon.post("/api/use", {"profile": "north"})
    daemon.until(lambda state: "north" in ready_engines(state))
    daemon.kill()
    daemon.write("north", tiny_process("north", argz={}))
    daemon.start()
    assert (daemon.state()["engines"], daemon.state()["unadopted"]) == ({}, ["north"])
    assert "`sparkdash stop north` ends it" in " ".join(daemon.sparkdash("status").stdout.split())
    done = daemon.sparkdash("stop", "--all", "--json")
    assert (done.returncode, json.loads(done.stdout)["stopped"]) == (0, ["north"])
    assert daemon.state()["unadopted"] == []
    assert leftovers.processes_of_owner(paths.owner(daemon.root / "state")) == {}

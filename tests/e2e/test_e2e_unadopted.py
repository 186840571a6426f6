"""An engine that outlives its daemon while its profile's file has a mistake in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparkdash import paths
from sparkdash.host.processes import leftovers

ENGINE = Path(__file__).with_name("tiny_engine.py")
NORTH = f"""\
profile: north
engine: vllm
gpu: false
command: [{sys.executable}, {ENGINE}]
models: {{target: {{path: {ENGINE.parent}}}}}
args: {{max-model-len: 4096}}
"""


def test_an_engine_that_cannot_be_adopted_is_shown_and_stopped_with_all_others(new_daemon: Callable[..., Any]) -> None:
    daemon = new_daemon(runtime="process", stop_grace_s=1)
    daemon.write("north", NORTH)
    daemon.start()
    daemon.post("/api/use", {"profile": "north"})
    daemon.until(lambda state: state["engines"].get("north", {}).get("state") == "ready")
    daemon.kill()
    daemon.write("north", NORTH + "argz: {}\n")
    daemon.start()
    assert (daemon.state()["engines"], daemon.state()["unadopted"]) == ({}, ["north"])
    assert "`sparkdash stop north` ends it" in " ".join(daemon.sparkdash("status").stdout.split())
    done = daemon.sparkdash("stop", "--all", "--json")
    assert (done.returncode, json.loads(done.stdout)["stopped"]) == (0, ["north"])
    assert daemon.state()["unadopted"] == []
    assert leftovers.processes_of_owner(paths.owner(daemon.root / "state")) == {}

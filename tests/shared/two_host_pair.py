"""Profiles of a small engine that runs on one of two hosts, or on both, and its start."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from two_hosts import HERE, HostDaemon, TwoHosts

NAME = "pair"
HEAD, WORKER = "sparkdash-pair", "sparkdash-pair-worker1"
GATES = "/root/gates"
"""Folder of each host whose files hold the engine up; see pair_engine."""
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc")


def profile(nodes: int = 2, name: str = NAME, **more: Any) -> dict[str, Any]:
    base = str(Path(os.path.realpath(sys.executable)).parents[1])
    places = dict.fromkeys((*SYSTEM, base, str(HERE.parents[1])))
    args = {"tensor-parallel-size": nodes} if nodes > 1 else {}
    return {
        "profile": name,
        "engine": "vllm",
        "image": TwoHosts.image,
        "models": {"target": {"path": str(HERE / "shim")}},
        "gpu": False,
        "command": [os.path.realpath(sys.executable), str(HERE / "pair_engine.py")],
        "mounts": [
            *({"source": place, "target": place} for place in places),
            {"source": GATES, "target": "/gates", "read_only": False},
        ],
        "memory": {"weights_gib": 0.05, "kv_gib": 0.05, "overhead_gib": 0.05, "source": "measured"},
        "nodes": nodes,
        "args": args,
        **more,
    }


def up(daemon: HostDaemon, name: str = NAME) -> None:
    deadline = time.monotonic() + 30
    while daemon.call("POST", "/api/use", {"profile": name}, 60)[0] >= 300:  # its memory is known a moment later
        assert time.monotonic() < deadline, daemon.call("POST", "/api/use", {"profile": name}, 60)
        time.sleep(0.2)
    daemon.until_state(lambda state: state["engines"].get(name, {}).get("state") in ("ready", "failed"))
    state = daemon.state()
    assert state["engines"][name]["state"] == "ready", (state["engines"][name], state["swaps"], state["notices"][:5])

"""A box that looks after itself: a default and names for several models, with a daemon and real processes.

The tests of this module share one daemon and run in their order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog import yaml12

pytestmark = pytest.mark.timeout(180)

SERVER = Path(__file__).parent / "speech_server.py"


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    daemon = new_daemon(runtime="process", min_dwell_s=0, drain_s=1, stop_grace_s=5)
    gate = tmp_path_factory.mktemp("gate") / "gate"
    gate.touch()
    for name in ("first", "second", "third"):
        server = {"routes": ["transcriptions"], "ready_by": "health"}
        command = [sys.executable, str(SERVER), "{port}", str(gate)]
        memory = {"weights_gib": 0.1, "kv_gib": 0, "overhead_gib": 0.1, "source": "measured: 40 MiB"}
        known = {"profile": name, "engine": "generic", "gpu": False, "command": command, "memory": memory}
        daemon.write(name, yaml12.dump(known | {"server": server}))
    tables = """
[any]
either = ["first", "third"]
"""
    daemon.configure(lambda text: text + tables)
    return daemon.start()


def running(state: dict[str, Any]) -> set[str]:
    return {name for name, engine in state["engines"].items() if engine["state"] == "ready"}


def test_two_that_fit_run_side_by_side(spark: Any) -> None:
    for name in ("first", "second"):
        done = spark.sparkdash("use", name, "--yes")
        assert done.returncode == 0, done.stderr
    assert running(spark.state()) == {"first", "second"}
    for name in ("first", "second"):
        assert spark.sparkdash("stop", name).returncode == 0
    assert spark.sparkdash("use", "third", "--yes").returncode == 0


def test_a_name_for_several_means_the_one_that_runs(spark: Any) -> None:
    found = {item["id"]: item["root"] for item in spark.get("/v1/models")["data"]}
    assert found["either"] == "third"


def test_the_box_returns_to_its_default(spark: Any) -> None:
    spark.sparkdash("use", "third", "--yes")
    spark.configure(lambda text: 'default = "second"\ndefault_after_s = 1\n' + text)
    spark.post("/api/reload", {})
    state = spark.until(lambda now: "second" in running(now))
    assert state["swaps"][0]["cause"] == "default"
    assert state["default"] == {"profile": "second", "after_s": 1.0}
    assert "second, after 1" in spark.sparkdash("status").stdout

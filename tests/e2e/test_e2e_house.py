"""A box that looks after itself: sets, a default and names for several models, with a daemon and real processes.

The tests of this module share one daemon and run in their order.
"""

from __future__ import annotations

import json
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
[sets]
pair = ["first", "second"]
single = ["third"]
"""
    daemon.configure(lambda text: text + tables)
    return daemon.start()


def running(state: dict[str, Any]) -> set[str]:
    return {name for name, engine in state["engines"].items() if engine["state"] == "ready"}


def test_a_set_comes_up_side_by_side(spark: Any) -> None:
    done = spark.sparkdash("use", "--set", "pair", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["set"], said["ready"], [row["profile"] for row in said["plan"]["members"]]) == (
        "pair",
        True,
        ["first", "second"],
    )
    assert "Together 0.4 GiB" in done.stderr
    assert running(spark.state()) == {"first", "second"}


def test_another_set_takes_its_place(spark: Any) -> None:
    done = spark.sparkdash("use", "--set", "single", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The set single is ready at ")
    assert "first leaves" in done.stderr
    assert running(spark.state()) == {"third"}


def test_an_unknown_set_is_refused_with_those_that_there_are(spark: Any) -> None:
    done = spark.sparkdash("use", "--set", "week")
    assert done.returncode == 3
    assert "Known sets: pair, single." in done.stderr


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

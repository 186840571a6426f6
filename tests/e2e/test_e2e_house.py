"""A box that looks after itself: sets, hooks, a default and names for several models, with a daemon and real processes.

The tests of this module share one daemon and run in their order.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog import yaml12

pytestmark = pytest.mark.timeout(180)

SERVER = Path(__file__).parent / "speech_server.py"
WRITES = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file into which the hook writes each event."""
    return tmp_path_factory.mktemp("hook") / "events"


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], told: Path) -> Any:
    daemon = new_daemon(runtime="process", min_dwell_s=0, drain_s=1, stop_grace_s=5)
    gate = told.with_name("gate")
    gate.touch()
    for name in ("first", "second", "third"):
        server = {"routes": ["transcriptions"], "ready_by": "health"}
        command = [sys.executable, str(SERVER), "{port}", str(gate)]
        memory = {"weights_gib": 0.1, "kv_gib": 0, "overhead_gib": 0.1, "source": "measured: 40 MiB"}
        known = {"profile": name, "engine": "generic", "gpu": False, "command": command, "memory": memory}
        daemon.write(name, yaml12.dump(known | {"server": server}))
    tables = f"""
[any]
either = ["first", "third"]
[sets]
pair = ["first", "second"]
single = ["third"]
[[hooks]]
command = {json.dumps([sys.executable, "-c", WRITES, str(told)])}
"""
    daemon.configure(lambda text: text + tables)
    return daemon.start()


def events(spark: Any, told: Path, *wanted: str) -> list[dict[str, Any]]:
    """The events so far, once those that are wanted are among them."""

    def there(_state: object = None) -> bool:
        return told.exists() and set(wanted) <= {f"{each['event']} {each['profile']}" for each in read()}

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in told.read_text().splitlines()]

    spark.until(there)
    return read()


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


def test_the_hook_was_told(spark: Any, told: Path) -> None:
    found = events(spark, told, "ready first", "ready second", "ready third", "swap third")
    ready = next(each for each in found if each["event"] == "ready" and each["profile"] == "first")
    assert ready["text"].startswith("first is ready on ")


def test_the_hook_is_told_of_a_death(spark: Any, told: Path) -> None:
    container = spark.state()["engines"]["third"]["container"]
    assert container
    for pid in _pids_of(spark, "third"):
        os.kill(pid, signal.SIGKILL)
    died = next(each for each in events(spark, told, "died third") if each["event"] == "died")
    assert died["text"].startswith("third died. ")


def _pids_of(spark: Any, profile: str) -> list[int]:
    port = str(spark.state()["engines"][profile]["port"])
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(SERVER).encode() in words and port.encode() in words:
                found.append(int(folder.name))
    return found


def test_the_box_returns_to_its_default(spark: Any) -> None:
    spark.sparkdash("use", "third", "--yes")
    spark.configure(lambda text: 'default = "second"\ndefault_after_s = 1\n' + text)
    spark.post("/api/reload", {})
    state = spark.until(lambda now: "second" in running(now))
    assert state["swaps"][0]["cause"] == "default"
    assert state["default"] == {"profile": "second", "after_s": 1.0}
    assert "second, after 1" in spark.sparkdash("status").stdout

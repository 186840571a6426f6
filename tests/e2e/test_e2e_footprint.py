"""Memory that real engines take is learned: in real containers, against the kernel's own word."""

import os
import re
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkdash.units import KIB, MIB

pytestmark = [pytest.mark.full, pytest.mark.podman, pytest.mark.timeout(300)]
HERE = Path(__file__).parent
BUDGET = 1100
"""MiB of a small box, whose engines really take what they take: two fit, and not the third beside either pair."""
HOLD = 400
SMALLER = 300
"""MiB of the one that fits beside; a third one of HOLD does not."""
WITHIN = 0.05


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], tiny: Any) -> Iterator[Any]:
    """Engines that take real memory."""
    daemon = new_daemon(runtime="podman", stop_grace_s=3, side_by_side=False, reserve_gib=0.05)
    daemon.program = (str(HERE / "made_up_box.py"),)
    daemon.env |= {"BOX": "small", "BUDGET_MIB": str(BUDGET)}
    daemon.write("big", tiny("big", **{"hold-mib": HOLD}))
    daemon.write("small", tiny("small"))
    daemon.write("beside", tiny("beside", **{"hold-mib": SMALLER}) + declared(SMALLER))
    daemon.write("third", tiny("third", **{"hold-mib": HOLD}) + declared(HOLD))
    return daemon.start()


def declared(mib: int) -> str:
    """The need of an engine that was never loaded: what it holds, and its interpreter."""
    return f"memory: {{weights_gib: {mib / 1024:.3f}, kv_gib: 0, overhead_gib: 0.05, source: the test}}\n"


@pytest.fixture
def stranger(hostfs: Any) -> Iterator[str]:
    """Another sparkdash's engine: a container that this daemon must show and leave alone."""
    name = f"stranger-{os.getpid()}"
    mounts = [f"--volume={each['source']}:{each['target']}:ro" for each in hostfs.mounts()]
    labels = ["--label=sparkdash.profile=theirs", "--label=sparkdash.owner=somebody"]
    argv = ["podman", "run", "--detach", f"--name={name}", *labels, *mounts, hostfs.image, "/bin/sleep", "300"]
    subprocess.run(argv, check=True, capture_output=True)
    yield name
    subprocess.run(["podman", "rm", "--force", "--time=0", name], check=True, capture_output=True)


def ready(spark: Any, name: str) -> dict[str, Any]:
    """Bring it up; the swap that did."""
    spark.post("/api/use", {"profile": name})
    state = spark.until(lambda s: s["engines"].get(name, {}).get("state") in ("ready", "failed") and s["swap"] is None)
    assert state["engines"][name]["state"] == "ready", state["engines"][name]["failure"]
    return state["swaps"][0]


def held(name: str) -> int:
    """Anonymous memory of a container's processes, as the kernel tells it."""
    listed = subprocess.run(["podman", "top", name, "hpid"], capture_output=True, text=True, check=True).stdout
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in listed.split()[1:]]
    return sum(int(kib) for text in texts for kib in re.findall(r"RssAnon:\s+(\d+)", text)) * KIB


def kept(spark: Any, loads_of_big: int) -> None:
    """Wait until so much is in the database: engines are weighed in the background."""
    until = time.monotonic() + 60
    while True:
        found = [load for load in loads(spark) if load[0] == "big"]
        if len(found) == loads_of_big:
            return
        assert time.monotonic() < until, found
        time.sleep(0.05)  # the database tells nobody that it was written


def loads(spark: Any) -> list[tuple[str, int, int]]:
    """Rows of the database, oldest first."""
    database = sqlite3.connect(spark.root / "state" / "sparkdash.db")
    try:
        query = "SELECT profile, steady_bytes, peak_bytes FROM loads ORDER BY at"
        return database.execute(query).fetchall()
    finally:
        database.close()


def test_two_loads_are_learned_as_they_were(spark: Any) -> None:
    """Within 5 % of what the containers held; the second load of a launch knows its time and where it comes from."""
    first = ready(spark, "big")
    assert (first["learned_from"], first["eta_s"], first["fraction"]) == (0, None, 1.0)
    assert [step["name"] for step in first["steps"]][-1] == "warm"
    kept(spark, 1)
    truth = [held("sparkdash-big")]
    assert truth[0] >= HOLD * MIB
    ready(spark, "small")
    second = ready(spark, "big")
    assert second["learned_from"] == 1
    kept(spark, 2)
    truth.append(held("sparkdash-big"))
    found = [load for load in loads(spark) if load[0] == "big"]
    for (_, steady, peak), true in zip(found, truth, strict=True):
        assert steady == pytest.approx(true, rel=WITHIN)
        assert peak >= steady


def strangers(state: dict[str, Any]) -> dict[str, int | None]:
    """By name: what containers that are not this daemon's hold. Other tests may run beside this one."""
    return {each["name"]: each["bytes"] for each in state["sample"]["memory"]["strangers"]}


def test_two_that_fit_run_side_by_side_and_the_third_evicts_the_one_that_was_named(spark: Any, stranger: str) -> None:
    spark.configure(lambda text: text.replace("side_by_side = false", "side_by_side = true"))
    spark.get("/v1/models")  # whoever asks is told the files as they are
    ready(spark, "big")
    assert ready(spark, "beside")["evict"] == []
    assert sorted(spark.containers()) == ["sparkdash-beside", "sparkdash-big"]
    assert held("sparkdash-big") >= HOLD * MIB
    assert held("sparkdash-beside") >= SMALLER * MIB
    told = " ".join(spark.sparkdash("why", "third").stdout.split())
    named = re.findall(r"leaves (\w+): idle for [^;]+; it frees", told)
    assert len(named) == 1, told
    (stays,) = {"big", "beside"} - set(named)
    assert f"stays {stays}" in told
    swap = ready(spark, "third")
    assert swap["evict"] == named
    assert "it frees" in swap["reasons"][named[0]]
    assert sorted(spark.containers()) == sorted([f"sparkdash-{stays}", "sparkdash-third"])
    both = held(f"sparkdash-{stays}") + held("sparkdash-third")
    assert (HOLD + SMALLER) * MIB <= both <= BUDGET * MIB
    spark.until(lambda s: strangers(s).get(stranger))
    alive = ["podman", "inspect", "--format", "{{.State.Status}}", stranger]
    assert subprocess.run(alive, check=True, capture_output=True, text=True).stdout.strip() == "running"

"""What real engines really take is learned: in real containers, against the kernel's own word."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkdash.units import KIB, MIB

pytestmark = [pytest.mark.podman, pytest.mark.timeout(300)]
HOLD = 400
GROW = 120
WITHIN = 0.05


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], tiny: Any) -> Iterator[Any]:
    """Two engines, one of which takes real memory and more of it after a long prompt."""
    daemon = new_daemon(runtime="podman", stop_grace_s=3, side_by_side=False)
    daemon.write("big", tiny("big", **{"hold-mib": HOLD, "grow-mib": GROW}))
    daemon.write("small", tiny("small"))
    return daemon.start()


def ready(spark: Any, name: str) -> dict[str, Any]:
    """Bring it up; the swap that did."""
    spark.post("/api/use", {"profile": name})
    state = spark.until(lambda s: s["engines"].get(name, {}).get("state") in ("ready", "failed") and s["swap"] is None)
    assert state["engines"][name]["state"] == "ready", state["engines"][name]["failure"]
    return state["swaps"][0]


def held(spark: Any) -> int:
    """Anonymous memory of the one container's processes, as the kernel tells it."""
    (name,) = spark.containers()
    listed = subprocess.run(["podman", "top", name, "hpid"], capture_output=True, text=True, check=True).stdout
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in listed.split()[1:]]
    return sum(int(kib) for text in texts for kib in re.findall(r"RssAnon:\s+(\d+)", text)) * KIB


def kept(spark: Any, loads_of_big: int, *, after_prompt: bool = False) -> None:
    """Wait until so much is in the database: engines are weighed in the background."""
    until = time.monotonic() + 30
    while True:
        found = [load for load in loads(spark) if load[0] == "big"]
        if len(found) == loads_of_big and (not after_prompt or found[-1][3]):
            return
        assert time.monotonic() < until, found


def loads(spark: Any) -> list[tuple[str, int, int, int | None, str | None]]:
    """What is in the database, oldest first."""
    database = sqlite3.connect(spark.root / "state" / "sparkdash.db")
    try:
        query = "SELECT profile, steady_bytes, peak_bytes, after_prompt_bytes, curve FROM loads ORDER BY at"
        return database.execute(query).fetchall()
    finally:
        database.close()


def test_two_loads_and_a_long_prompt_are_learned_as_they_were(spark: Any) -> None:
    """Within 5 % of what the containers held; the second load of a launch knows its time and where it comes from."""
    first = ready(spark, "big")
    assert (first["learned_from"], first["eta_s"], first["fraction"]) == (0, None, 1.0)
    assert [step["name"] for step in first["steps"]][-1] == "warm"
    kept(spark, 1)
    truth = [held(spark)]
    assert truth[0] >= HOLD * MIB
    ready(spark, "small")
    second = ready(spark, "big")
    assert second["learned_from"] == 1
    kept(spark, 2)
    truth.append(held(spark))
    message = {"role": "user", "content": "word " * 9000}
    spark.post("/v1/chat/completions", {"model": "big", "messages": [message], "max_tokens": 2})
    kept(spark, 2, after_prompt=True)
    after = held(spark)
    assert after >= (HOLD + GROW) * MIB
    found = [load for load in loads(spark) if load[0] == "big"]
    for (_, steady, peak, _, curve), true in zip(found, truth, strict=True):
        assert steady == pytest.approx(true, rel=WITHIN)
        assert peak >= steady
        assert json.loads(curve or "[]")
    assert [load[3] for load in found] == [None, pytest.approx(after, rel=WITHIN)]

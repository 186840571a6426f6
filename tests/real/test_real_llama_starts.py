"""A real llama-server's start, taken apart: sparkdash's stages against the times in its log."""

import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import big_gguf
import pytest
import tiny_profiles

from sparkdash.host.memory import page_cache

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.podman, pytest.mark.timeout(300)]

MIB = 300
"""So that it loads for longer than `podman logs` takes to begin."""


@pytest.mark.parametrize("runtime", ["process", "podman"])
def test_its_stages_are_those_that_its_own_log_dates(
    new_daemon: Callable[..., Any], llama: Path, hostfs: Any, tmp_path: Path, runtime: str
) -> None:
    """Within 5 %, or the 0.3 s by which a busy box learns that a container has begun; weights come from the disk."""
    weights = tmp_path / "big.gguf"
    big_gguf.write(weights, MIB)
    daemon = new_daemon(runtime=runtime, stop_grace_s=20, reserve_gib=0.1, guard="off")
    placed = {"image": hostfs.image, "mounts": hostfs.mounts(llama, tmp_path)} if runtime == "podman" else {}
    given = {"models": {"target": {"path": str(weights)}}, "args": {"ctx-size": 512}, "memory": {}, "variants": {}}
    daemon.write("big", tiny_profiles.llama_document(llama, "big", **given, **placed))
    daemon.start()
    with weights.open("rb") as opened:
        os.fsync(opened.fileno())
        page_cache.forget_range(opened.fileno(), 0, weights.stat().st_size)
    assert daemon.sparkdash("use", "big", timeout=200).returncode == 0
    took = {step["name"]: step["s"] for step in daemon.state()["swaps"][0]["start"]["stages"]}
    printed = daemon.sparkdash("logs", "big").stdout

    def at(words: str) -> float:
        minutes, seconds, millis, micros = map(int, re.findall(rf"(\d+)\.(\d\d)\.(\d+)\.(\d+) .*{words}", printed)[0])
        return minutes * 60 + seconds + millis / 1e3 + micros / 1e6

    dated = [until - since for since, until in pairwise((0.0, *map(at, ("loading model", "n_slots", "release: "))))]
    stages = ({"process", "imports"}, {"weights"}, {"kv", "server", "first token"})
    found = [sum(s for name, s in took.items() if name in each) for each in stages]
    assert found == [pytest.approx(each, rel=0.05, abs=0.3) for each in dated], printed

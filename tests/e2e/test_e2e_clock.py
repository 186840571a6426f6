"""A sweep of the GPU's clock as its user runs it, over a driver of a script: capped per arm, and always lifted."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import Program

pytestmark = pytest.mark.timeout(240)

HALTING = Path(__file__).with_name("halting_bench.py")
ENGINE = """\
profile: plain
engine: sim
context: 4096
sim:
  load_s: 0.2
  memory_gib: 0.1
  time_scale: 10
  speeds: [{context: 0, decode_tok_s: 40, prefill_tok_s: 4000}]
"""
SUITE = """\
suite: tiny
version: 1
about: for tests
lag_limit_ms: 10000
cells:
  - {context: 0, output: 24, reps: 2}
"""
DRIVER = """\
#!/bin/sh
case "$1" in
  -lgc|-rgc) if [ -e "$0.refuses" ]; then echo "not supported for GPU 0"; exit 3; fi; echo "$*" >> "$0.log" ;;
  --query-gpu=clocks.max.sm) echo 3003 ;;
esac
"""
SUDO = '#!/bin/sh\nshift\n[ "$1" = -l ] || exec "$@"\n'
"""For a daemon that is not root's."""
SWEEP = ("ab", "plain", "--sweep", "gpu-clock=1400,free", "--suite", "tiny", "--mode", "screen", "--yes")


@pytest.fixture
def box(new_daemon: Callable[..., Any], tmp_path: Path) -> Iterator[Any]:
    """A daemon that finds the script before any real driver."""
    for name, text in (("nvidia-smi", DRIVER), ("sudo", SUDO)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    daemon = new_daemon(runtime="process")
    daemon.env["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    daemon.write("plain", ENGINE)
    (daemon.root / "config" / "suites").mkdir()
    (daemon.root / "config" / "suites" / "tiny.yaml").write_text(SUITE)
    daemon.driver = tmp_path / "nvidia-smi"
    return daemon.start()


def calls(box: Any) -> list[str]:
    """What the driver was told."""
    log = Path(f"{box.driver}.log")
    return log.read_text().splitlines() if log.exists() else []


def lifted(box: Any) -> bool:
    """Whether nothing is owed any more."""
    return box.get("/api/gpu-clock") == {"cap_mhz": None} and calls(box)[-1:] == ["-rgc"]


def test_each_arm_has_its_cap_and_the_end_lifts_it(box: Any) -> None:
    """The arms share one profile and its fingerprint; what the driver refuses is said before anything starts."""
    done = box.sparkdash(*SWEEP)
    assert done.returncode == 0, done.stderr
    assert calls(box) == ["-lgc 0,1400", "-rgc"], "the free arm came first, and capped nothing"
    (run,) = (box.root / "state" / "bench").glob("*/records.jsonl")
    launches = [one for one in map(json.loads, run.read_text().splitlines()) if one["record"] == "launch"]
    assert [one["provenance"]["clock_cap_mhz"] for one in launches] == [None, 1400]
    assert len({one["provenance"]["fingerprint"] for one in launches}) == 1
    Path(f"{box.driver}.refuses").touch()
    refused = box.sparkdash(*SWEEP, "--fresh")
    assert refused.returncode != 0
    assert "not supported for GPU" in refused.stderr
    too_high = box.sparkdash("ab", "plain", "--sweep", "gpu-clock=1400,9000", "--suite", "tiny", "--dry-run")
    assert "highest clock is 3003 MHz" in too_high.stderr


def test_a_killed_run_leaves_no_cap_and_a_killed_daemon_owes_it_to_the_next(box: Any) -> None:
    """SIGKILL of the run in the capped launch, then of the daemon in the resumed one."""
    with Program([str(HALTING), *SWEEP], env=box.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as bench:
        assert bench.stdout is not None
        assert bench.stdout.readline() == b"halted\n"
        assert calls(box) == ["-lgc 0,1400"]
        assert box.get("/api/gpu-clock") == {"cap_mhz": 1400}
        bench.kill()
    box.until(lambda _: lifted(box))
    with Program(
        [str(HALTING), *SWEEP, "--fresh"], env=box.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as bench:
        assert bench.stdout is not None
        assert bench.stdout.readline() == b"halted\n"
        box.kill()
        assert calls(box)[-1] == "-lgc 0,1400"
        bench.kill()
    box.start()
    box.until(lambda _: lifted(box))
    assert calls(box) == ["-lgc 0,1400", "-rgc"] * 2

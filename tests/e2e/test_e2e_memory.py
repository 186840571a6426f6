"""Holders of the memory: a real daemon with a real engine in podman, beside a stranger's container."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from daemons import ready_engines

from sparkdash.domain.memory import Holder, Holding, MemoryAccount
from sparkdash.units import MIB

pytestmark = [pytest.mark.full, pytest.mark.podman, pytest.mark.timeout(180)]
HOLD = 400
"""MiB that the engine takes."""
STRANGER = f"webui-{os.getpid()}"


@pytest.fixture
def spark(new_daemon: Callable[..., Any], tiny: Any) -> Any:
    daemon = new_daemon(runtime="podman", stop_grace_s=3, reserve_gib=0.05)
    daemon.write("held", tiny("held", **{"hold-mib": HOLD}))
    daemon.write("whale", tiny("whale") + "memory: {weights_gib: 9000, kv_gib: 0, overhead_gib: 0, source: the test}\n")
    daemon.start()
    daemon.post("/api/use", {"profile": "held"})
    daemon.until(lambda state: "held" in ready_engines(state))
    return daemon


@pytest.fixture
def stranger(hostfs: Any) -> Iterator[str]:
    """Somebody else's container, with more than a GiB."""
    hold = "import time; held = b'x' * (1200 << 20); print('up', flush=True); time.sleep(300)"
    mounts = [f"--volume={each['source']}:{each['target']}:ro" for each in hostfs.mounts()]
    argv = ["podman", "run", "--detach", f"--name={STRANGER}", *mounts, hostfs.image, "/usr/bin/python3", "-c", hold]
    subprocess.run(argv, check=True, capture_output=True)
    with subprocess.Popen(["podman", "logs", "--follow", STRANGER], stdout=subprocess.PIPE, text=True) as log:
        assert log.stdout is not None
        assert log.stdout.readline() == "up\n"
        log.kill()
    yield STRANGER
    subprocess.run(["podman", "rm", "--force", "--time=0", STRANGER], check=True, capture_output=True)


def account(spark: Any) -> MemoryAccount:
    done = spark.sparkdash("memory", "--json")
    assert done.returncode == 0, done.stderr
    return MemoryAccount.model_validate(json.loads(done.stdout))


def row(found: MemoryAccount, name: str) -> Holding:
    return next(one for one in found.holdings if one.name == name)


def test_an_engine_and_a_stranger_are_told_with_and_without_the_daemon(spark: Any, stranger: str) -> None:
    for killed in (False, True):
        found = account(spark)
        assert sum(one.bytes for one in found.holdings) == found.total
        assert row(found, "held").kind is Holder.ENGINE, killed
        # shares of all are scaled where forks overlap: 350 MiB beside three more workers of the tests
        assert 0.8 * HOLD * MIB < row(found, "held").bytes < 3 * HOLD * MIB
        theirs = row(found, stranger)
        assert (theirs.kind, theirs.remedy) == (Holder.CONTAINER, f"podman stop {stranger}")
        assert theirs.bytes > 1100 * MIB
        if not killed:
            told = " ".join(spark.sparkdash("why", "whale").stdout.split())
            assert f" GiB {stranger} (" in told
            assert f": podman stop {stranger}" in told
            status, refused = spark.call("POST", "/api/use", {"profile": "whale"})
            assert (status, refused["error"]["code"]) == (503, "does_not_fit")
            assert "Others hold memory: " in refused["error"]["message"]
            assert any(one.kind is Holder.SPARKDASH and one.bytes > 20 * MIB for one in found.holdings)
            spark.kill()
    spark.start()  # adopts the engine, and ends it with the test

"""A real vLLM in real podman that is stopped while it works, in each of two ways, before a daemon in a hurry.

The tests of this module share one daemon and run in their order: each begins with the engine that the repair before brought up.
"""

import os
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stuck
import tiny_profiles
from figures import podman

NAME = "stuck"
SLOW_CPUS = "0.03"

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.podman, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], engine: Path, hostfs: Any) -> Iterator[Any]:
    """A daemon on real podman that knows the tiny model as a profile of this module's own."""
    daemon = new_daemon(runtime="podman", reserve_gib=1.0, stop_grace_s=5)
    daemon.program = stuck.PROGRAM
    # small steps, so that a long prompt takes many
    text = tiny_profiles.document(engine, hostfs, NAME)
    daemon.write(NAME, re.sub(r"( +)max-num-seqs: 8\n", r"\g<0>\1max-num-batched-tokens: 64\n", text))
    return daemon.start()


def container(spark: Any) -> str:
    (name,) = spark.containers()
    return str(name)


def limit(spark: Any, cpus: str) -> str:
    """Give the container that much CPU, so that what is under way stays so; its name."""
    name = container(spark)
    podman("update", "--cpus", cpus, name)
    return name


def in_container(spark: Any) -> dict[int, str]:
    """The engine's processes by the host's pids, with their titles, which overwrite what /proc/PID/environ shows."""
    pids = map(int, podman("top", container(spark), "hpid").split()[1:])
    return {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in pids}


def core(spark: Any) -> Callable[[], object]:
    """Stops the process that computes; the API server goes on answering."""
    limit(spark, "0.3")
    found = in_container(spark)
    titles = ("EngineCore", "--multiprocessing-fork")  # the latter until it has set its own
    pid = next(pid for title in titles for pid, words in found.items() if title in words)
    url = spark.state()["engines"][NAME]["url"]

    def stop() -> None:
        os.kill(pid, signal.SIGSTOP)
        for path in ("/health", "/v1/models", "/metrics"):
            with urllib.request.urlopen(url + path, timeout=10) as probed:
                assert probed.status == 200

    return stop


def whole(spark: Any) -> Callable[[], object]:
    limit(spark, "0.3")
    pids = in_container(spark)
    return lambda: [os.kill(pid, signal.SIGSTOP) for pid in pids]


def test_a_core_that_stops_behind_a_server_that_answers_is_named_and_replaced(spark: Any) -> None:
    """Every probe says 200 meanwhile; the stream is told in-band, the request without a byte answered by the next engine."""
    seen = stuck.stuck(spark, NAME, core)
    seen.check(spark, NAME, named_s=stuck.STOPPED_S)
    assert seen.incident["end"] == "restarted"


def test_a_whole_container_that_is_stopped_is_named_and_replaced(spark: Any) -> None:
    spark.post("/api/release", {"profile": None})
    seen = stuck.stuck(spark, NAME, whole)
    seen.check(spark, NAME, named_s=stuck.STOPPED_S)
    assert seen.incident["end"] == "restarted"


def test_a_long_prefill_on_a_slow_box_is_left_alone(spark: Any) -> None:
    """For several times as long as makes an engine silent there is no token, and only the KV cache fills."""
    spark.post("/api/release", {"profile": None})
    assert stuck.answer(spark, NAME, 8).status_code == 200
    before = spark.state()["incidents"]
    limit(spark, SLOW_CPUS)
    try:
        status, took = stuck.long_prompt(spark, NAME)
    finally:
        limit(spark, "2")
    assert status == 200
    assert took > 3 * stuck.SILENT_S, "the box is too quick to prove anything"
    assert spark.state()["incidents"] == before
    print(f"\n{NAME}: a prefill of {took:.1f} s was left alone")

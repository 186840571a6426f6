"""`sparkdash stop` and `use` of a real container that is frozen with requests in flight: what they say is what happens."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from long_answers import LongAnswer

pytestmark = [pytest.mark.podman, pytest.mark.timeout(180)]

DRAIN_S, GRACE_S = 4, 3


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], tiny: Any) -> Any:
    """A daemon on real podman with two profiles, one engine at a time."""
    daemon = new_daemon(
        runtime="podman", stop_grace_s=GRACE_S, drain_s=DRAIN_S, min_dwell_s=0, side_by_side=False, reclaim_s=10
    )
    for name in ("long", "other"):
        daemon.write(name, tiny(name))
    return daemon.start()


def sigstop(name: str) -> None:
    told = subprocess.check_output(["podman", "top", name, "hpid"], text=True)
    for pid in told.split()[1:]:
        os.kill(int(pid), signal.SIGSTOP)


def pause(name: str) -> None:
    done = subprocess.run(["podman", "pause", name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@contextmanager
def frozen(spark: Any, freeze: Callable[[str], None]) -> Iterator[list[LongAnswer]]:
    """`long` runs, streams two answers, and is frozen."""
    assert spark.sparkdash("use", "long").returncode == 0
    answers = [LongAnswer(spark.url, "long") for _ in range(2)]
    assert all(
        each.begun.wait(60) for each in answers
    )  # one without a token yet would wait for the next `long` instead
    spark.until(lambda state: state["engines"]["long"]["in_flight"] == len(answers))
    freeze("sparkdash-long")
    yield answers


@pytest.mark.parametrize("freeze", [sigstop, pytest.param(pause, marks=pytest.mark.full)])
def test_a_stop_says_what_it_waits_for_and_ends_a_frozen_engine(spark: Any, freeze: Callable[[str], None]) -> None:
    with frozen(spark, freeze) as answers:
        done = spark.sparkdash("stop", "long")
        cut = [answer.whole() for answer in answers]
    assert (done.returncode, done.stdout) == (0, "long has stopped.\n")
    assert re.search(r"^drain: waits for 2 requests of long, cut in [34]s$", done.stderr, re.MULTILINE)
    assert re.search(r"^stop: waits for long to end, killed in \d+s$", done.stderr, re.MULTILINE)
    assert "out of memory" not in done.stderr
    assert all("was cut because its engine was stopped" in each for each in cut)
    assert spark.containers() == []
    assert spark.state()["swaps"][0]["outcome"] == "done"


@pytest.mark.full
@pytest.mark.parametrize("freeze", [sigstop, pause])
def test_another_profile_takes_the_place_of_a_frozen_engine(spark: Any, freeze: Callable[[str], None]) -> None:
    with frozen(spark, freeze) as answers:
        done = spark.sparkdash("use", "other")
        cut = [answer.whole() for answer in answers]
    assert done.returncode == 0, done.stderr
    assert "waits for 2 requests of long, cut in " in done.stderr
    assert all("was cut to make room for other" in each for each in cut)
    assert spark.containers() == ["sparkdash-other"]


@pytest.mark.full
def test_who_does_not_wait_any_longer_leaves_the_stop_under_way(spark: Any) -> None:
    with frozen(spark, sigstop) as answers:
        stop = spark.begin("stop", "long")
        spark.until(lambda state: state["swap"] is not None)
        stop.send_signal(signal.SIGINT)
        _, told = stop.communicate(timeout=30)
        spark.until(lambda state: "long" not in state["engines"])
        for answer in answers:
            answer.whole()
    assert "No longer waiting; the engine keeps stopping." in told
    assert spark.containers() == []

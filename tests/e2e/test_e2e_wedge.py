"""The wedge drill: memory runs out while NVML and podman hang. The guard acts, and everything else stays alive.

What is real: the daemon as a process of its own, its sockets, the engine's process and its death. What is not: /proc
(the test writes its figures), podman (the stand-in of tests/faults, which hangs on demand) and NVML (it never answers).
"""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from long_answers import LongAnswer, Pulse

HERE = Path(__file__).parent
FAULTS = HERE.parent / "faults"
GIB_KB = 1 << 20
WITHIN_S = 15.0
"""From the floor's crossing to the engine's end, and for any /health. The guard promises 2 s, which a machine that runs other
tests cannot hold; whoever waits for podman, which hangs here, waits for 20 s at least."""
SOON_S = 60


class Wedge:
    """The daemon, its box and the switch that has podman hang."""

    def __init__(self, daemon: Any, root: Path) -> None:
        self.daemon = daemon
        self.podman, self.proc = root / "podman", root / "proc"
        (self.proc / "pressure").mkdir(parents=True)
        self.podman.mkdir()
        self.memory(100)
        self._put("pressure/memory", "some avg10=0.00\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
        program = self.podman / "podman"
        program.write_text(f"#!/bin/sh\nPYTHON={sys.executable} HERE={FAULTS}\n{(FAULTS / 'podman.sh').read_text()}")
        program.chmod(0o755)
        daemon.env |= {"PATH": f"{self.podman}:{os.environ['PATH']}", "FAKE_PODMAN": str(self.podman)}
        daemon.env |= {"BOX": "wedged", "FAKE_PROC": str(self.proc)}
        daemon.program = (str(HERE / "made_up_box.py"),)

    def memory(self, available_gib: float) -> None:
        """Written in place, as the guard keeps the file open."""
        figures = {"MemTotal:": 121, "MemFree:": 1, "MemAvailable:": available_gib}
        self._put("meminfo", "".join(f"{name:<15}{int(gib * GIB_KB):>12} kB\n" for name, gib in figures.items()))

    def wedge(self, *, on: bool) -> None:
        """From now on podman hangs, or no longer."""
        file = self.podman / "fault.every"
        file.write_text("hang") if on else file.unlink(missing_ok=True)

    def pid(self, profile: str) -> int:
        return int((self.podman / "c" / f"sparkdash-{profile}" / "pid").read_text())

    def _put(self, name: str, text: str) -> None:
        file = self.proc / name
        with file.open("r+" if file.exists() else "w") as there:
            there.write(text)


@pytest.fixture(scope="module")
def box(new_daemon: Callable[..., Any], tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wedge]:
    """The daemon runs and podman works."""
    daemon = new_daemon(runtime="podman", reserve_gib=1)
    wedge = Wedge(daemon, tmp_path_factory.mktemp("wedge"))
    daemon.write("serves", tiny("serves", image="any"))
    daemon.start()
    yield wedge
    wedge.wedge(on=False)


def killed_within(box: Wedge, profile: str) -> float:
    """Let memory fall under the floor; seconds until the engine was dead."""
    watch = os.pidfd_open(box.pid(profile))
    began = time.monotonic()
    box.memory(4)
    assert select.select([watch], [], [], SOON_S)[0]
    os.close(watch)
    return time.monotonic() - began


def test_an_engine_that_serves(box: Wedge) -> None:
    box.daemon.sparkdash("use", "serves")
    pulse = Pulse(int(box.daemon.url.rpartition(":")[2]))
    pulse.start()
    client = LongAnswer(box.daemon.url, "serves")
    assert client.begun.wait(SOON_S)
    box.wedge(on=True)
    assert killed_within(box, "serves") < WITHIN_S, "the guard waited for podman"
    state = box.daemon.until(lambda s: s["engines"]["serves"]["state"] == "failed", SOON_S)
    told = client.whole()
    later = box.daemon.until(lambda s: s["sample"] and s["sample"]["at"] > state["at"] + 1, SOON_S)
    pulse.end()
    assert state["engines"]["serves"]["failure"]["code"] == "memory_guard"
    assert [kill["profile"] for kill in state["guard"]["kills"]] == ["serves"]
    assert "The memory guard killed serves" in told
    assert later["sample"]["memory"]["available"] == 4 << 30
    assert pulse.longest < WITHIN_S
    told = box.daemon.sparkdash("status").stdout
    assert "The memory guard killed serves: 4.0 GiB were available" in " ".join(told.split())


@pytest.mark.full
def test_a_podman_that_hangs_at_the_start_keeps_nobody_else_waiting(
    new_daemon: Callable[..., Any], tiny: Any, tmp_path: Path
) -> None:
    """Callers who need no engine are answered while podman hangs, and are told that it does; a request waits for it."""
    daemon = new_daemon(runtime="podman", reserve_gib=1)
    wedge = Wedge(daemon, tmp_path)
    daemon.write("a", tiny("a", image="any"))
    wedge.wedge(on=True)
    daemon.start()
    assert daemon.call("GET", "/api/hello")[0] == 200
    assert next(model["id"] for model in daemon.get("/v1/models")["data"]) == "a"
    # the call that hangs is given up after 20 s, and that is told
    assert [notice["code"] for notice in daemon.state()["notices"]] == ["runtime_slow"]
    wedge.wedge(on=False)
    body = {"model": "a", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    assert "error" not in daemon.post("/v1/chat/completions", body)

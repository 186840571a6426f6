"""`sparkdash demo`: what a script or a closed terminal may do to it."""

import contextlib
import os
import pty
import re
import select
import signal
import socket
import subprocess
import tempfile
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from daemons import Api, ready_engines, served
from programs import Program, run

WORDS = ["-m", "sparkdash", "demo"]
MARK = "SPARKDASH_TEST_MARK"
"""Handed down to every engine of a test's own demo: others may run on this box."""


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Variable that this test's processes carry in their environment."""
    monkeypatch.setenv(MARK, mark := uuid.uuid4().hex)
    return mark


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name (108 bytes in all)."""
    with tempfile.TemporaryDirectory(prefix="sd-") as folder:
        yield Path(folder)


def headless(*flags: str) -> AbstractContextManager[tuple[subprocess.Popen[str], Api]]:
    return served("demo", "--headless", "--speed", "20", *flags, stderr=subprocess.DEVNULL)


def simulators(mark: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "sparkdash.sim" in process.cmdline() and process.environ().get(MARK) == mark:
                found.append(process.pid)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_address_serves_and_ends_cleanly(number: signal.Signals, mark: str) -> None:
    """For scripts: one line when it answers, every figure simulated, exit code 0, no engine left."""
    import openai

    with headless("--no-traffic") as (child, api):
        with openai.OpenAI(base_url=f"{api.url}/v1", api_key="x", max_retries=0, timeout=60) as client:
            answer = client.chat.completions.create(
                model="qwen3-coder", messages=[{"role": "user", "content": "hello"}], max_tokens=8
            )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 8
        state = api.state()
        assert state["daemon"]["simulated"]
        changed = api.post("/api/settings", {"key": ["reserve_gib"], "value": "12"})
        settings = {one["name"]: one["value"] for one in changed["settings"]}
        assert (settings["reserve_gib"], settings["runtime"]) == ("12", '"process"'), "of a config.toml of its own"
        assert all(engine["simulated"] for engine in state["engines"].values())
        with urllib.request.urlopen(f"{api.url}/metrics", timeout=60) as reply:
            page = reply.read().decode()
        labels = 'client="openai-python",code="200",finish="length",profile="qwen3-coder-30b-nvfp4"'
        assert re.search(rf"sparkdash_requests_total\{{{labels},\S+\}} 1\.0", page)
        assert simulators(mark)
        child.send_signal(number)
        assert child.wait(timeout=30) == 0
    assert not simulators(mark)


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run([*WORDS, "--headless", "--port", port], text=True)
    assert done.returncode == 5
    assert port in done.stderr
    assert "--port" in done.stderr
    assert "serve" not in done.stderr, "it is no daemon of the owner's"
    assert "Traceback" not in done.stderr


@contextmanager
def dashboard(folder: Path, until: bytes) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The demo on a terminal of its own, once that has shown `until`; gives the other end of it too. Nothing of it is left."""
    leader, follower = pty.openpty()
    env = {**os.environ, "TMPDIR": str(folder), "TERM": "xterm-256color"}
    with Program([*WORDS, "--speed", "20"], stdin=follower, stdout=follower, stderr=follower, env=env) as child:
        os.close(follower)
        seen = b""
        while until not in seen:
            seen += os.read(leader, 65536)
        yield child, leader
    os.close(leader)
    assert not list(folder.glob("sparkdash-demo-*"))


@pytest.mark.full
def test_a_killed_daemon_leaves_nothing_once_the_dashboard_is_left(short_path: Path, mark: str) -> None:
    """kill -9 of the demo's daemon orphans its engine; leaving the dashboard sweeps up."""
    with dashboard(short_path, b"ready") as (child, leader):
        assert simulators(mark)
        os.kill(_daemon_of(child.pid), signal.SIGKILL)
        os.write(leader, b"q")
        with contextlib.suppress(OSError):  # EIO: the terminal's other end is gone
            while os.read(leader, 65536):
                pass
        assert child.wait(timeout=30) == 0
        assert not simulators(mark)


@pytest.mark.full
def test_a_terminal_that_goes_away_takes_the_demo_with_it(short_path: Path) -> None:
    with dashboard(short_path, b"SIMULATED") as (child, _):
        handle = os.pidfd_open(_daemon_of(child.pid))
        child.kill()
        child.wait()
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert poll.poll(30_000), "the demo's daemon outlived its terminal"
    os.close(handle)


def _daemon_of(parent: int) -> int:
    found = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[0])


@pytest.mark.full
def test_two_simulated_boxes_take_an_engine_each_or_one_over_both(mark: str) -> None:
    def ready(*names: str) -> Callable[[dict[str, Any]], bool]:
        return lambda state: ready_engines(state) == set(names)

    with headless("--no-traffic", "--nodes", "2") as (child, api):
        api.until(ready("gpt-oss-120b"))
        api.post("/api/use", {"profile": "qwen3.5-122b"})
        state = api.until(ready("gpt-oss-120b", "qwen3.5-122b"))
        assert {name: engine["nodes"] for name, engine in state["engines"].items()} == {
            "gpt-oss-120b": ["local"], "qwen3.5-122b": ["spark2"],
        }  # fmt: skip
        plan = api.post("/api/use", {"profile": "qwen3-235b"})
        assert plan["nodes"] == ["local", "spark2"]
        assert sorted(plan["evict"]) == ["gpt-oss-120b", "qwen3.5-122b"]
        api.until(ready("qwen3-235b"))
        assert len(simulators(mark)) == 2
        memories = lambda now: (now["sample"]["memory"], now["sample"]["nodes"]["spark2"]["memory"])  # noqa: E731
        api.until(lambda now: all(memory["engines"].get("qwen3-235b") for memory in memories(now)))
        api.post("/api/stop", {"profile": "qwen3-235b"})
        assert not simulators(mark)
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 0


@pytest.mark.full
def test_users_of_a_measured_profile_are_spread_over_its_replicas(tmp_path: Path) -> None:
    """All replicas come up before the first cell: one that loads beside it would spoil the figures."""
    suite = tmp_path / "few.yaml"
    suite.write_text(
        "suite: few\nversion: 1\nabout: a test\nlag_limit_ms: 60000\ncells: [{output: 32, concurrency: 8, reps: 1}]\n"
    )
    with headless("--no-traffic", "--nodes", "2") as (_, api):
        words = ["-m", "sparkdash", "bench", "gpt-oss-20b", "--suite", str(suite), "--yes"]
        env = os.environ | {"SPARKDASH_URL": api.url, "SPARKDASH_BENCH_DIR": str(tmp_path)}
        done = run(words, timeout=200, env=env, text=True)
        assert done.returncode == 0, done.stderr
        recent = api.state()["recent"]
    assert {row["profile"] for row in recent} == {"gpt-oss-20b", "gpt-oss-20b@spark2"}

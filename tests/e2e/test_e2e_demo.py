"""`sparkdash demo`: what a script or a closed terminal may do to it."""

from __future__ import annotations

import contextlib
import json
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from programs import Program, run

WORDS = ["-m", "sparkdash", "demo"]
MARK = "SPARKDASH_TEST_MARK"
"""Handed down to every engine of a test's own demo: others may run on this box."""


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """What this test's processes carry in their environment."""
    monkeypatch.setenv(MARK, mark := uuid.uuid4().hex)
    return mark


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name (108 bytes in all)."""
    with tempfile.TemporaryDirectory(prefix="sd-") as folder:
        yield Path(folder)


@contextmanager
def headless(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A headless demo and its root URL."""
    words = [*WORDS, "--headless", "--speed", "20", *flags]
    with Program(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            assert child.stdout is not None
            found = re.search(r"http://\S+?(?=/v1)", next(line for line in child.stdout if "serves" in line))
            assert found is not None
            yield child, found[0]
        finally:
            child.send_signal(signal.SIGTERM)


def simulators(mark: str) -> list[int]:
    """Process ids of this test's simulated engines."""
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

    with headless("--no-traffic") as (child, url):
        with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0, timeout=60) as client:
            answer = client.chat.completions.create(
                model="qwen3-coder", messages=[{"role": "user", "content": "hello"}], max_tokens=8
            )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 8
        with urllib.request.urlopen(f"{url}/api/state", timeout=60) as reply:
            state = json.load(reply)
        assert state["daemon"]["simulated"]
        assert all(engine["simulated"] for engine in state["engines"].values())
        assert simulators(mark)
        child.send_signal(number)
        assert child.wait(timeout=30) == 0
    assert not simulators(mark)


def test_a_port_that_is_taken_is_told() -> None:
    """One sentence with the port and the flag; no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run([*WORDS, "--headless", "--port", port], text=True)
    assert done.returncode == 5
    assert port in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_daemon_leaves_nothing_once_the_dashboard_is_left(short_path: Path, mark: str) -> None:
    """kill -9 of the demo's daemon orphans its engine; leaving the dashboard sweeps up."""
    leader, follower = pty.openpty()
    env = {**os.environ, "TMPDIR": str(short_path), "TERM": "xterm-256color"}
    with Program([*WORDS, "--speed", "20"], stdin=follower, stdout=follower, stderr=follower, env=env) as child:
        os.close(follower)
        seen = b""
        while b"ready" not in seen:
            seen += os.read(leader, 65536)
        assert simulators(mark)
        os.kill(_daemon_of(child.pid), signal.SIGKILL)
        os.write(leader, b"q")
        with contextlib.suppress(OSError):  # EIO: the terminal's other end is gone
            while os.read(leader, 65536):
                pass
        assert child.wait(timeout=30) == 0
    os.close(leader)
    assert not simulators(mark)
    assert not list(short_path.glob("sparkdash-demo-*"))


def test_a_terminal_that_goes_away_takes_the_demo_with_it(short_path: Path) -> None:
    """The window is closed or the TUI killed: its daemon and its engines end by themselves."""
    leader, follower = pty.openpty()
    env = {**os.environ, "TMPDIR": str(short_path), "TERM": "xterm-256color"}
    with Program([*WORDS, "--speed", "20"], stdin=follower, stdout=follower, stderr=follower, env=env) as child:
        os.close(follower)
        seen = b""
        while b"SIMULATED" not in seen:
            seen += os.read(leader, 65536)
        daemon = _daemon_of(child.pid)
        handle = os.pidfd_open(daemon)
        child.kill()
        child.wait()
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert poll.poll(30_000), "the demo's daemon outlived its terminal"
    os.close(handle)
    os.close(leader)
    assert not list(short_path.glob("sparkdash-demo-*"))


def _daemon_of(parent: int) -> int:
    found = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[0])

"""A run of the tests that is ended in the middle leaves no process, and the next run removes what a killed one left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import own_run
import pytest

TESTS = Path(__file__).parents[1]
SLEEPER = """
import os, subprocess, threading
def test_that_starts_a_process_of_its_own_session():
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    print(f"sleeper {child.pid} of {os.environ['SPARKDASH_TEST_RUN']}", flush=True)
    threading.Event().wait()
"""
pytestmark = pytest.mark.full


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A run whose only test has started a process and stands still; the process and the run's folder."""
    (tmp_path / "test_sleeper.py").write_text(SLEEPER)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = \n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS / "shared"), str(TESTS.parent)])}
    for name in ("PYTEST_XDIST_WORKER", own_run.VARIABLE):
        env.pop(name, None)
    words = [sys.executable, "-m", "pytest", "-s", "-q", "-p", "conftest", "-c", "pytest.ini", "test_sleeper.py"]
    run = subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    with run, run.stdout:
        for line in run.stdout:
            if line.startswith("sleeper"):
                _, pid, _, folder = line.split()
                break
        yield run, int(pid), Path(folder)
        run.kill()


def is_running(pid: int) -> bool:
    """Whether the process has not ended; one that ended may still wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_what_it_started(
    running: tuple[subprocess.Popen[str], int, Path], how: signal.Signals
) -> None:
    run, sleeper, folder = running
    run.send_signal(how)
    run.wait()
    assert (is_running(sleeper), folder.exists()) == (False, False)


def test_what_a_killed_run_left_is_ended_by_the_next_one(running: tuple[subprocess.Popen[str], int, Path]) -> None:
    run, sleeper, folder = running
    run.kill()
    run.wait()
    assert is_running(sleeper)
    own_run.end_killed_runs()
    assert (is_running(sleeper), folder.exists()) == (False, False)

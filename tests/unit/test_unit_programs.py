"""A program of the tests that is forked is the program that would have been started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs import Program, run

TELLS = """\
import json, os, random, signal, sys, threading
first = sys.stdin.readline()
facts = {
    "argv": sys.argv, "orig_argv": sys.orig_argv, "name": __name__, "path": sys.path[0], "folder": os.getcwd(),
    "env": {name: value for name, value in os.environ.items() if name != "LC_CTYPE"},
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)],
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "umask": os.umask(0o22), "read": first,
    "streams": [[each.fileno(), each.encoding, each.errors, each.line_buffering] for each in (sys.stdout, sys.stderr)],
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1], "threads": threading.active_count(),
    "leads": os.getsid(0) == os.getpid(), "mine": __import__("beside").HERE, "sparkdash": "sparkdash" in sys.modules,
}
print(json.dumps(facts))
print("said", file=sys.stderr)
print(random.random(), os.getpid())
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A program that tells what it finds, beside a module of its own."""
    (tmp_path / "beside.py").write_text("HERE = 'beside'")
    (tmp_path / "tells.py").write_text(TELLS)
    return str(tmp_path / "tells.py")


@pytest.mark.parametrize("leads", [False, True])
def test_it_finds_what_a_started_one_finds(script: str, tmp_path: Path, leads: bool) -> None:
    told: list[Any] = []
    env = {name: value for name, value in os.environ.items() if name != "HOME"} | {"A": "b\n"}
    how: dict[str, Any] = {"cwd": tmp_path, "env": env, "text": True, "start_new_session": leads}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    make: list[Callable[..., subprocess.Popen[str]]] = [
        lambda words, **how: subprocess.Popen([sys.executable, *words], **how),
        Program,
    ]
    for begin in make:
        with begin([script, "3"], **pipes, **how) as process:
            out, err = process.communicate("line\n", timeout=60)
        facts, chance = out.splitlines()
        assert chance.split()[1] == str(process.pid)
        told.append((json.loads(facts), err, process.returncode))
    assert told[0][0].pop("sparkdash") is False
    assert told[1][0].pop("sparkdash") is (sys.platform == "linux")
    assert told[1] == told[0]


def test_two_of_them_are_strangers(script: str) -> None:
    said = [run([script, "0"], text=True, stdin=subprocess.DEVNULL).stdout.splitlines()[1].split() for _ in range(2)]
    assert said[0][0] != said[1][0]


def test_it_is_seen_to_live_and_to_die(script: str) -> None:
    with Program([script, "0"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert process.poll() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_what_python_reads_at_its_start_is_read(tmp_path: Path) -> None:
    (tmp_path / "optimised.py").write_text("import sys; print(sys.flags.optimize)")
    done = run([str(tmp_path / "optimised.py")], env={**os.environ, "PYTHONOPTIMIZE": "1"}, text=True)
    assert done.stdout == "1\n"


def test_a_traceback_and_an_interrupt(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("1 / 0")
    done = run([str(tmp_path / "fails.py")], text=True)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")
    (tmp_path / "waits.py").write_text("import sys; print('up', flush=True); sys.stdin.read()")
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Program([str(tmp_path / "waits.py")], **pipes, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1].splitlines()[-1] == "KeyboardInterrupt"
    assert process.returncode == -signal.SIGINT

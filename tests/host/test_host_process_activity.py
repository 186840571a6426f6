"""Activity of processes, as the kernel tells it: recorded lines, and processes of our own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkdash.host.processes import activity

VLLM = b"4711 (VLLM::EngineCor) R 1 4711 4711 0 -1 4194304 9 8 7 6 1500 250 30 20 20 0 131 0 99 1 2 3\n"


@pytest.mark.parametrize(
    ("name", "compiles"),
    [
        ("ptxas", True),
        ("ptxas-blackwell", True),
        ("nvcc", True),
        ("cicc", True),
        ("cudafe++", True),
        ("ninja", True),
        ("cc1plus", True),
        ("g++", True),
        ("gcc-13", True),
        ("aarch64-linux-g", True),
        ("clang-18", True),
        ("ld.lld", True),
        ("python3", False),
        ("VLLM::EngineCor", False),
        ("llama-server", False),
        ("asyncio", False),
        ("ld-linux-aarch6", False),
        ("cuda-EvtHandlr", False),
    ],
)
def test_compilers_are_known_by_name(name: str, compiles: bool) -> None:
    """The kernel keeps 15 characters of a name."""
    assert activity.is_compiler(name) is compiles


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []

    def begin(*argv: str) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(argv, stdout=subprocess.PIPE))
        return made[-1]

    yield begin
    for process in made:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def until(holds: Callable[[], object], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)


def test_processes_that_work_use_time_and_those_that_are_stopped_are_named(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    busy = start(sys.executable, "-c", "while True: pass")
    sleeper = start("sleep", "600")
    pids = {busy.pid, sleeper.pid}
    until(lambda: (seen := activity.read_activity(pids)) and seen.cpu_s > 0.2)
    before = activity.read_activity(pids)
    assert before is not None
    assert (before.processes, before.stopped, before.compilers) == (2, (), ())
    os.kill(busy.pid, signal.SIGSTOP)
    until(lambda: (seen := activity.read_activity(pids)) and seen.stopped)
    stopped = activity.read_activity(pids)
    assert stopped is not None
    assert len(stopped.stopped) == 1
    assert stopped.cpu_s >= before.cpu_s
    os.kill(busy.pid, signal.SIGCONT)
    until(lambda: (seen := activity.read_activity(pids)) and not seen.stopped)


def test_the_time_of_a_child_that_ended_stays(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    """A compiler that has ended must not make the sum fall."""
    code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'sum(range(10**7))'])\nprint('done', flush=True)\ninput()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        parent.stdout.readline()
        seen = activity.read_activity([parent.pid])
        assert seen is not None
        assert seen.cpu_s >= 0.1
    finally:
        parent.kill()
        parent.communicate()


def test_a_compiler_among_them_is_named(start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> None:
    """By the name that the kernel keeps, whatever its folder."""
    program = tmp_path / "ptxas"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    seen = activity.read_activity([start(str(program), "600").pid, os.getpid()])
    assert seen is not None
    assert seen.compilers == ("ptxas",)


def test_processes_that_are_gone_are_nothing(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    """One that vanished is left out; when all have, there is no figure."""
    gone = start("true")
    gone.wait()
    assert activity.read_activity([gone.pid]) is None
    seen = activity.read_activity([gone.pid, os.getpid()])
    assert seen is not None
    assert seen.processes == 1


def proc_of(folder: Path, told: bytes) -> Path:
    process = folder / "proc" / "7"
    process.mkdir(parents=True)
    (process / "stat").write_bytes(told)
    (process / "io").write_text("rchar: 9\nread_bytes: 4096\nwrite_bytes: 1\n")
    return folder / "proc"


def test_a_process_that_a_signal_stopped_is_named(tmp_path: Path) -> None:
    """By a name that is its own choice: it may hold brackets, spaces and escapes. Its time is also its children's."""
    proc = proc_of(tmp_path, VLLM.replace(b"(VLLM::EngineCor) R", b"(a) (b)\x1b[2J\n\xff R c) T"))
    seen = activity.read_activity([7], proc)
    assert seen is not None
    assert (seen.stopped, seen.read_bytes) == (("a) (b)\\u001b[2J\\u000a\ufffd R c",), 4096)
    assert seen.cpu_s == 1800 / os.sysconf("SC_CLK_TCK")


def test_processes_that_wait_in_the_kernel_are_counted(tmp_path: Path) -> None:
    """State D; figures of storage that may not be read are not known."""
    proc = proc_of(tmp_path, VLLM.replace(b") R ", b") D "))
    (proc / "7" / "io").unlink()
    seen = activity.read_activity([7], proc)
    assert seen is not None
    assert (seen.in_kernel, seen.read_bytes) == (1, None)

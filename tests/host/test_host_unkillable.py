"""What keeps a process that SIGKILL does not end, in words."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sparkdash.host.processes import leftovers

ME = os.getpid()


def proc(tmp_path: Path, state: str, wchan: str = "0") -> Path:
    folder = tmp_path / str(ME)
    folder.mkdir()
    (folder / "stat").write_text(f"{ME} (VLLM::Engine) {state} 1 {'1 ' * 40}")
    (folder / "wchan").write_text(wchan)
    return tmp_path


@pytest.mark.parametrize(
    ("state", "wchan", "words"),
    [
        ("D", "uvm_spin_loop", "waits in the kernel (state D), where no signal reaches it, in uvm_spin_loop"),
        ("D", "0", "waits in the kernel (state D), where no signal reaches it"),
        ("R", "", "runs in the kernel (state R) and does not come back from it"),
        ("S", "do_poll", "is in state S, in do_poll"),
    ],
)
def test_its_state_and_place(tmp_path: Path, state: str, wchan: str, words: str) -> None:
    assert leftovers.describe_stuck(ME, proc(tmp_path, state, wchan)) == f"{ME} (VLLM::Engine) {words}"


def test_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    told = leftovers.describe_stuck(ME, proc(tmp_path, "S"))
    assert told.startswith(f"{ME} (VLLM::Engine) belongs to ")
    assert told.endswith(", whose processes sparkdash may not end")


def test_one_that_ended_meanwhile(tmp_path: Path) -> None:
    assert leftovers.describe_stuck(ME, tmp_path) == f"{ME} has ended by now"


def test_as_an_error() -> None:
    error = leftovers.unkillable_error("sparkdash-a", {ME}, 5.0)
    assert error.message.startswith(f"sparkdash-a does not end: 5.0s after SIGKILL process {ME} (")
    assert error.code == "unkillable"
    assert "restart of the box" in (error.hint or "")


def test_a_process_is_continued_before_the_kernel_shows_that_it_was_stopped() -> None:
    """On a busy box the signal that stops a process takes hold when the process runs again; until then its state is R."""
    script = "trap 'echo continued; exit' CONT; echo up; while :; do sleep 0.01; done"
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "up\n"
        try:
            leftovers.resume(leftovers.births([shell.pid]))
            assert shell.wait(10) == 0
            assert shell.stdout.read() == "continued\n"
        finally:
            shell.kill()

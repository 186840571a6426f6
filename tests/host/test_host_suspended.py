"""Frozen control groups: which of them are a container's, and how each kind is thawed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sparkdash.host.processes import leftovers

ID = "ab" * 32
V2 = f"0::/user.slice/user@1000.service/user.slice/libpod-{ID}.scope/container"
V1 = f"7:freezer:/libpod_parent/libpod-{ID}\n4:memory:/libpod_parent/libpod-{ID}\n0::/"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where control groups are mounted."""
    return tmp_path / "cgroup"


def process(tmp_path: Path, groups: str) -> Path:
    """A /proc with one process, 7."""
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(groups)
    return tmp_path / "proc"


def group(root: Path, path: str, file: str, state: str) -> Path:
    (root / path).mkdir(parents=True, exist_ok=True)
    (root / path / file).write_text(state)
    return root / path / file


@pytest.mark.parametrize("mount", ["", "unified/"])
def test_cgroup_v2(tmp_path: Path, root: Path, mount: str) -> None:
    """The frozen one may be above the process's own; those above the container are left alone."""
    proc = process(tmp_path, V2)
    slice_ = f"{mount}user.slice/user@1000.service/user.slice"
    ours = group(root, f"{slice_}/libpod-{ID}.scope", "cgroup.freeze", "1\n")
    inner = group(root, f"{slice_}/libpod-{ID}.scope/container", "cgroup.freeze", "0\n")
    above = group(root, slice_, "cgroup.freeze", "1\n")
    assert leftovers.is_container_frozen([7], ID, proc, root)
    leftovers.resume({7: ""}, ID, proc, root)
    assert [each.read_text().strip() for each in (ours, inner, above)] == ["0", "0", "1"]
    assert not leftovers.is_container_frozen([7], ID, proc, root)


@pytest.mark.parametrize("state", ["FROZEN", "FREEZING"])
def test_cgroup_v1(tmp_path: Path, root: Path, state: str) -> None:
    proc = process(tmp_path, V1)
    file = group(root, f"freezer/libpod_parent/libpod-{ID}", "freezer.state", state)
    leftovers.resume({7: ""}, ID, proc, root)
    assert file.read_text() == "THAWED"


def test_a_process_of_no_container_and_one_that_is_gone(tmp_path: Path, root: Path) -> None:
    proc = process(tmp_path, V2.replace(ID, "cd" * 32))
    file = group(root, f"user.slice/user@1000.service/user.slice/libpod-{'cd' * 32}.scope", "cgroup.freeze", "1")
    assert not leftovers.is_container_frozen([7, 8], ID, proc, root)
    leftovers.resume({7: "", 8: ""}, ID, proc, root)
    assert file.read_text() == "1"


def test_a_process_is_continued_before_the_kernel_shows_that_it_was_stopped() -> None:
    """On a busy box the signal that stops a process takes hold when the process runs again; until then its state is R."""
    script = "trap 'echo continued; exit' CONT; echo up; while :; do sleep 0.01; done"
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "up\n"
        try:
            leftovers.resume(leftovers.births([shell.pid]), None)
            assert shell.wait(10) == 0
            assert shell.stdout.read() == "continued\n"
        finally:
            shell.kill()

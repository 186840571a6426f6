"""Processes that outlive their engine, and those that SIGKILL does not end."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.container import ENV_MARK
from sparkdash.host.processes import ending, leftovers

ME = os.getpid()


def proc(tmp_path: Path, state: str, wchan: str = "0") -> Path:
    folder = tmp_path / str(ME)
    folder.mkdir()
    (folder / "stat").write_text(f"{ME} (VLLM::Engine) {state} 1 {'1 ' * 40}")
    (folder / "wchan").write_text(wchan)
    return tmp_path


@pytest.mark.parametrize(("state", "wchan", "words"), [
    ("D", "uvm_spin_loop", "waits in the kernel (state D), where no signal reaches it, in uvm_spin_loop"),
    ("D", "0", "waits in the kernel (state D), where no signal reaches it"),
    ("R", "", "runs in the kernel (state R) and does not come back from it"),
    ("S", "do_poll", "is in state S, in do_poll"),
])  # fmt: skip
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
    error = ending.unkillable_error("sparkdash-a", {ME}, 5.0)
    assert error.message.startswith(f"sparkdash-a does not end: 5.0s after SIGKILL process {ME} (")
    assert error.code == "unkillable"
    assert "restart of the box" in (error.hint or "")


ID = "6843b982b10397a483bcb2004af42f2d8017c961dd803fe0956216b12f9209c6"


@pytest.fixture
def orphan(new_child: Any) -> Callable[..., int]:
    """A process in a session of its own, with this mark; its pid."""
    words = (sys.executable, "-S", "-c", "import signal; print(flush=True); signal.pause()")
    return lambda mark: new_child(*words, env={**os.environ, ENV_MARK: mark}, start_new_session=True).pid


def planted(proc: Path, pid: int, *, cgroup: str = "0::/", environ: bytes = b"", state: str = "S") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (a b) {state} 1 {pid} {pid} {'0 ' * 15}77 0\n")
    (folder / "cgroup").write_text(cgroup)
    (folder / "environ").write_bytes(environ)


@pytest.mark.parametrize(("cgroup", "container", "found"), [
    (f"4:memory:/libpod_parent/libpod-{ID}\n0::/libpod_parent/libpod-{ID}\n", ID, {7}),
    (f"0::/machine.slice/libpod-{ID}.scope/container\n", ID, {7}),
    (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope\n", ID, {7}),
    (f"0::/system.slice/docker-{ID}.scope\n", ID, {7}), (f"4:memory:/docker/{ID}\n", ID, {7}),
    (f"0::/machine.slice/libpod-conmon-{ID}.scope\n", ID, set()),
    (f"0::/machine.slice/libpod-{ID}.scope\n", ID[:12], set()), ("1:cpu:/system.slice/ssh.service\n", "1", set()),
    ("0::/\n", "", set()), ("0::/\n", None, set()),
])  # fmt: skip
def test_a_container_is_known_by_its_control_group_and_its_whole_id(
    tmp_path: Path, cgroup: str, container: str | None, found: set[int]
) -> None:
    """A container's monitor is not ended with it, nor is anybody where the id tells too little to kill by."""
    planted(tmp_path, 7, cgroup=cgroup)
    assert set(leftovers.processes_of_engine("us/x", container, tmp_path)) == found


def test_what_waits_in_the_kernel_for_a_moment_is_asked_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that comes from disk must not hide a `podman run`; what hangs for ever is passed by."""
    for pid in (7, 8):
        planted(tmp_path, pid, environ=f"{ENV_MARK}=us/x\0".encode(), state="D")
        (tmp_path / str(pid) / "cmdline").write_bytes(b"podman\0run\0")
    stat = tmp_path / "7/stat"

    def woken(_seconds: float) -> None:
        stat.write_text(stat.read_text().replace(" D ", " S "))

    monkeypatch.setattr(leftovers.time, "sleep", woken)
    assert set(leftovers.processes_called(lambda words: "run" in words, tmp_path)) == {7}
    stat.write_text(stat.read_text().replace(" S ", " D "))
    assert set(leftovers.processes_of_engine("us/x", None, tmp_path)) == {7}


def test_the_mark_in_its_environment_tells_an_engine(tmp_path: Path) -> None:
    for pid, value in {5: "us/x", 6: "us/x2", 7: "them/x", 8: ""}.items():
        planted(tmp_path, pid, environ=f"A=1\0{ENV_MARK}={value}\0B=2\0".encode())
    assert set(leftovers.processes_of_engine("us/x", None, tmp_path)) == {5}
    assert {mark: set(found) for mark, found in leftovers.processes_of_owner("us", tmp_path).items()} == {
        "us/x": {5},
        "us/x2": {6},
    }


def test_the_environment_of_what_hangs_in_the_kernel_is_not_read(tmp_path: Path) -> None:
    """The reader may hang too; the control group can be read, and a zombie holds nothing."""
    marked = f"{ENV_MARK}=us/x\0".encode()
    planted(tmp_path, 5, environ=marked, state="D")
    planted(tmp_path, 6, environ=marked, state="D", cgroup=f"0::/libpod-{ID}\n")
    planted(tmp_path, 7, environ=marked, state="Z")
    assert set(leftovers.processes_of_engine("us/x", ID, tmp_path)) == {6}


async def test_an_orphan_is_ended(orphan: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "SCAN_S", 60.0)
    monkeypatch.setattr(leftovers, "KILLED_S", 60.0)
    pid = orphan("us/ended")
    found = await ending.scan_for_engine("us/ended")
    assert set(found) == {pid}
    left = await ending.end_processes(found)
    assert (left.ended, left.stuck) == ((pid,), ())
    assert leftovers.births([pid]) == {}


async def test_a_look_that_is_late_finds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()

    def hangs(*_: object) -> leftovers.Births:
        held.wait()
        return {1: "boot:1"}

    monkeypatch.setattr(leftovers, "processes_of_engine", hangs)
    monkeypatch.setattr(ending, "SCAN_S", 0.01)
    assert await ending.scan_for_engine("us/late") == {}
    held.set()


async def test_a_pid_that_changed_hands_is_left_alone(orphan: Callable[..., int]) -> None:
    pid = orphan("us/stranger")
    left = await ending.end_processes({pid: "another-boot:1"})
    assert left.ended == left.stuck == ()
    assert pid in leftovers.births([pid])


def test_a_seccomp_profile_is_the_boxes_own_with_io_uring_allowed(tmp_path: Path) -> None:
    default, made = tmp_path / "default.json", tmp_path / "made" / "profile.json"
    rules = [{"names": ["read", "io_uring_setup"], "action": "SCMP_ACT_ERRNO"}, {"names": ["write"], "action": "x"}]
    default.write_text(json.dumps({"defaultErrnoRet": 38, "syscalls": rules}))
    assert leftovers.allow_io_uring(str(made), [str(tmp_path / "none"), str(default)]) is None
    added = {"names": ["io_uring_setup", "io_uring_enter", "io_uring_register"], "action": "SCMP_ACT_ALLOW"}
    assert json.loads(made.read_text()) == {
        "defaultErrnoRet": 38,
        "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ERRNO"}, rules[1], added],
    }
    assert [each.name for each in made.parent.iterdir()] == ["profile.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"syscalls": [1]}'])
def test_a_default_that_is_no_seccomp_profile_is_named(tmp_path: Path, text: str) -> None:
    default = tmp_path / "default.json"
    default.write_text(text)
    told = leftovers.allow_io_uring(str(tmp_path / "made"), [str(default)])
    assert told == (str(default), "it is no seccomp profile")


def test_a_hanging_run_of_a_killed_daemon_ends_with_its_helpers(tmp_path: Path) -> None:
    """podman's helpers share the session of its command; the monitor of a container leads its own."""
    (tmp_path / "run").write_text("sleep 600 & echo $$ $!; setsid sh -c 'echo $$; exec sleep 600' & wait\n")
    words = ["podman", "run", "--label=sparkdash.owner=me"]
    daemon = f"import subprocess; subprocess.Popen({words}, executable='/bin/sh', start_new_session=True)"
    with subprocess.Popen([sys.executable, "-c", daemon], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as killed:
        hanging, helper, monitor = map(int, (killed.stdout.readline() + killed.stdout.readline()).split())
        killed.wait()
        try:
            done = leftovers.carry_out("settle", "podman", words[-1], "sparkdash-", "0")
            assert done == {"ended": sorted((hanging, helper)), "stuck": []}
            assert leftovers.births([monitor])
        finally:
            for pid in leftovers.births([hanging, helper, monitor]):
                os.kill(pid, 9)

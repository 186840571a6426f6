"""Names of one run of the tests on this machine, so that two checkouts can test at once and nothing outlives a run.

A run has a folder, with a podman storage for each worker (container names are unique per storage), and a variable that
every process it starts inherits. `end` kills what still has the variable, unmounts what lies below the folder, and
removes it; a run that was killed is ended by the next one.
"""

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import time
from functools import cache
from pathlib import Path

VARIABLE = "SPARKDASH_TEST_RUN"
PARENT = Path("/var/tmp")  # a disk, as podman's storage needs, and short, as the names of sockets must be
PREFIX = "sdtest-"
FIRST_PORT, PORTS, BLOCKS = 20_000, 100, 120
"""Below 32768, where no client's own port is met."""


def end_killed_runs() -> None:
    for left in PARENT.glob(f"{PREFIX}*"):
        pid, _, born = left.name.removeprefix(PREFIX).partition("-")
        if _born(int(pid)) != born:
            end(left)


def begin() -> Path:
    """Make this run's folder and name it to every process that it will start."""
    end_killed_runs()
    folder = PARENT / f"{PREFIX}{os.getpid()}-{_born(os.getpid())}"
    folder.mkdir()
    os.environ[VARIABLE] = str(folder)
    return folder


def own_podman_storage(worker: str) -> None:
    folder = Path(os.environ[VARIABLE]) / worker
    folder.mkdir()
    roots = f'graphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    (folder / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\n{roots}')
    os.environ["CONTAINERS_STORAGE_CONF"] = str(folder / "storage.conf")


def end(folder: Path) -> None:
    """Kill every process of the run, unmount what it mounted and remove its folder. Safe to repeat."""
    for pid in folder.glob("docker-*/pid"):  # it ends its containers, which have not inherited the run's variable
        with contextlib.suppress(ProcessLookupError):
            daemon = os.pidfd_open(int(pid.read_text()))
            signal.pidfd_send_signal(daemon, signal.SIGTERM)
            select.select([daemon], [], [], 20)
            os.close(daemon)
    for _ in range(50):  # a process that is killed may have started another meanwhile
        if not (left := _processes_of(folder)):
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    for conf in folder.glob("*/storage.conf"):
        if (conf.parent / "graph").exists() and shutil.which("podman"):
            env = {**os.environ, "CONTAINERS_STORAGE_CONF": str(conf)}
            subprocess.run(["podman", "rm", "--all", "--force", "--time", "0"], env=env, capture_output=True)
    remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is mounted below it."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for place in sorted((each for each in mounted if each.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", place], capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def _processes_of(folder: Path) -> list[int]:
    """Processes that inherited the run's variable, this one and those that wait for it left out."""
    mark = f"{VARIABLE}={folder}".encode()
    kept = {os.getpid(), *_ancestors(os.getpid())}
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if (pid := int(entry.name)) not in kept and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def _ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1 and (fields := _stat(pid)):
        pid = int(fields[1])
        found.add(pid)
    return found


def _born(pid: int) -> str:
    """Start time of a process, in clock ticks since boot: a pid alone may be another process's by now."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on; [] when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@cache
def engine_ports() -> tuple[int, int]:
    """Return the first and last port of a range that no other worker of any run has while this process lives."""
    for block in range(BLOCKS):
        try:
            lock = os.open(PARENT / f"sparkdash-test-ports-{block}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        except PermissionError:  # another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        first = FIRST_PORT + block * PORTS
        return first, first + PORTS - 1
    raise AssertionError("every range of ports is taken by another run of the tests")

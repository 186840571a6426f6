"""Processes that receive no signal: stopped by one, or frozen with their control group.

Owns: resuming them, so that SIGTERM can reach them. Must not know why they are to end, nor the runtime.

SIGTERM waits until a stopped process continues: a stopped engine would be killed after its whole grace, and leave its
shared memory behind. In a frozen control group of cgroup v1 not even SIGKILL takes effect. Only the groups of the
container itself are thawed, as the groups above belong to others.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from sparkdash.host.processes import leftovers
from sparkdash.host.processes.activity import CGROUP
from sparkdash.host.processes.proc import PROC

_V1 = ("freezer.state", ("FROZEN", "FREEZING"), "THAWED")
_V2 = ("cgroup.freeze", ("1",), "0")


def is_frozen(pids: Iterable[int], container: str, proc: Path = PROC, root: Path = CGROUP) -> bool:
    """Whether a control group of this container is frozen."""
    return any(_frozen(pids, container, proc, root))


def resume(processes: Mapping[int, str], container: str | None, proc: Path = PROC, root: Path = CGROUP) -> None:
    """Thaw the container's control groups and continue all of its processes, as far as permitted.

    SIGCONT goes to every process, as it also cancels a SIGSTOP that is still pending on a busy box.
    """
    for file, word in _frozen(processes, container, proc, root) if container else ():
        with contextlib.suppress(OSError):
            file.write_text(word)
    for pid, birth in processes.items():
        _continue(pid, birth)


def _continue(pid: int, birth: str) -> None:
    """Send SIGCONT through a pidfd, as the pid might be reused."""
    with contextlib.suppress(OSError):
        held = os.pidfd_open(pid)
        try:
            if leftovers.births([pid]).get(pid) == birth:
                signal.pidfd_send_signal(held, signal.SIGCONT)
        finally:
            os.close(held)


def _frozen(pids: Iterable[int], container: str, proc: Path, root: Path) -> list[tuple[Path, str]]:
    """Files that thaw the container's frozen control groups, each with the text to write."""
    folders = {folder for pid in pids for folder in _groups(_told(proc / str(pid) / "cgroup"), container, root)}
    found = []
    for folder in sorted(folders):
        for name, frozen, thawed in (_V1, _V2):
            with contextlib.suppress(OSError):
                if (folder / name).read_text().strip() in frozen:
                    found.append((folder / name, thawed))
    return found


def _groups(told: bytes, container: str, root: Path) -> set[Path]:
    """Folders of a process's control groups that belong to the container: its own, and those within it."""
    found = set()
    for line in told.decode("utf-8", "replace").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "freezer" not in controllers.split(","):
            continue
        mounts = [root / "freezer"] if controllers else [root, root / "unified"]
        parts = path.strip("/").split("/")
        for end in range(len(parts), 0, -1):
            if container in "/".join(parts[:end]):
                found |= {mount.joinpath(*parts[:end]) for mount in mounts}
    return found


def _told(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""

"""Killing an engine without asking anybody.

Owns: what must be known of its processes beforehand, and SIGKILL to all of them. Must not know why.

podman and docker may hang on a box short of memory, so nothing here calls them. The leader is held by a pidfd, which
never means a later process with the same pid. With a leader that is a container's pid 1 the kernel ends the whole pid
namespace; the control group (version 2) and the process tree find what lives outside of one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sparkdash.domain.container import ContainerInfo
from sparkdash.host import proc

CGROUPS = Path("/sys/fs/cgroup")


class Target:
    """The processes of one engine, as they can be found at any later time. Safe to use from any thread."""

    def __init__(self, pid: int, birth: str, fd: int, cgroup: Path | None) -> None:
        self._pid = pid
        self._birth = birth
        self._fd = fd
        self._cgroup = cgroup
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def of(cls, container: ContainerInfo) -> Target | None:
        """The target of a container or process that runs; None when it has ended, or its runtime told no pid."""
        if container.pid is None:
            return None
        try:
            fd = os.pidfd_open(container.pid)
        except OSError:
            return None
        birth = proc.birth(container.pid)
        if birth is None:
            os.close(fd)
            return None
        return cls(container.pid, birth, fd, _cgroup(container.pid, container.id))

    @property
    def alive(self) -> bool:
        """Does its leader still run?"""
        now = proc.stat(self._pid)
        return now is not None and not now.ended and proc.birth(self._pid) == self._birth

    def kill(self) -> int:
        """SIGKILL to every process of it; how many it was sent to. Never waits for their end, never raises."""
        with self._lock:
            return 0 if self._closed else self._kill()

    def close(self) -> None:
        """Let go of it. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._fd)

    def _kill(self) -> int:
        members = self._members()
        if self._cgroup is not None:
            with contextlib.suppress(OSError):  # kernels before 5.14 have no such file
                (self._cgroup / "cgroup.kill").write_text("1")
        sent = sum(_sent(partial(os.kill, pid, signal.SIGKILL)) for pid in members - {self._pid})
        # last: its end would make its children somebody else's, and they would be found no more
        return sent + _sent(partial(signal.pidfd_send_signal, self._fd, signal.SIGKILL))

    def _members(self) -> set[int]:
        now = proc.birth(self._pid)
        tree = proc.family(self._pid) if now in (None, self._birth) else set[int]()
        return tree | (_processes(self._cgroup) if self._cgroup else set())


def _sent(send: Callable[[], None]) -> bool:
    try:
        send()
    except OSError:  # gone already, or another user's
        return False
    return True


def _cgroup(pid: int, id_: str) -> Path | None:
    """The control group that is this container's own: it bears the container's id. None for any other."""
    try:
        lines = (proc.PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    place = next((Path(line.removeprefix("0::/")) for line in lines if line.startswith("0::/")), Path())
    own = [part for part in (place, *place.parents) if id_ in part.name]
    return CGROUPS / own[-1] if own else None


def _processes(cgroup: Path) -> set[int]:
    found: set[int] = set()
    for file in (cgroup / "cgroup.procs", *cgroup.glob("**/cgroup.procs")):
        with contextlib.suppress(OSError, ValueError):
            found.update(map(int, file.read_text().split()))
    return found

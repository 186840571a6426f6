"""Kill of an engine without the container runtime.

Owns: finding the engine's processes beforehand, and SIGKILL to all of them. Must not know the reason.

podman and docker may hang on a box short of memory, so nothing here calls them. A pidfd holds the leader, which never
means a later process with the same pid. A container's leader is the first process of its pid namespace: the kernel ends
all others with it. Of a plain process the session and the descendants are killed too. Processes that have left both are
found by their mark when the supervisor cleans up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from functools import partial

from sparkdash.domain.container import ContainerInfo
from sparkdash.host.processes import proc


class KillTarget:
    """Processes of one engine, held so that a later kill finds them. Safe to use from any thread."""

    def __init__(self, pid: int, birth: str, fd: int) -> None:
        self._pid = pid
        self._birth = birth
        self._fd = fd
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def of(cls, container: ContainerInfo) -> KillTarget | None:
        """Open a running container or process; None if it has ended or its runtime reported no pid."""
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
        return cls(container.pid, birth, fd)

    @property
    def alive(self) -> bool:
        """Whether the leader still runs."""
        now = proc.stat(self._pid)
        return now is not None and not now.ended and proc.birth(self._pid) == self._birth

    def kill(self) -> int:
        """Send SIGKILL to every process; return their number, 0 if none may be signalled. Never waits, never raises."""
        with self._lock:
            return 0 if self._closed else self._kill()

    def close(self) -> None:
        """Close the pidfd. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._fd)

    def _kill(self) -> int:
        # listed before the kill, as the end of the leader orphans its children; the leader goes first, as it might end
        # or start others when it loses them
        others = self._others()
        leader = _gone(partial(signal.pidfd_send_signal, self._fd, signal.SIGKILL))
        return leader + sum(_gone(partial(os.kill, pid, signal.SIGKILL)) for pid in others)

    def _others(self) -> set[int]:
        """Other processes of the engine; empty if they cannot be listed for lack of descriptors."""
        if proc.birth(self._pid) not in (None, self._birth):
            return set()
        with contextlib.suppress(OSError):
            return proc.family(self._pid) - {self._pid}
        return set()


def _gone(send: Callable[[], None]) -> bool:
    try:
        send()
    except ProcessLookupError:  # ended since it was listed, mostly together with its leader
        return True
    except OSError:  # a process of another user
        return False
    return True

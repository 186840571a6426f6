"""Killing an engine without asking anybody.

Owns: what must be known of its processes beforehand, and SIGKILL to all of them. Must not know why.

podman and docker may hang on a box short of memory, so nothing here calls them. The leader is held by a pidfd, which
never means a later process with the same pid. A container's leader is the first process of its pid namespace: with it
the kernel ends all others in there. Of a plain process the session and the descendants go too; what has left both is
found by its mark when the supervisor clears away.
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
    """The processes of one engine, as they can be found at any later time. Safe to use from any thread."""

    def __init__(self, pid: int, birth: str, fd: int) -> None:
        self._pid = pid
        self._birth = birth
        self._fd = fd
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def of(cls, container: ContainerInfo) -> KillTarget | None:
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
        return cls(container.pid, birth, fd)

    @property
    def alive(self) -> bool:
        """Does its leader still run?"""
        now = proc.stat(self._pid)
        return now is not None and not now.ended and proc.birth(self._pid) == self._birth

    def kill(self) -> int:
        """SIGKILL to every process of it; how many of them go, 0 when none may be signalled. Never waits, never raises."""
        with self._lock:
            return 0 if self._closed else self._kill()

    def close(self) -> None:
        """Let go of it. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._fd)

    def _kill(self) -> int:
        # listed while it lives, as its end makes its children somebody else's; and it goes first, as it might end by
        # itself, or start others, when it loses them
        others = self._others()
        leader = _gone(partial(signal.pidfd_send_signal, self._fd, signal.SIGKILL))
        return leader + sum(_gone(partial(os.kill, pid, signal.SIGKILL)) for pid in others)

    def _others(self) -> set[int]:
        """None where they cannot be listed, as no descriptor is left: the leader is held by one."""
        if proc.birth(self._pid) not in (None, self._birth):
            return set()
        with contextlib.suppress(OSError):
            return proc.family(self._pid) - {self._pid}
        return set()


def _gone(send: Callable[[], None]) -> bool:
    try:
        send()
    except ProcessLookupError:  # since it was listed: most often its leader took it along
        return True
    except OSError:  # another user's
        return False
    return True

"""Ending: when a process of this box ends, somebody is told.

Owns: the descriptor by which the kernel tells it. Must not know whose process it is, or what follows.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class ProcessExitWatch:
    """Watches one process at a time."""

    def __init__(self) -> None:
        self._fd: int | None = None

    def watch(self, pid: int, tell: Callable[[], None]) -> None:
        """Have `tell` called by the loop once that process has ended. Never for a number that is no process's here: whoever
        sent it may count otherwise, in a container."""
        self.forget()
        try:
            self._fd = os.pidfd_open(pid)
        except OSError:
            return
        asyncio.get_running_loop().add_reader(self._fd, self._over, tell)

    def forget(self) -> None:
        """Watch nothing."""
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _over(self, tell: Callable[[], None]) -> None:
        self.forget()
        tell()

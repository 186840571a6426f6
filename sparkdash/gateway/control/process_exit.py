"""ProcessExitWatch: a callback when a process of this box ends.

Owns: the process descriptor. Must not know whose process it is, or what follows.
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
        """Have the loop call `tell` once the process has ended; watch no other process from then on.

        A pid without a process is ignored: the sender may run in a container, where pids differ.
        """
        self.forget()
        try:
            self._fd = os.pidfd_open(pid)
        except OSError:
            return
        asyncio.get_running_loop().add_reader(self._fd, self._on_exit, tell)

    def forget(self) -> None:
        """Stop watching; a second call does nothing."""
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _on_exit(self, tell: Callable[[], None]) -> None:
        self.forget()
        tell()

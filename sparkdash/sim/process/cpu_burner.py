"""CPU load of simulated engines: a livelock's loop, and a compiler child process.

Owns: a thread that spins without holding the interpreter, and a child process named like a CUDA compiler.
Must not know: why they burn.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from pathlib import Path

COMPILER = "ptxas"
ROUNDS = 50_000
"""Rounds of a hash that releases the interpreter's lock; some 20 ms."""


class Spinner:
    """Keeps one core busy while switched on."""

    def __init__(self) -> None:
        self._on = threading.Event()

    def switch(self, *, on: bool) -> None:
        """Start, or stop within milliseconds. Idempotent."""
        if not on:
            self._on.clear()
        elif not self._on.is_set():
            self._on = threading.Event()
            self._on.set()
            threading.Thread(target=_spin, args=(self._on,), daemon=True).start()


def _spin(on: threading.Event) -> None:
    while on.is_set():
        _burn()


def _burn() -> None:
    hashlib.pbkdf2_hmac("sha256", b"", b"", ROUNDS)


def start_compiler(seconds: float) -> None:
    """Fork a child in this process group that burns a core for so long, or until its parent is gone."""
    parent = os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # it leaves no zombie
    if os.fork():
        return
    os.closerange(0, 1024)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Path("/proc/self/comm").write_text(COMPILER)
    end = time.monotonic() + seconds
    while time.monotonic() < end and os.getppid() == parent:
        _burn()
    os._exit(0)

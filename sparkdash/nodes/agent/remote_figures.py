"""Figures of this node, a JSON line per tick, until stdin closes.

Runs on nodes, with the standard library of Python 3.10 alone: nothing is installed there.

Lines that are read: {"every": seconds, "id": number, "lease": {…}, "read": [names of reports]}, all but `every`
optional. Each is answered by a tick at once, with its `id`.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkdash.host.kernel_figures import Interfaces, RdmaPorts, read_memory
from sparkdash.host.nvml_device import NvmlDevice
from sparkdash.host.processes.proc import host_bytes
from sparkdash.nodes.agent.engine_processes import EngineProcesses
from sparkdash.nodes.agent.guard_files import GuardFolder, seconds_since_boot

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkdash.host.kernel_figures import Figures

SILENCE_S = 90.0
"""Time without a line after which the daemon or the link is gone: a broken link closes stdin only after minutes."""
SCAN_S = 5.0
"""Interval of the search for engines' processes, and of the look whether the guard runs."""
FIRST_S = 5.0
"""Interval of ticks until the daemon asks for another."""
COMMAND_LIMIT = 256 * 1024


GPU_WAIT_S, GPU_FIRST_S = 0.3, 1.2
"""Longest wait of a tick for the driver; a reading takes a few milliseconds, and the first one loads the library."""
GPU_AGAIN_S = 60.0
"""Pause before a missing or lost driver is tried again."""


class GpuReader:
    """GPU of this node, read in a thread of its own. Only tests give `open_device`."""

    def __init__(self, open_device: Callable[[], NvmlDevice] = NvmlDevice) -> None:
        self._open = open_device
        self._device: NvmlDevice | None = None
        self._tried_at = float("-inf")
        self._thread: threading.Thread | None = None
        self._found: Figures | None = None

    def read(self, now: float) -> Figures | None:
        """Return the GPU's figures, with `processes`; None without a GPU, and while an earlier call hangs."""
        if self._thread is not None and self._thread.is_alive():
            return None
        first = self._device is None
        if first and now - self._tried_at < GPU_AGAIN_S:
            return None
        self._found, self._tried_at = None, now
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        self._thread.join(GPU_FIRST_S if first else GPU_WAIT_S)
        return None if self._thread.is_alive() else self._found

    def _work(self) -> None:
        try:
            device = self._device = self._device or self._open()
            self._found = {**device.gpu(), "processes": device.processes() or {}}
        except OSError:
            if self._device is not None:
                self._device.close()
            self._device = None


class Ticker:
    """Figures of this node. Only tests give `proc`, `sys_class`, `gpu` and `base`."""

    def __init__(
        self,
        owner: str,
        proc: str = "/proc",
        sys_class: str = "/sys/class",
        gpu: GpuReader | None = None,
        base: str | None = None,
    ) -> None:
        self._proc = proc
        self._interfaces, self._rdma = Interfaces(proc, sys_class), RdmaPorts(sys_class)
        self._processes, self._gpu = EngineProcesses(owner, proc), gpu or GpuReader()
        self._engines: dict[str, dict[int, int]] = {}
        self._scanned_at = float("-inf")
        self._folder: GuardFolder | None = None
        self._guarded = False
        with suppress(OSError):
            self._folder = GuardFolder(owner, base)

    def tick(self) -> Figures:
        now = seconds_since_boot()
        if now - self._scanned_at >= SCAN_S:
            self._scanned_at = now
            self._engines = self._processes.scan(now)
            self._guarded = self._folder is not None and self._folder.is_locked()
        gpu = self._gpu.read(now)
        on_gpu = gpu.pop("processes") if gpu else {}
        return {
            "clock": time.time(),
            "at": now,
            "memory": read_memory(self._proc),
            "gpu": gpu,
            "interfaces": self._interfaces.read(now),
            "rdma": self._rdma.read(now),
            "engines": {name: self._bytes(pids, on_gpu) for name, pids in self._engines.items()},
            "guarded": self._guarded,
            "kills": self._folder.kills() if self._folder else [],
        }

    def obey(self, command: dict[str, Any]) -> None:
        """Write the lease, and remove reports that the daemon has read."""
        if self._folder is None:
            return
        with suppress(OSError):
            if isinstance(command.get("lease"), dict):
                self._folder.renew(command["lease"])
                self._guarded = self._folder.is_locked()
            for name in command.get("read") or ():
                self._folder.forget_kill(str(name))

    def _bytes(self, pids: dict[int, int], on_gpu: dict[int, int | None]) -> int:
        """Memory of a container: the processes' own host memory, and GPU memory by the driver."""
        return sum((host_bytes(pid, Path(self._proc)) or 0) + (on_gpu.get(pid) or 0) for pid in pids)


class _DaemonInput:
    """Standard input: the daemon's commands, one JSON object a line."""

    def __init__(self) -> None:
        self._pending = b""
        self._heard_at = time.monotonic()

    def read_until(self, due: float) -> list[dict[str, Any]] | None:
        """Wait for commands, until `due` at most; None at the end of the input, or after too long a silence or line."""
        while select.select([0], [], [], max(due - time.monotonic(), 0.0))[0]:
            chunk = os.read(0, 65536)
            self._heard_at = time.monotonic()
            if not chunk:
                return None
            *lines, self._pending = (self._pending + chunk).split(b"\n")
            commands = [found for line in lines if (found := _command(line)) is not None]
            if commands:
                return commands
            if len(self._pending) > COMMAND_LIMIT:
                return None
        return None if time.monotonic() - self._heard_at > SILENCE_S else []


def main(owner: str) -> None:
    ticker, stdin = Ticker(owner), _DaemonInput()
    every, due = FIRST_S, time.monotonic()
    while (commands := stdin.read_until(due)) is not None:
        answer: object = None
        for command in commands:
            ticker.obey(command)
            every, answer = max(0.2, float(command.get("every") or every)), command.get("id", answer)
        due = time.monotonic() + every
        tick = ticker.tick()
        tick["id"] = answer
        sys.stdout.write(json.dumps(tick, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def _command(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
        float(found.get("every") or 0)
    except (ValueError, TypeError, AttributeError):
        return None
    return dict(found)


def run(owner: str) -> None:
    """Run until the end, and leave without waiting for a driver that hangs."""
    with suppress(BrokenPipeError, KeyboardInterrupt):
        main(owner)
    os._exit(0)

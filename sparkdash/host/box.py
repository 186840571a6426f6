"""BoxReader: figures of the real box."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sparkdash.domain.memory import Contiguity
from sparkdash.domain.metric import Memory
from sparkdash.host import meminfo
from sparkdash.host.memory import contiguity
from sparkdash.host.nvml import Nvml
from sparkdash.host.processes.proc import PROC, anonymous_of_others, host_bytes
from sparkdash.host.reader import GpuReading
from sparkdash.host.thread import in_thread

HWMON = Path("/sys/class/hwmon")
LABEL = "sys_total"
MICROWATTS = 1e6
AGAIN_S = 300.0
"""Pause between two searches for the sensor: a module may be loaded later."""


class BoardPower:
    """Reader of one sensor; `folder` is for tests."""

    def __init__(self, folder: Path = HWMON, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._sensor: Path | None = None
        self._search_at = -math.inf

    def find(self) -> bool:
        """Whether there is a sensor; searches at most every AGAIN_S."""
        if self._sensor is None and self._clock() >= self._search_at:
            self._search_at = self._clock() + AGAIN_S
            self._sensor = next((path for path in self._inputs() if path.exists()), None)
        return self._sensor is not None

    def read(self) -> float | None:
        """Read the power in watts; None without a sensor, or when it cannot be read."""
        if not self.find() or self._sensor is None:
            return None
        try:
            return int(self._sensor.read_text()) / MICROWATTS
        except (OSError, ValueError):
            self._sensor = None
            return None

    def _inputs(self) -> list[Path]:
        found = []
        for label in sorted(self._folder.glob("hwmon*/power*_label")):
            try:
                told = label.read_text().strip().lower()
            except OSError:
                continue
            if told == LABEL:
                found.append(label.with_name(label.name.replace("_label", "_input")))
        return found


class BoxReader:
    """HostReader of a real box; only tests give `proc` and `nvml`."""

    def __init__(self, proc: Path = PROC, nvml: Nvml | None = None, board: BoardPower | None = None) -> None:
        self._proc = proc
        self._nvml = nvml or Nvml()
        self._board = board or BoardPower()

    def memory(self) -> Memory:
        return meminfo.read_memory(self._proc)

    def contiguity(self) -> Contiguity | None:
        return contiguity.read_contiguity(self._proc)

    async def gpu(self) -> GpuReading:
        """Read the GPU through NVML, and the board's power where it has a sensor; empty without NVML, or while it
        hangs.
        """
        reading = await self._nvml.read()
        if reading.gpu is None or not self._board.find():
            return reading
        return replace(reading, gpu=reading.gpu.replace(board_power_w=await in_thread(self._board.read)))

    def engine_bytes(self, pids: set[int], reading: GpuReading) -> int | None:
        """Add GPU memory by NVML and the processes' own host memory; on a GB10 neither includes the other.

        File pages are left out, as they are shown as page cache.
        """
        on_gpu = [(reading.processes or {}).get(pid) for pid in pids]
        on_host = [host_bytes(pid, self._proc) for pid in pids]
        known = [count for count in (*on_gpu, *on_host) if count is not None]
        return sum(known) if known else None

    async def others_bytes(self, pids: set[int], reading: GpuReading) -> int:
        """Add GPU and anonymous memory of all other processes, in a thread: the walk takes some ten milliseconds."""
        on_gpu = sum(size for pid, size in (reading.processes or {}).items() if pid not in pids)
        return on_gpu + await asyncio.to_thread(anonymous_of_others, pids, self._proc)

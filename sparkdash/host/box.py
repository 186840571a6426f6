"""BoxReader: figures of the real box."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from sparkdash.domain.memory import Contiguity
from sparkdash.domain.metric import Gpu, Memory
from sparkdash.host import meminfo
from sparkdash.host.memory import contiguity
from sparkdash.host.nvml_device import NvmlDevice
from sparkdash.host.processes.proc import PROC, anonymous_of_others, host_bytes
from sparkdash.host.thread import in_thread
from sparkdash.log import LOG


@dataclass(frozen=True, slots=True)
class GpuReading:
    """Reading of the GPU. `processes` maps host pid to bytes of GPU memory; None if the driver does not report it."""

    gpu: Gpu | None
    processes: dict[int, int] | None = None
    own_memory: int | None = None
    """Bytes of memory on the GPU itself; None if it shares the system's memory."""
    unmeasured: frozenset[int] = frozenset()
    """Processes on the GPU whose memory the driver does not report."""


class HostReader(Protocol):
    """Reader of the box's figures."""

    def memory(self) -> Memory:
        """Read the kernel's memory figures (microseconds); callers fill in `engines` and `reserve`."""
        ...

    def contiguity(self) -> Contiguity | None:
        """Read free memory by block size, cheaply; None if the kernel does not report it."""
        ...

    async def gpu(self) -> GpuReading:
        """Read the GPU in a thread of its own, with a deadline; empty while an earlier call hangs."""
        ...

    def engine_bytes(self, pids: set[int], reading: GpuReading) -> int | None:
        """Unified memory of these processes: NVML's figures plus resident host memory; None if nothing is known."""
        ...

    async def others_bytes(self, pids: set[int], reading: GpuReading) -> int:
        """Memory of all other processes: NVML's figures plus anonymous host memory."""
        ...


DEADLINE_S = 0.8
"""Longest wait for one reading (about ten calls, a few ms together), within a tick of telemetry."""
RETRY_S = 60.0
"""Pause before another try after a missing or lost driver."""
NOTHING = GpuReading(gpu=None)


class Nvml:
    """The box's GPU. A hanging call blocks neither loop nor exit; without the library a reading costs nothing."""

    def __init__(
        self,
        open_device: Callable[[], NvmlDevice] = NvmlDevice,
        *,
        deadline_s: float = DEADLINE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open = open_device
        self._deadline_s = deadline_s
        self._clock = clock
        self._device: NvmlDevice | None = None
        self._again_at = -math.inf
        self._pending: asyncio.Future[GpuReading] | None = None

    async def read(self) -> GpuReading:
        """Read the GPU; empty without NVML, and while an earlier call hangs."""
        if (self._pending and not self._pending.done()) or (self._device is None and self._clock() < self._again_at):
            return NOTHING
        self._pending = asyncio.ensure_future(in_thread(self._look))
        try:
            return await asyncio.wait_for(asyncio.shield(self._pending), self._deadline_s)
        except TimeoutError:
            LOG.warning("NVML does not answer; GPU figures are unknown until then", seconds=self._deadline_s)
            return NOTHING

    def _look(self) -> GpuReading:
        try:
            device = self._device = self._device or self._open()
            gpu, processes = Gpu(**device.gpu()), device.processes()
        except OSError:
            self._again_at = self._clock() + RETRY_S
            if self._device is not None:
                self._device.close()
            self._device = None
            return NOTHING
        told = processes or {}
        return GpuReading(
            gpu,
            processes=None if processes is None else {pid: size for pid, size in told.items() if size is not None},
            own_memory=device.own_memory,
            unmeasured=frozenset(pid for pid, size in told.items() if size is None),
        )


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

    def __init__(self, proc: Path = PROC, nvml: Nvml | None = None) -> None:
        self._proc = proc
        self._nvml = nvml or Nvml()
        self._board = BoardPower()

    def memory(self) -> Memory:
        return meminfo.read_memory(self._proc)

    def contiguity(self) -> Contiguity | None:
        return contiguity.read_contiguity(self._proc)

    async def gpu(self) -> GpuReading:
        """Read the GPU through NVML, and the board's power by its sensor; empty without NVML or while it hangs."""
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

"""GPU figures of this box through NVML, in a thread of their own."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

import structlog

from sparkdash.domain.metric import Gpu
from sparkdash.host.nvml_device import NvmlDevice
from sparkdash.host.reader import GpuReading
from sparkdash.host.thread import in_thread

LOG = structlog.get_logger("sparkdash.nvml")

DEADLINE_S = 0.8
"""Longest wait for one reading (about ten calls, a few ms together), within a tick of telemetry."""
RETRY_S = 60.0
"""Pause before another try after a missing or lost driver."""
NOTHING = GpuReading(gpu=None)


class Nvml:
    """The box's GPU. A hanging call blocks neither the loop nor the exit; without the library a reading costs nothing."""

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

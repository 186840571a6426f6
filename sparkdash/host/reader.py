"""HostReader: protocol of a reader of the box's figures, real or simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sparkdash.domain.memory import Contiguity
from sparkdash.domain.metric import Gpu, Memory


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
        """Read the kernel's memory figures (microseconds, no NVML, no subprocess).

        `engines` is empty and `reserve` 0; callers fill them in.
        """
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

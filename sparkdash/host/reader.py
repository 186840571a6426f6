"""HostReader: the contract of whatever measures the box (the real one, or the simulated one of the demo)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sparkdash.domain.memory.contiguity import Contiguity
from sparkdash.domain.metric import Gpu, Memory


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One look at the GPU. `processes` maps host pid to bytes of GPU memory; None when the driver does not tell."""

    gpu: Gpu | None
    processes: dict[int, int] | None = None
    own_memory: int | None = None
    """Bytes of memory on the GPU itself; None for one that shares the system's memory."""
    unmeasured: frozenset[int] = frozenset()
    """Processes on the GPU whose memory the driver does not tell."""


class HostReader(Protocol):
    """Measures the box."""

    def memory(self) -> Memory:
        """One cheap read of the kernel's own figures (microseconds, no NVML, no subprocess). `engines` is empty and `reserve` 0: callers fill them in."""
        ...

    def contiguity(self) -> Contiguity | None:
        """How much of the free memory lies in large blocks: a cheap read of the kernel's own figures; None where it does not tell."""
        ...

    async def gpu(self) -> GpuReading:
        """One look, in a thread of its own and with a deadline; a call that hangs yields an empty reading until it returns."""
        ...

    def engine_bytes(self, pids: set[int], reading: GpuReading) -> int | None:
        """What these processes hold of the unified memory: their NVML figures plus their resident host memory; None when nothing is known."""
        ...

    async def others_bytes(self, pids: set[int], reading: GpuReading) -> int:
        """What all processes but these keep for themselves: their NVML figures plus their anonymous host memory."""
        ...

    def close(self) -> None:
        """Release the driver."""
        ...

"""BoxReader: the real box, measured.

Owns: putting the kernel's and NVML's figures together. Must not know: engines, profiles, what is enough.
"""

from __future__ import annotations

from pathlib import Path

from sparkdash.domain.metric import Memory
from sparkdash.host import memory
from sparkdash.host.nvml import Nvml
from sparkdash.host.proc import PROC, host_bytes
from sparkdash.host.reader import GpuReading


class BoxReader:
    """The HostReader of a real box. `proc` and `nvml` are given by tests only."""

    def __init__(self, proc: Path = PROC, nvml: Nvml | None = None) -> None:
        self._proc = proc
        self._nvml = nvml or Nvml()

    def memory(self) -> Memory:
        """The kernel's figures. Raises HostError when it does not tell them."""
        return memory.read(self._proc)

    async def gpu(self) -> GpuReading:
        """One look through NVML; empty without it, or while it hangs."""
        return await self._nvml.read()

    def engine_bytes(self, pids: set[int], reading: GpuReading) -> int | None:
        """GPU memory by NVML plus the host memory that is the processes' own; on a GB10 neither holds the other.

        File pages are left out: they are page cache and shown as such.
        """
        on_gpu = [(reading.processes or {}).get(pid) for pid in pids]
        on_host = [host_bytes(pid, self._proc) for pid in pids]
        known = [count for count in (*on_gpu, *on_host) if count is not None]
        return sum(known) if known else None

    def close(self) -> None:
        """Release the driver."""
        self._nvml.close()

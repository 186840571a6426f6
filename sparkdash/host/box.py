"""BoxReader: the real box, measured.

Owns: putting the kernel's and NVML's figures together. Must not know: engines, profiles, what is enough.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from sparkdash.domain.memory.contiguity import Contiguity
from sparkdash.domain.metric import Memory
from sparkdash.host import contiguity, meminfo
from sparkdash.host.nvml import Nvml
from sparkdash.host.processes.proc import PROC, anonymous_of_others, host_bytes
from sparkdash.host.reader import GpuReading


class BoxReader:
    """The HostReader of a real box. `proc` and `nvml` are given by tests only."""

    def __init__(self, proc: Path = PROC, nvml: Nvml | None = None) -> None:
        self._proc = proc
        self._nvml = nvml or Nvml()

    def memory(self) -> Memory:
        """The kernel's figures. Raises HostError when it does not tell them."""
        return meminfo.read_memory(self._proc)

    def contiguity(self) -> Contiguity | None:
        """Free memory by block size; None where the kernel does not tell."""
        return contiguity.read_contiguity(self._proc)

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

    async def others_bytes(self, pids: set[int], reading: GpuReading) -> int:
        """In a thread: a walk through all of /proc takes some ten milliseconds."""
        on_gpu = sum(size for pid, size in (reading.processes or {}).items() if pid not in pids)
        return on_gpu + await asyncio.to_thread(anonymous_of_others, pids, self._proc)

    def close(self) -> None:
        """Release the driver."""
        self._nvml.close()

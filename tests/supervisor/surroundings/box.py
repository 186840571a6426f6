"""A box in memory."""

from __future__ import annotations

from typing import Any

from sparkdash.domain.memory import Contiguity
from sparkdash.domain.metric import Memory
from sparkdash.host.box import GpuReading
from sparkdash.units import GIB
from surroundings.engines import pid_of
from surroundings.runtime import FakeRuntime


class FakeReader:
    """A box of 128 GiB of which 8 are gone; engines hold what their profile declares."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.runtime = runtime
        self.sizes: dict[str, int] = {}
        self.others = 0
        """Bytes that programs which are not ours hold."""
        self.leaks: dict[str, int] = {}
        """Bytes that a profile's engine does not give back when it is stopped."""
        self.blind = False
        """Cannot tell what an engine holds."""
        self.reading = GpuReading(None)
        self.page_cache: int | None = None
        self.contiguities: list[Contiguity] = []
        """Free blocks that looks give, one after the other; the last one stays."""
        self.own: int | None = None
        """Bytes of each engine's processes, where a test says otherwise than `sizes`."""

    def memory(self) -> Memory:
        held = sum(self.sizes.get(name, 0) for name in self.runtime.running())
        leaked = sum(self.leaks.get(name, 0) for name in self.runtime.stopped)
        available = 120 * GIB - held - self.others - leaked
        return Memory(total=128 * GIB, available=available, free=available, page_cache=self.page_cache)

    def contiguity(self) -> Contiguity | None:
        return self.contiguities.pop(0) if len(self.contiguities) > 1 else next(iter(self.contiguities), None)

    async def gpu(self) -> GpuReading:
        return self.reading

    def engine_bytes(self, pids: set[int], _reading: Any) -> int | None:
        if self.blind:
            return None
        if self.own is not None and pids:
            return self.own
        return sum(size for name, size in self.sizes.items() if pid_of(name) in pids)

    async def others_bytes(self, _pids: set[int], _reading: Any) -> int:
        return self.others

"""SimBox: a simulated DGX Spark for the demo and for tests.

Nothing is measured: the GPU's name says "simulated". Three effects are modelled because sparkdash must handle them:
memory comes back some time after a process has ended (on real boxes a minute and more), weights pass through the page
cache, and the GPU warms and cools slowly.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from sparkdash.domain.memory import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.domain.metric import Gpu, Memory
from sparkdash.host.box import GpuReading
from sparkdash.sim.process import MemoryClaim, read_claims
from sparkdash.units import GIB

TOTAL = 127_600_748 * 1024
"""MemTotal of a GB10 as an owner's issue reports it (XuehaiPan/nvitop PR 208): 121.69 GiB."""
OTHER = int(6.2 * GIB)
"""Memory of everything else: desktop, daemons, sparkdash. Invented."""
CACHE = 5 * GIB
"""Page cache of an idle box; invented. A share of every loaded engine's weights joins it."""
CACHE_SHARE = 0.15
MIN_FREE = GIB
SWAP = 16 * GIB
"""Size of swap on stock DGX OS."""
RELEASE_S = 4.0
"""Delay until an ended engine's memory is free again; real boxes take up to minutes."""
IDLE_W, LOAD_W = 5.0, 61.0
"""GPU power; owners report 3-12 W idle and 50-95 W under load."""
MAX_W = 90.0
IDLE_C, LOAD_C = 41.0, 73.0
WARMING_S = 25.0
"""Time constant of the temperature. Invented."""
IDLE_MHZ, FULL_MHZ, HIGHEST_MHZ = 208.0, 2405.0, 3003.0
"""Clock without and under load, and the highest that the driver names."""


class SimBox:
    """Adds up the claims in `folder`. One reader per box; `clock` gives monotonic seconds."""

    def __init__(
        self, folder: Path, *, clock: Callable[[], float] = time.monotonic, release_s: float = RELEASE_S
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._release_s = release_s
        self._alive: dict[int, MemoryClaim] = {}
        self._gone: dict[int, tuple[int, float]] = {}
        """Memory that ended processes still hold, by pid, and since when."""
        self._cached = 0.0
        self._heat = 0.0
        self._heat_at = clock()

    def memory(self) -> Memory:
        """Return memory use: engines and what they leave behind, page cache, the rest."""
        self._look()
        used = OTHER + self._wobble() + sum(claim.memory for claim in self._alive.values()) + self._lingering()
        room = max(0, TOTAL - used)
        cache = int(min(CACHE + self._cached, max(0, room - MIN_FREE)))
        swapped = max(0, used - TOTAL)
        available = max(0, room - MIN_FREE // 2)
        return Memory(
            total=TOTAL, available=available, free=room - cache, page_cache=cache,
            swap_total=SWAP, swap_used=min(SWAP, swapped), pressure=_pressure(available),
        )  # fmt: skip

    async def account(self) -> MemoryAccount:
        """Return who holds the memory: the engines, what ended ones still hold, the rest."""
        memory = self.memory()
        cache = memory.page_cache or 0
        engines = [
            Holding(
                kind=Holder.ENGINE, name=claim.profile, bytes=claim.memory, gpu_bytes=claim.memory, pid=claim.pid,
                what="simulated engine", remedy=f"sparkdash stop {claim.profile}",
            )
            for claim in sorted(self._alive.values(), key=lambda claim: -claim.memory)
        ]  # fmt: skip
        lingering = min(self._lingering(), memory.total - memory.free - cache - sum(one.bytes for one in engines))
        held = sum(one.bytes for one in engines) + lingering + cache + memory.free
        rest = (
            Holding(kind=Holder.KERNEL, name="ended engines", bytes=lingering, what="given back within seconds"),
            Holding(kind=Holder.UNSEEN, name="other programs", bytes=memory.total - held, what="simulated"),
            Holding(kind=Holder.CACHE, name="page cache", bytes=cache, what="files; given back when needed"),
            Holding(kind=Holder.FREE, name="free", bytes=memory.free),
        )
        holdings = (*engines, *(one for one in rest if one.bytes > 0))
        notes = ("Simulated: nothing of it was measured.",)
        return MemoryAccount(
            at=time.time(), total=memory.total, available=memory.available, holdings=holdings, gpu=GpuMemory.UNIFIED,
            gpu_told=True, swap_total=memory.swap_total, swap_used=memory.swap_used, notes=notes,
        )  # fmt: skip

    def contiguity(self) -> None:
        pass

    async def gpu(self) -> GpuReading:
        return GpuReading(self.gpu_now(), {claim.pid: claim.memory for claim in self._alive.values()})

    def engines(self) -> dict[str, int | None]:
        """Return the memory of each profile's processes, as last looked at."""
        held: dict[str, int | None] = {}
        for claim in self._alive.values():
            held[claim.profile] = (held.get(claim.profile) or 0) + claim.memory
        return held

    def busy(self) -> dict[str, float]:
        """Return each profile's share of the GPU's time, 0..1, as last looked at."""
        return {claim.profile: claim.busy for claim in self._alive.values()}

    def gpu_now(self) -> Gpu:
        """Return GPU use: the engines' busy shares and watts added up, and figures that follow from them."""
        self._look()
        busy = min(1.0, sum(claim.busy for claim in self._alive.values()))
        drawn = min(MAX_W, sum(map(_drawn, self._alive.values())))
        heat = self._warm(min(1.0, drawn / (LOAD_W - IDLE_W)))
        return Gpu(
            name="GB10 (simulated)", driver="simulated", utilization=busy,
            power_w=round(IDLE_W + drawn + 1.5 * busy * math.sin(self._clock()), 1),
            temperature_c=round(IDLE_C + heat * (LOAD_C - IDLE_C)),
            sm_clock_mhz=round(self._load_mhz() if busy else IDLE_MHZ),
            sm_clock_max_mhz=HIGHEST_MHZ,
        )  # fmt: skip

    def engine_bytes(self, pids: set[int], reading: GpuReading) -> int | None:
        held = [size for pid, size in (reading.processes or {}).items() if pid in pids]
        return sum(held) if held else None

    async def others_bytes(self, pids: set[int], reading: GpuReading) -> int:
        return sum(size for pid, size in (reading.processes or {}).items() if pid not in pids)

    def _look(self) -> None:
        """Read the claims. Memory that disappeared since the last look begins to come back."""
        now, before = self._clock(), self._alive
        self._alive = {claim.pid: claim for claim in read_claims(self._folder)}
        for pid in before.keys() - self._alive.keys():
            self._gone[pid] = (before[pid].memory, now)
        for pid in [pid for pid, (_, since) in self._gone.items() if now - since >= self._release_s]:
            del self._gone[pid]
        largest = max((claim.memory for claim in self._alive.values()), default=0)
        self._cached = max(self._cached, CACHE_SHARE * largest)

    def _lingering(self) -> int:
        """Return memory not yet released: all of it for half the time, then evenly less."""
        total = 0.0
        for memory, since in self._gone.values():
            share = (self._clock() - since) / self._release_s if self._release_s else 1.0
            total += memory * min(1.0, 2 * (1 - share))
        return int(total)

    def _warm(self, load: float) -> float:
        now = self._clock()
        self._heat += (load - self._heat) * (1 - math.exp((self._heat_at - now) / WARMING_S))
        self._heat_at = now
        return self._heat

    def _load_mhz(self) -> float:
        return FULL_MHZ + 25 * min(0.0, math.sin(self._clock() / 3))

    def _wobble(self) -> int:
        return int(0.08 * GIB * math.sin(self._clock() / 7))


def _drawn(claim: MemoryClaim) -> float:
    return claim.busy * (LOAD_W - IDLE_W) if claim.power_w is None else claim.power_w


def _pressure(available: int) -> float:
    """Memory pressure: none above 4 GiB available, then increasing."""
    return round(max(0.0, 1.0 - available / (4 * GIB)) * 0.6, 3)

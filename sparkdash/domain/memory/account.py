"""MemoryAccount: every byte of the box's memory counted once, with its holder.

Pure.
"""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.base import Frozen


class Holder(StrEnum):
    """Kind of a memory holder."""

    ENGINE = "engine"
    """An engine of this daemon; `name` is its profile."""
    CONTAINER = "container"
    """A container that sparkdash did not start."""
    UNIT = "unit"
    """A systemd service or desktop application."""
    PROGRAM = "program"
    """A program that no service or container names, as in a login session."""
    SPARKDASH = "sparkdash"
    """The daemon, its helper processes, dashboards."""
    UNSEEN = "unseen"
    """Processes that this user may not look at, or that came and went."""
    SHARED = "shared"
    """Shared memory that no process maps: tmpfs, memfd, System V."""
    KERNEL = "kernel"
    UNACCOUNTED = "unaccounted"
    """Memory in no process and in none of the kernel's own figures: unnamed GPU memory, drivers' buffers."""
    CACHE = "cache"
    """Page cache, and reclaimable kernel objects."""
    FREE = "free"


FOREIGN = frozenset({Holder.CONTAINER, Holder.UNIT, Holder.PROGRAM, Holder.UNACCOUNTED})
"""Kinds that no sparkdash command ends."""


class Holding(Frozen):
    """Share of one holder. Bytes; None is unknown."""

    kind: Holder
    name: str
    """Profile, container, service or program as the user knows it. Untrusted text: escape it for a terminal."""
    bytes: int
    """Share of the box's memory, each byte counted once."""
    host_bytes: int | None = None
    """Part of `bytes`: anonymous and shared memory of the processes."""
    gpu_bytes: int | None = None
    """GPU memory of the processes by NVML; part of `bytes` where GPU and system share one memory."""
    swap_bytes: int | None = None
    """Memory in swap, beyond `bytes`."""
    user: str | None = None
    what: str | None = None
    """Largest programs, image, or the meaning of the figure."""
    processes: int | None = None
    pid: int | None = None
    """Pid of the largest process."""
    remedy: str | None = None
    """Command that frees the memory; None where there is none, or where it would cut the owner off."""

    @property
    def reclaimable(self) -> bool:
        """Whether the kernel gives the memory back on demand."""
        return self.kind is Holder.CACHE


class GpuMemory(StrEnum):
    """Location of the GPU's memory."""

    UNIFIED = "unified"
    """In the system's memory, as on a GB10."""
    OWN = "own"
    """On the GPU itself: none of it is in the account."""
    SILENT = "silent"
    """Unknown: a driver is loaded and does not answer."""
    NONE = "none"
    """No GPU."""


class MemoryAccount(Frozen):
    """Account of the box's memory at one moment. The holdings' bytes add up to `total`."""

    at: float
    """Unix seconds."""
    total: int
    available: int | None = None
    holdings: tuple[Holding, ...]
    """Holders, largest first; then reclaimable memory; free memory last."""
    gpu: GpuMemory = GpuMemory.NONE
    gpu_told: bool = False
    """Whether the driver listed the processes on the GPU, each with its memory."""
    unreadable: int = 0
    """Processes that this user may not look at."""
    mlocked_bytes: int | None = None
    """Pages that cannot be swapped or evicted; part of other rows."""
    swap_total: int | None = None
    swap_used: int | None = None
    notes: tuple[str, ...] = ()
    """Overlaps and contradictions between sources, and how each was resolved."""

    def foreign(self, least: int = 0) -> tuple[Holding, ...]:
        """Return the foreign holders of at least `least` bytes, largest first."""
        return tuple(one for one in self.holdings if one.kind in FOREIGN and one.bytes >= least)

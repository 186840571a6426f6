"""MemoryAccount: every byte of the box's memory, once, with who holds it."""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.base import Frozen


class Holder(StrEnum):
    """What kind of thing holds memory."""

    ENGINE = "engine"
    """An engine of this daemon; `name` is its profile."""
    CONTAINER = "container"
    """A container that is not ours."""
    UNIT = "unit"
    """A systemd service or desktop application."""
    PROGRAM = "program"
    """A program that no service or container names, as in a login session."""
    SPARKDASH = "sparkdash"
    """The daemon, its helper processes, dashboards."""
    UNSEEN = "unseen"
    """Processes that this user may not look at, or that came and went."""
    LEFTOVER = "leftover"
    """Files of shared memory that no process maps."""
    SHARED = "shared"
    """Other shared memory: tmpfs, memfd, System V."""
    KERNEL = "kernel"
    UNACCOUNTED = "unaccounted"
    """In no process and in none of the kernel's own figures: GPU memory that nobody names, drivers' buffers."""
    WEIGHTS = "weights"
    """Page cache of one profile's weight files."""
    CACHE = "cache"
    """Other page cache, and reclaimable kernel objects."""
    FREE = "free"


RECLAIMABLE = frozenset({Holder.WEIGHTS, Holder.CACHE})
"""What the kernel gives back when somebody needs memory."""
FOREIGN = frozenset({Holder.CONTAINER, Holder.UNIT, Holder.PROGRAM, Holder.LEFTOVER, Holder.UNACCOUNTED})
"""Holders that no order to sparkdash ends."""


class Holding(Frozen):
    """One holder's share. Bytes; None is not known."""

    kind: Holder
    name: str
    """As the user knows it: profile, container, service, program. Comes from outside: a terminal gets it escaped."""
    bytes: int
    """Its share of the box's memory, each byte counted once."""
    host_bytes: int | None = None
    """Of `bytes`: anonymous and shared memory of its processes."""
    gpu_bytes: int | None = None
    """GPU memory of its processes by NVML; part of `bytes` where GPU and system share one memory."""
    swap_bytes: int | None = None
    """What it has in swap, beyond `bytes`."""
    user: str | None = None
    what: str | None = None
    """Largest programs, image, or what the figure means."""
    processes: int | None = None
    pid: int | None = None
    """Its largest process."""
    remedy: str | None = None
    """Command that frees it; None where there is none, or where ending it would cut the owner off."""

    @property
    def reclaimable(self) -> bool:
        """Whether the kernel gives it back when somebody needs memory."""
        return self.kind in RECLAIMABLE


class GpuMemory(StrEnum):
    """Where the GPU's memory is."""

    UNIFIED = "unified"
    """In the system's memory, as on a GB10."""
    OWN = "own"
    """On the GPU itself: none of it is in the account."""
    SILENT = "silent"
    """Not known: a driver is loaded and does not answer."""
    NONE = "none"
    """No GPU."""


class MemoryAccount(Frozen):
    """One look. The holdings' bytes add up to `total`."""

    at: float
    """Unix seconds."""
    total: int
    available: int | None = None
    holdings: tuple[Holding, ...]
    """Who holds memory, largest first; then what comes back on demand; free memory last."""
    gpu: GpuMemory = GpuMemory.NONE
    gpu_told: bool = False
    """Whether the driver named the processes on the GPU, each with its memory."""
    unreadable: int = 0
    """Processes that this user may not look at."""
    mlocked_bytes: int | None = None
    """Pages that cannot be swapped or evicted; part of other rows."""
    swap_total: int | None = None
    swap_used: int | None = None
    notes: tuple[str, ...] = ()
    """Where two sources overlap or contradict, and what was done."""

    def foreign(self, least: int = 0) -> tuple[Holding, ...]:
        """Holders that are not ours and hold at least so much, largest first."""
        return tuple(one for one in self.holdings if one.kind in FOREIGN and one.bytes >= least)

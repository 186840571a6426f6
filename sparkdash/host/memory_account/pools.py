"""MemTotal split by the kernel's own figures, and the division of a figure among claims.

Owns: which kernel figure includes which other. Must not know the holders.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sparkdash.domain.memory.account import GpuMemory, Holder, Holding
from sparkdash.host.memory_account.owners import Owner
from sparkdash.host.memory_account.process_table import ProcessMemory

K = TypeVar("K")


class ShmFiles(NamedTuple):
    """Files of one user in /dev/shm that vLLM and similar programs left behind, as far as this user can see."""

    user: str
    bytes: int
    names: tuple[str, ...]
    """Largest first."""
    oldest_s: float
    own: bool
    """Whether this user may delete them."""
    certain: bool
    """Whether this user could read every process that might map the files."""


@dataclass(frozen=True, kw_only=True)
class MemoryFigures:
    """All readings for one account."""

    at: float
    meminfo: Mapping[str, int]
    zram: int = 0
    """RAM of swap that is compressed in memory."""
    arc: int = 0
    """ZFS's cache of files, outside the page cache."""
    tmpfs: Mapping[str, int] = field(default_factory=dict)
    """Bytes in use of each file system in memory, by mount point."""
    processes: Iterable[ProcessMemory] = ()
    unreadable: int = 0
    owners: Mapping[int, Owner] = field(default_factory=dict)
    gpu: Mapping[int, int] | None = None
    """GPU memory by pid; None if the driver does not report it."""
    gpu_whole: bool = True
    """Whether `gpu` has every process on the GPU."""
    gpu_memory: GpuMemory = GpuMemory.NONE
    leftovers: tuple[ShmFiles, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    """Cached bytes of weight files, by the profiles that read them."""


class Pools(NamedTuple):
    """MemTotal split by the kernel's own figures, each byte once."""

    free: int
    anonymous: int
    shared: int
    cached: int
    """Page cache without shared memory."""
    reclaimable: int
    """Kernel objects that can be reclaimed."""
    arc: int
    kernel: tuple[Holding, ...]
    rest: int
    """Bytes in none of these figures."""


def pools(seen: MemoryFigures) -> Pools:
    """Split MemTotal by the kernel's figures, the most certain first, each cut to the rest of MemTotal.

    The figures overlap in places, and are not read at the same moment.
    """
    info, left = seen.meminfo, seen.meminfo["MemTotal"]

    def take(size: int) -> int:
        nonlocal left
        taken = max(min(size, left), 0)
        left -= taken
        return taken

    free = take(info["MemFree"])
    anonymous = take(info.get("AnonPages", sum(one.anonymous for one in seen.processes)))
    cached = take(info.get("Cached", 0) + info.get("Buffers", 0))
    shared = min(info.get("Shmem", 0), cached)
    reclaimable = take(max(info.get("KReclaimable", 0), info.get("SReclaimable", 0)))
    arc = take(seen.arc)
    kernel = [
        Holding(kind=Holder.KERNEL, name=name, bytes=taken, what=what)
        for name, what, size in _kernel(info, seen.zram)
        if (taken := take(size))
    ]
    return Pools(free, anonymous, shared, cached - shared, reclaimable, arc, tuple(kernel), left)


def divide(total: int, claims: Mapping[K, int]) -> tuple[dict[K, int], int]:
    """Divide `total` into shares by claim and an unclaimed rest; claims that exceed it are scaled down."""
    wanted = {key: claim for key, claim in claims.items() if claim > 0}
    asked = sum(wanted.values())
    if asked <= total:
        return wanted, total - asked
    shares = {key: claim * total // asked for key, claim in wanted.items()}
    dropped = total - sum(shares.values())  # less than a byte for each claim
    for key in sorted(wanted, key=lambda key: -wanted[key])[:dropped]:
        shares[key] += 1
    return shares, 0


def _kernel(info: Mapping[str, int], zram: int) -> Iterator[tuple[str, str, int]]:
    stacks = info.get("KernelStack", 0)
    yield "slab", "kernel objects that cannot be given back", info.get("SUnreclaim", 0)
    yield "page tables", "", info.get("PageTables", 0) + info.get("SecPageTables", 0)
    yield "kernel stacks", "", stacks
    yield "per-CPU data", "", info.get("Percpu", 0)
    yield "huge pages", "kept by vm.nr_hugepages; no engine uses them", info.get("Hugetlb", 0)
    yield "compressed swap", "zram and zswap", zram + info.get("Zswap", 0)
    yield (
        "vmalloc",
        "kernel buffers; stacks taken off, which the kernel counts here again",
        info.get("VmallocUsed", 0) - stacks,
    )
    yield "balloon", "lent to the hypervisor", info.get("Balloon", 0)

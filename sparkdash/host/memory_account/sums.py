"""PURE: every byte of the box's memory to one holder, so that all add up to MemTotal.

Owns: which figure of the kernel holds which other, and how a figure is divided among its owners. Must not know how any
figure is read.

The kernel's own figures come first: free, anonymous, page cache with shared memory in it, kernel objects. Each is divided
among its owners. Claims that exceed it (pages shared between processes count in each of them) are scaled down; what
nobody claims is a row of its own. What is left of MemTotal after all of the kernel's figures is memory that drivers
took without telling: on a GB10 the GPU's. NVML's figures per process divide that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sparkdash.domain.memory_account import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.host.memory_account.owners import Owner
from sparkdash.host.memory_account.process_table import ProcessMemory
from sparkdash.host.memory_account.remedies import LARGE, SHM, remedy, removal
from sparkdash.units import duration, gib

ROWS = 40
"""Holders that have a row each; smaller ones share a row with others of their kind."""
OVERLAP = 1.02
"""Claims may exceed their figure by so much, as files are read one after the other, before a note tells of it."""
TOP = 3
"""Programs that a row names."""
K = TypeVar("K")


class ShmFiles(NamedTuple):
    """Files of one user in /dev/shm that vLLM and its like left behind, as far as this user can tell."""

    user: str
    bytes: int
    names: tuple[str, ...]
    """Largest first."""
    oldest_s: float
    own: bool
    """Whether this user may delete them."""
    certain: bool
    """Whether this user could look at every process that might map them."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Everything that was read."""

    at: float
    meminfo: Mapping[str, int]
    zram: int = 0
    """RAM that swap compressed in memory takes."""
    arc: int = 0
    """What ZFS caches of files, outside the page cache."""
    processes: Iterable[ProcessMemory] = ()
    unreadable: int = 0
    owners: Mapping[int, Owner] = field(default_factory=dict)
    gpu: Mapping[int, int] | None = None
    """GPU memory by pid; None when the driver does not tell."""
    gpu_whole: bool = True
    """Whether `gpu` has every process that is on the GPU."""
    gpu_memory: GpuMemory = GpuMemory.NONE
    leftovers: tuple[ShmFiles, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    """Cached bytes of weight files, by the profile or profiles that read them."""


class Pools(NamedTuple):
    """MemTotal by the kernel's own figures, each byte once."""

    free: int
    anonymous: int
    shared: int
    cached: int
    """Page cache without shared memory."""
    reclaimable: int
    """Kernel objects that can be given back."""
    arc: int
    kernel: tuple[Holding, ...]
    rest: int
    """In none of these figures."""


def account(seen: Figures) -> MemoryAccount:
    """Divide MemTotal; see the module."""
    found, notes = pools(seen), list[str]()
    rows = [*_held(seen, found, notes), *found.kernel, *_given_back(seen, found)]
    rows.sort(key=lambda row: (row.reclaimable, -row.bytes))
    swap, unused = seen.meminfo.get("SwapTotal"), seen.meminfo.get("SwapFree")
    return MemoryAccount(
        at=seen.at,
        total=seen.meminfo["MemTotal"],
        available=seen.meminfo.get("MemAvailable"),
        holdings=(*rows, Holding(kind=Holder.FREE, name="free", bytes=found.free)),
        gpu=seen.gpu_memory,
        gpu_told=_is_told(seen),
        unreadable=seen.unreadable,
        mlocked_bytes=seen.meminfo.get("Mlocked"),
        swap_total=swap,
        swap_used=None if swap is None or unused is None else swap - unused,
        notes=tuple(notes),
    )


def pools(seen: Figures) -> Pools:
    """The kernel's figures in the order of their certainty. None is larger than what those before it left of MemTotal:
    they overlap in places, and are not read at one moment."""
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
    """(share of each claim, what nobody claims). Together they are `total`; claims that exceed it are scaled down."""
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


def _held(seen: Figures, found: Pools, notes: list[str]) -> Iterator[Holding]:
    """Everything that does not come back by itself, but for the kernel's own objects."""
    processes = list(seen.processes)
    by_pid, rest = divide(found.anonymous, {one.pid: one.anonymous for one in processes if one.exact})
    others, unseen = divide(rest, {one.pid: one.anonymous for one in processes if not one.exact})
    by_pid |= others
    _note_overlap(notes, "anonymous memory", sum(one.anonymous for one in processes), found.anonymous)
    leftovers, rest = divide(found.shared, {one: one.bytes for one in seen.leftovers})
    mapped: Counter[Owner] = Counter()
    for one in processes:  # an engine's processes map the same pages: the largest stands for all
        mapped[seen.owners[one.pid]] = max(mapped[seen.owners[one.pid]], one.shared)
    by_owner, shared = divide(rest, mapped)
    host = Counter(by_owner)
    for pid, size in by_pid.items():
        host[seen.owners[pid]] += size
    on_gpu, unnamed = _on_gpu(seen, found, notes)
    yield from _owners(seen, processes, host, on_gpu)
    yield from (_leftover(one, size) for one, size in leftovers.items())
    for kind, name, size, what in (
        (Holder.UNSEEN, "other processes", unseen, "hidden from this user, or gone meanwhile"),
        (Holder.SHARED, "shared memory", shared, "tmpfs, memfd and System V memory that nobody maps who could be seen"),
    ):
        if size:
            yield Holding(kind=kind, name=name, bytes=size, what=what)
    if unnamed:
        yield _unaccounted(seen, unnamed)


def _on_gpu(seen: Figures, found: Pools, notes: list[str]) -> tuple[dict[int, int], int]:
    """(share of the unexplained rest by pid, what of it nobody names)."""
    told = seen.gpu or {}
    if seen.gpu_memory is not GpuMemory.UNIFIED:
        return {}, found.rest
    _note_overlap(notes, "GPU memory by NVML", sum(told.values()), found.rest)
    return divide(found.rest, told)


def _note_overlap(notes: list[str], what: str, claimed: int, there: int) -> None:
    if claimed > there * OVERLAP and claimed - there > LARGE:
        notes.append(
            f"Processes are told to hold {gib(claimed)} of {what}, and {gib(there)} are there. "
            "Some of it is counted more than once: every share is scaled down."
        )


def _owners(
    seen: Figures, processes: list[ProcessMemory], host: Mapping[Owner, int], on_gpu: Mapping[int, int]
) -> Iterator[Holding]:
    members: dict[Owner, list[ProcessMemory]] = {}
    for one in processes:
        members.setdefault(seen.owners[one.pid], []).append(one)
    told, listed = seen.gpu or {}, {one.pid for one in processes}
    rows = [_owned(owner, each, host.get(owner, 0), told, on_gpu) for owner, each in members.items()]
    rows += [_strange_pid(pid, told[pid], on_gpu.get(pid, 0)) for pid in told if pid not in listed]
    rows = sorted(
        (row for row in rows if row.bytes or row.gpu_bytes), key=lambda row: (row.kind is not Holder.ENGINE, -row.bytes)
    )
    yield from rows[:ROWS]
    yield from _small(rows[ROWS:])


def _owned(
    owner: Owner, members: list[ProcessMemory], host: int, told: Mapping[int, int], on_gpu: Mapping[int, int]
) -> Holding:
    claims = [told[one.pid] for one in members if one.pid in told]
    size = host + sum(on_gpu.get(one.pid, 0) for one in members)
    largest = max(members, key=lambda one: one.anonymous + told.get(one.pid, 0))
    programs: Counter[str] = Counter()
    for one in members:
        programs[one.name] += one.anonymous + told.get(one.pid, 0) + 1
    return Holding(
        kind=owner.kind,
        name=owner.name,
        bytes=size,
        host_bytes=host,
        gpu_bytes=sum(claims) if claims else None,
        swap_bytes=sum(one.swapped for one in members),
        user=owner.user,
        what=owner.image or ", ".join(name for name, _ in programs.most_common(TOP)),
        processes=len(members),
        pid=largest.pid,
        remedy=remedy(owner, largest.pid) if size >= LARGE or owner.kind is Holder.ENGINE else None,
    )


def _strange_pid(pid: int, told: int, share: int) -> Holding:
    what = "the GPU driver names this process; it is hidden from this user or has ended"
    return Holding(kind=Holder.UNSEEN, name=f"pid {pid}", bytes=share, gpu_bytes=told, what=what, pid=pid)


def _small(rows: list[Holding]) -> Iterator[Holding]:
    for kind in dict.fromkeys(row.kind for row in rows):
        small = [row for row in rows if row.kind is kind]
        on_gpu = [row.gpu_bytes for row in small if row.gpu_bytes is not None]
        yield Holding(
            kind=kind,
            name=f"{len(small)} smaller",
            bytes=sum(row.bytes for row in small),
            host_bytes=sum(row.host_bytes or 0 for row in small),
            gpu_bytes=sum(on_gpu) if on_gpu else None,
            swap_bytes=sum(row.swap_bytes or 0 for row in small),
            processes=sum(row.processes or 0 for row in small),
        )


def _leftover(one: ShmFiles, share: int) -> Holding:
    count = f"{len(one.names)} file{'s' if len(one.names) > 1 else ''} like {one.names[0]}, up to {duration(one.oldest_s)} old"
    known = "no process maps them" if one.certain else "a process that this user may not look at may map them"
    command = removal(one.names, own=one.own) if one.certain else None
    return Holding(kind=Holder.LEFTOVER, name=SHM, bytes=share, user=one.user, what=f"{count}; {known}", remedy=command)


def _is_told(seen: Figures) -> bool:
    return seen.gpu is not None and seen.gpu_whole


def _unaccounted(seen: Figures, size: int) -> Holding:
    if seen.gpu_memory in (GpuMemory.UNIFIED, GpuMemory.SILENT):
        name = "GPU driver or kernel"
        unnamed = "in no process that the GPU driver names" if _is_told(seen) else "NVML does not tell whose it is"
        what = f"owner unknown: {unnamed}, and in none of the kernel's figures"
    else:
        name, what = "not accounted", "in no process and in none of the kernel's figures: drivers' buffers"
    return Holding(kind=Holder.UNACCOUNTED, name=name, bytes=size, what=what)


def _given_back(seen: Figures, found: Pools) -> Iterator[Holding]:
    """Page cache and kernel objects that come back on demand."""
    weights, others = divide(found.cached, seen.weights)
    for name, size in weights.items():
        yield Holding(kind=Holder.WEIGHTS, name=name, bytes=size, what="weights in the page cache")
    for name, size, what in (
        ("page cache", others, "other files" if weights else "files"),
        ("ZFS cache", found.arc, "files; ZFS gives it back slowly"),
        ("kernel caches", found.reclaimable, "slab that can be given back"),
    ):
        if size:
            yield Holding(kind=Holder.CACHE, name=name, bytes=size, what=what)

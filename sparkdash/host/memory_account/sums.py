"""Division of the box's memory among holders, so that all rows add up to MemTotal.

Owns: how each figure is divided among its owners. Must not know how a figure is read.

The kernel's own figures come first: free, anonymous, page cache with shared memory in it, kernel objects. Each is
divided among its owners. Claims that exceed the figure (pages shared between processes count in each of them) are
scaled down, and an unclaimed rest is a row of its own. The rest of MemTotal after all kernel figures is memory that
drivers took unreported, on a GB10 the GPU's. NVML's figures per process divide it.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from sparkdash.domain.memory.account import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.host.memory_account.owners import Owner
from sparkdash.host.memory_account.pools import MemoryFigures, Pools, ShmFiles, divide, pools
from sparkdash.host.memory_account.process_table import ProcessMemory
from sparkdash.host.memory_account.remedies import LARGE, SHM, remedy, removal
from sparkdash.units import duration, gib

ROWS = 40
"""Number of holders with a row of their own; smaller ones share a row with others of their kind."""
OVERLAP = 1.02
"""Factor by which claims may exceed their figure without a note, as files are read one after the other."""
TOP = 3
"""Number of programs that a row names."""


def divide_memory(seen: MemoryFigures) -> MemoryAccount:
    """Divide MemTotal among the holders."""
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


def _held(seen: MemoryFigures, found: Pools, notes: list[str]) -> Iterator[Holding]:
    """Holdings that do not come back by themselves, without the kernel's own objects."""
    processes = list(seen.processes)
    by_pid, unseen = _divide_anonymous(processes, found.anonymous)
    _note_overlap(notes, "anonymous memory", sum(one.anonymous for one in processes), found.anonymous)
    leftovers, rest = divide(found.shared, {one: one.bytes for one in seen.leftovers})
    by_owner, shared = divide(rest, _mapped_by_owner(processes, seen.owners))
    host = Counter(by_owner)
    for pid, size in by_pid.items():
        host[seen.owners[pid]] += size
    on_gpu, unnamed = _on_gpu(seen, found, notes)
    yield from _owners(seen, processes, host, on_gpu)
    yield from (_leftover(one, size) for one, size in leftovers.items())
    for kind, name, size, what in (
        (Holder.UNSEEN, "other processes", unseen, "hidden from this user, or gone meanwhile"),
        (Holder.SHARED, "shared memory", shared, _tmpfs(seen)),
    ):
        if size:
            yield Holding(kind=kind, name=name, bytes=size, what=what)
    if unnamed:
        yield _unaccounted(seen, unnamed)


def _divide_anonymous(processes: list[ProcessMemory], anonymous: int) -> tuple[dict[int, int], int]:
    """(share by pid, bytes that no process claims); exact figures come before estimates."""
    by_pid, rest = divide(anonymous, {one.pid: one.anonymous for one in processes if one.exact})
    others, unseen = divide(rest, {one.pid: one.anonymous for one in processes if not one.exact})
    return by_pid | others, unseen


def _mapped_by_owner(processes: list[ProcessMemory], owners: Mapping[int, Owner]) -> Counter[Owner]:
    """Shared memory by owner: an engine's processes map the same pages, so the largest stands for all."""
    mapped: Counter[Owner] = Counter()
    for one in processes:
        mapped[owners[one.pid]] = max(mapped[owners[one.pid]], one.shared)
    return mapped


def _tmpfs(seen: MemoryFigures) -> str:
    """The largest file systems in memory; what of their files a process maps is that process's."""
    largest = sorted(((size, mount) for mount, size in seen.tmpfs.items() if size >= LARGE // 4), reverse=True)
    told = ", ".join(f"{mount} {gib(size)}" for size, mount in largest[:TOP])
    return f"tmpfs, memfd, System V: {told}" if told else "tmpfs, memfd, System V"


def _on_gpu(seen: MemoryFigures, found: Pools, notes: list[str]) -> tuple[dict[int, int], int]:
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
    seen: MemoryFigures, processes: list[ProcessMemory], host: Mapping[Owner, int], on_gpu: Mapping[int, int]
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
        gpu_bytes=_sum_known(told.get(one.pid) for one in members),
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
        yield _join(kind, [row for row in rows if row.kind is kind])


def _join(kind: Holder, small: list[Holding]) -> Holding:
    return Holding(
        kind=kind,
        name=f"{len(small)} smaller",
        bytes=sum(row.bytes for row in small),
        host_bytes=sum(row.host_bytes or 0 for row in small),
        gpu_bytes=_sum_known(row.gpu_bytes for row in small),
        swap_bytes=sum(row.swap_bytes or 0 for row in small),
        processes=sum(row.processes or 0 for row in small),
    )


def _sum_known(sizes: Iterable[int | None]) -> int | None:
    """Sum the known sizes; None if none is known."""
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _leftover(one: ShmFiles, share: int) -> Holding:
    number = f"{len(one.names)} file{'s' if len(one.names) > 1 else ''}"
    count = f"{number} like {one.names[0]}, up to {duration(one.oldest_s)} old"
    known = "no process maps them" if one.certain else "a process that this user may not look at may map them"
    command = removal(one.names, own=one.own) if one.certain else None
    return Holding(kind=Holder.LEFTOVER, name=SHM, bytes=share, user=one.user, what=f"{count}; {known}", remedy=command)


def _is_told(seen: MemoryFigures) -> bool:
    return seen.gpu is not None and seen.gpu_whole


def _unaccounted(seen: MemoryFigures, size: int) -> Holding:
    if seen.gpu_memory in (GpuMemory.UNIFIED, GpuMemory.SILENT):
        name = "GPU driver or kernel"
        unnamed = "in no process that the GPU driver names" if _is_told(seen) else "NVML does not tell whose it is"
        what = f"owner unknown: {unnamed}, and in none of the kernel's figures"
    else:
        name, what = "not accounted", "in no process and in none of the kernel's figures: drivers' buffers"
    return Holding(kind=Holder.UNACCOUNTED, name=name, bytes=size, what=what)


def _given_back(seen: MemoryFigures, found: Pools) -> Iterator[Holding]:
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

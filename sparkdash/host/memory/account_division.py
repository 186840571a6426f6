"""Division of the box's memory among its holders, so that all rows add up to MemTotal.

The kernel's own figures come first: free, anonymous, page cache with shared memory in it, kernel objects. Each is
divided among the owners of the processes. Claims that exceed the figure (pages shared between processes count in each
of them) are scaled down, and an unclaimed rest is a row of its own. The rest of MemTotal after all kernel figures is
memory that drivers took unreported, on a GB10 the GPU's. NVML's figures per process divide it. Pure.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sparkdash.domain.memory import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.units import MIB, gib

LARGE = 256 * MIB  # least memory for which a command is given
OVERLAP = 1.02  # files are read one after the other
K = TypeVar("K")

_ID = re.compile(r"[0-9a-f]{64}")
_RUNTIMES = (("libpod", "podman"), ("docker", "docker"))
"""Runtimes by a mark in a control group's path."""
_SHELLS = re.compile(r"(session-|tmux-spawn-|vte-spawn-|run-)[^/]*\.scope|init\.scope|user@\d+\.service")
"""Units whose name does not tell their content: logins, terminals."""
_PLAIN = re.compile(r"\w[\w.@:/+\\=-]*", re.ASCII)
_KEPT = re.compile(
    r"(ssh|sshd|dbus(-broker)?|systemd-.*|NetworkManager|wpa_supplicant|polkit|getty@.*|serial-getty@.*"
    r"|nvidia-persistenced|docker|containerd|podman|user@.*|dbus-:.*)\.(service|scope)"
)
"""Units whose stop would cut the owner off, or end other holders too."""


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of one process in bytes; `anonymous` counts pages shared by a fork in each process."""

    pid: int
    parent: int
    name: str
    """Kernel's name, up to 15 characters, chosen by the program; of a large Python program with its script."""
    uid: int
    anonymous: int
    shared: int
    swapped: int = 0
    cgroup: str = ""
    """Path of its control group (version 2)."""
    stuck: bool = False
    """Whether the process waits in the kernel, where its memory lock may be held."""


class Owner(NamedTuple):
    """Owner of processes; those with an equal owner share a row. `runtime` and `image` are a container's."""

    kind: Holder
    name: str
    user: str | None = None
    runtime: str | None = None
    image: str | None = None
    of_user: bool = False
    """Whether a user's service manager runs the unit."""
    own: bool = True
    """Whether the process belongs to the user who asks."""


@dataclass(frozen=True, slots=True)
class KnownOwners:
    """Knowledge about the box's processes beyond /proc."""

    engines: Mapping[int, str] = field(default_factory=dict)
    """Profile by pid."""
    containers: Mapping[str, Owner] = field(default_factory=dict)
    """Containers by full id; an engine of this daemon by its profile."""
    mains: Mapping[int, Owner] = field(default_factory=dict)
    """Containers by the pid of their first process, if their control group does not name them."""
    ours: frozenset[int] = frozenset()
    """Pids of our daemon and of the asking process."""
    asks: int = 0
    """Uid of the user who asks."""
    users: Mapping[int, str] = field(default_factory=dict)

    def user(self, uid: int) -> str:
        return self.users.get(uid, f"uid {uid}")


def owners(processes: Iterable[ProcessMemory], known: KnownOwners) -> dict[int, Owner]:
    listed = {one.pid: one for one in processes}
    ours = known.ours | {pid for pid, one in listed.items() if one.name == "sparkdash"}
    return {pid: _owner(one, _ancestors(one, listed), known, ours) for pid, one in listed.items()}


def container_id(cgroup: str) -> tuple[str, str] | None:
    """Parse (runtime, full id) of the outermost container in a control group's path."""
    found = _ID.search(cgroup)
    if found is None:
        return None
    before = cgroup[: found.start()]
    return next((name for mark, name in _RUNTIMES if mark in before), "containerd"), found.group()


def _ancestors(one: ProcessMemory, listed: Mapping[int, ProcessMemory]) -> list[int]:
    """Pid of the process and its ancestors, nearest first."""
    found = [one.pid]
    while (parent := listed.get(one.parent)) is not None and parent.pid not in found:
        found.append(parent.pid)
        one = parent
    return found


def _owner(one: ProcessMemory, family: list[int], known: KnownOwners, ours: frozenset[int]) -> Owner:
    if profile := next((known.engines[pid] for pid in family if pid in known.engines), None):
        return Owner(Holder.ENGINE, profile)
    if (named := container_id(one.cgroup)) is not None:
        runtime, id_ = named
        return known.containers.get(id_) or Owner(Holder.CONTAINER, id_[:12], runtime=runtime)
    if told := next((known.mains[pid] for pid in family if pid in known.mains), None):
        return told
    user, own = known.user(one.uid), known.asks in (0, one.uid)
    if not ours.isdisjoint(family):
        return Owner(Holder.SPARKDASH, "sparkdash", user)
    return _unit(one.cgroup, user, own=own) or Owner(Holder.PROGRAM, one.name, user, own=own)


def _unit(cgroup: str, user: str, *, own: bool) -> Owner | None:
    """Service or application of a control group by systemd; None for logins and terminals."""
    units = [part for part in cgroup.split("/") if part.endswith((".service", ".scope"))]
    if not units or _SHELLS.fullmatch(units[-1]):
        return None
    if not units[0].startswith("user@"):  # processes of one service may run as several users
        return Owner(Holder.UNIT, units[-1])
    return Owner(Holder.UNIT, units[-1], user, of_user=True, own=own)


def remedy(owner: Owner, pid: int) -> str | None:
    """Command that ends this holder; None if none is advisable. `pid` is its largest process."""
    if owner.kind is Holder.PROGRAM:
        return f"{'' if owner.own else 'sudo '}kill {pid}"
    if not _PLAIN.fullmatch(owner.name):
        return None
    if owner.kind is Holder.ENGINE:
        return f"sparkdash stop {owner.name}"
    if owner.kind is Holder.CONTAINER and owner.runtime in ("podman", "docker"):
        return f"{owner.runtime} stop {owner.name}"
    if owner.kind is Holder.UNIT and not _KEPT.fullmatch(owner.name) and (owner.own or not owner.of_user):
        return f"{'systemctl --user' if owner.of_user else 'sudo systemctl'} stop {shlex.quote(owner.name)}"
    return None


@dataclass(frozen=True, kw_only=True)
class MemoryFigures:
    """All readings for one account."""

    at: float
    meminfo: Mapping[str, int]
    processes: tuple[ProcessMemory, ...] = ()
    unreadable: int = 0
    owners: Mapping[int, Owner] = field(default_factory=dict)
    gpu: Mapping[int, int] | None = None
    """GPU memory by pid; None if the driver does not report it."""
    gpu_whole: bool = True
    gpu_memory: GpuMemory = GpuMemory.NONE

    @property
    def is_told(self) -> bool:
        """Whether the driver tells all processes' GPU memory."""
        return self.gpu is not None and self.gpu_whole


class Pools(NamedTuple):
    """MemTotal split by the kernel's own figures, each byte once."""

    free: int
    anonymous: int
    shared: int
    cached: int
    """Page cache without shared memory."""
    reclaimable: int
    """Kernel objects that can be reclaimed."""
    kernel: tuple[Holding, ...]
    rest: int
    """Bytes in none of these figures."""


def divide_memory(seen: MemoryFigures) -> MemoryAccount:
    found, notes = pools(seen), list[str]()
    rows = [*_held(seen, found, notes), *found.kernel, *_given_back(found)]
    rows.sort(key=lambda row: (row.reclaimable, -row.bytes))
    swap, unused = seen.meminfo.get("SwapTotal"), seen.meminfo.get("SwapFree")
    return MemoryAccount(
        at=seen.at,
        total=seen.meminfo["MemTotal"],
        available=seen.meminfo.get("MemAvailable"),
        holdings=(*rows, Holding(kind=Holder.FREE, name="free", bytes=found.free)),
        gpu=seen.gpu_memory,
        gpu_told=seen.is_told,
        unreadable=seen.unreadable,
        mlocked_bytes=seen.meminfo.get("Mlocked"),
        swap_total=swap,
        swap_used=None if swap is None or unused is None else swap - unused,
        notes=tuple(notes),
    )


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
    kernel = [
        Holding(kind=Holder.KERNEL, name=name, bytes=taken, what=what)
        for name, what, size in _kernel(info)
        if (taken := take(size))
    ]
    return Pools(free, anonymous, shared, cached - shared, reclaimable, tuple(kernel), left)


def _kernel(info: Mapping[str, int]) -> Iterator[tuple[str, str, int]]:
    yield "slab", "kernel objects that cannot be given back", info.get("SUnreclaim", 0)
    yield "page tables", "", info.get("PageTables", 0) + info.get("SecPageTables", 0)
    yield "huge pages", "kept by vm.nr_hugepages; no engine uses them", info.get("Hugetlb", 0)
    # VmallocUsed counts the stacks too.
    yield (
        "kernel buffers",
        "stacks, per-CPU data, vmalloc",
        max(info.get("VmallocUsed", 0), info.get("KernelStack", 0)) + info.get("Percpu", 0),
    )


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


def _held(seen: MemoryFigures, found: Pools, notes: list[str]) -> Iterator[Holding]:
    """Holdings that do not come back by themselves, without the kernel's own objects."""
    processes = seen.processes
    by_pid, unseen = divide(found.anonymous, {one.pid: one.anonymous for one in processes})
    _note_overlap(notes, "anonymous memory", sum(one.anonymous for one in processes), found.anonymous)
    by_owner, shared = divide(found.shared, _mapped_by_owner(processes, seen.owners))
    host = Counter(by_owner)
    for pid, size in by_pid.items():
        host[seen.owners[pid]] += size
    on_gpu, unnamed = _on_gpu(seen, found, notes)
    yield from _owners(seen, processes, host, on_gpu)
    if unseen:
        what = "hidden from this user, or gone meanwhile"
        yield Holding(kind=Holder.UNSEEN, name="other processes", bytes=unseen, what=what)
    if shared:
        yield Holding(
            kind=Holder.SHARED, name="shared memory", bytes=shared, what="tmpfs (/dev/shm, /tmp), memfd, System V"
        )
    if unnamed:
        yield _unaccounted(seen, unnamed)


def _mapped_by_owner(processes: Sequence[ProcessMemory], owners: Mapping[int, Owner]) -> Counter[Owner]:
    """Shared memory by owner: an engine's processes map the same pages, so the largest stands for all."""
    mapped: Counter[Owner] = Counter()
    for one in processes:
        mapped[owners[one.pid]] = max(mapped[owners[one.pid]], one.shared)
    return mapped


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
    seen: MemoryFigures, processes: Sequence[ProcessMemory], host: Mapping[Owner, int], on_gpu: Mapping[int, int]
) -> Iterator[Holding]:
    members: dict[Owner, list[ProcessMemory]] = {}
    for one in processes:
        members.setdefault(seen.owners[one.pid], []).append(one)
    told, listed = seen.gpu or {}, {one.pid for one in processes}
    rows = [_owned(owner, each, host.get(owner, 0), told, on_gpu) for owner, each in members.items()]
    rows += [_strange_pid(pid, told[pid], on_gpu.get(pid, 0)) for pid in told if pid not in listed]
    yield from (row for row in rows if row.bytes or row.gpu_bytes)


def _owned(
    owner: Owner, members: list[ProcessMemory], host: int, told: Mapping[int, int], on_gpu: Mapping[int, int]
) -> Holding:
    size = host + sum(on_gpu.get(one.pid, 0) for one in members)
    largest = max(members, key=lambda one: one.anonymous + told.get(one.pid, 0))
    on_the_gpu = [told[one.pid] for one in members if one.pid in told]
    return Holding(
        kind=owner.kind,
        name=owner.name,
        bytes=size,
        host_bytes=host,
        gpu_bytes=sum(on_the_gpu) if on_the_gpu else None,
        swap_bytes=sum(one.swapped for one in members),
        user=owner.user,
        what=owner.image or ", ".join(_programs(members, told)),
        processes=len(members),
        pid=largest.pid,
        remedy=remedy(owner, largest.pid) if size >= LARGE or owner.kind is Holder.ENGINE else None,
    )


def _programs(members: Iterable[ProcessMemory], told: Mapping[int, int]) -> list[str]:
    """Name the three programs with the most memory."""
    found: Counter[str] = Counter()
    for one in members:
        found[one.name] += one.anonymous + told.get(one.pid, 0) + 1
    return [name for name, _ in found.most_common(3)]


def _strange_pid(pid: int, told: int, share: int) -> Holding:
    what = "the GPU driver names this process; it is hidden from this user or has ended"
    return Holding(kind=Holder.UNSEEN, name=f"pid {pid}", bytes=share, gpu_bytes=told, what=what, pid=pid)


def _unaccounted(seen: MemoryFigures, size: int) -> Holding:
    if seen.gpu_memory in (GpuMemory.UNIFIED, GpuMemory.SILENT):
        name = "GPU driver or kernel"
        unnamed = "in no process that the GPU driver names" if seen.is_told else "NVML does not tell whose it is"
        what = f"owner unknown: {unnamed}, and in none of the kernel's figures"
    else:
        name, what = "not accounted", "in no process and in none of the kernel's figures: drivers' buffers"
    return Holding(kind=Holder.UNACCOUNTED, name=name, bytes=size, what=what)


def _given_back(found: Pools) -> Iterator[Holding]:
    """Page cache and kernel objects that come back on demand."""
    if found.cached:
        what = "files, weights among them"
        yield Holding(kind=Holder.CACHE, name="page cache", bytes=found.cached, what=what)
    if found.reclaimable:
        what = "slab that can be given back"
        yield Holding(kind=Holder.CACHE, name="kernel caches", bytes=found.reclaimable, what=what)

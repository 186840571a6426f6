"""The account of the box's memory, read on demand.

Owns: the reads, their order and time limits. Must not know a figure's meaning (`sums`) or owner (`owners`). A late read
is left out, and the account still adds up. Nothing here runs periodically.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from sparkdash.domain.memory.account import GpuMemory, MemoryAccount
from sparkdash.errors import HostError
from sparkdash.host import meminfo
from sparkdash.host.files import page_cache
from sparkdash.host.memory_account import container_names, owners, process_table, program_names, shm_files, sums
from sparkdash.host.memory_account.owners import KnownOwners
from sparkdash.host.memory_account.pools import MemoryFigures, ShmFiles
from sparkdash.host.memory_account.process_table import ProcessMemory, ProcessTable
from sparkdash.host.memory_account.remedies import SHM
from sparkdash.host.memory_account.sums import OVERLAP
from sparkdash.host.processes.proc import PROC
from sparkdash.host.reader import GpuReading
from sparkdash.host.runtime import Runtime
from sparkdash.host.thread import in_thread
from sparkdash.units import KIB

TABLE_S = 10.0
"""Time limit of the walk through all processes: 0.35 s for 3,566 on two cores, more on a frozen box."""
DETAIL_S = 2.0
"""Time limit of each detail: leftover files, shares of shared pages, cached weights."""
ALIKE = 0.05
"""Difference up to which a GPU's reported own memory is taken for the system's, as a GB10 reports it."""
GPU_TRIES, GPU_PAUSE_S = 5, 0.1
_DRIVER = "driver/nvidia/version"
SHARES = 12
"""Number of the largest processes whose exact share of shared pages is read."""
T = TypeVar("T")


class GpuReader(Protocol):
    """Part of HostReader that the account needs."""

    async def gpu(self) -> GpuReading:
        """Read the GPU once, with a deadline of its own."""
        ...


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Sources of an account; only tests give the paths."""

    runtime: Runtime
    reader: GpuReader
    owner: str
    """Label of our engines."""
    ours: frozenset[int] = field(default_factory=lambda: frozenset({os.getpid()}))
    """Pids of our daemon and of the asking process; their children are ours too."""
    engines: Mapping[str, set[int]] = field(default_factory=dict)
    """Pids by profile, as far as already known."""
    weights: Callable[[], Mapping[str, Collection[Path]]] = dict
    """Weight files by model; called in a thread."""
    uid: int = field(default_factory=os.getuid)
    proc: Path = PROC
    sys: Path = Path("/sys")
    shm: Path = Path(SHM)
    passwd: Path = Path("/etc/passwd")


async def account_for_memory(sources: Sources) -> MemoryAccount:
    """Account for the box's memory once.

    Raises:
        HostError: `no_meminfo`; `memory_unread` if /proc did not answer within TABLE_S.
    """
    named = await container_names.containers_of_runtime(sources.runtime, sources.owner)
    reading = await _gpu(sources)
    read = await _limited(lambda: _read(sources, named.by_id.keys()), TABLE_S)
    known = KnownOwners(
        engines={pid: profile for profile, pids in sources.engines.items() for pid in pids},
        containers=named.by_id | await container_names.containers_of_others(read.unknown, sources.runtime.name),
        mains=named.by_pid,
        ours=sources.ours,
        asks=sources.uid,
        users=read.users,
    )
    listed = read.table.processes
    shares, names, shm, weights = await asyncio.gather(
        _shares(read.meminfo, listed, sources.proc),
        _detail(lambda: program_names.script_names(listed, sources.proc), otherwise=dict[int, str]()),
        _detail(
            lambda: shm_files.find_leftover_files(listed, known.user, sources.shm, sources.proc, sources.uid),
            otherwise=tuple[ShmFiles, ...](),
        ),
        _detail(lambda: _cached(sources.weights()), otherwise=dict[str, int]()),
    )
    processes = tuple(process_table.refined(one, shares.get(one.pid), names.get(one.pid)) for one in listed)
    return await in_thread(  # thousands of processes take some ten milliseconds
        lambda: sums.divide_memory(
            MemoryFigures(
                at=time.time(),
                meminfo=read.meminfo,
                zram=read.zram,
                arc=read.arc,
                tmpfs=read.tmpfs,
                processes=processes,
                unreadable=read.table.unreadable,
                owners=owners.owners(processes, known),
                gpu=reading.processes,
                gpu_whole=not reading.unmeasured,
                gpu_memory=_where(reading, read),
                leftovers=shm,
                weights=weights,
            )
        )
    )


class _Read(NamedTuple):
    """Readings of the first thread."""

    meminfo: Mapping[str, int]
    table: ProcessTable
    unknown: Mapping[str, Collection[str]]
    """Ids of containers that our own runtime did not name, by their runtime."""
    zram: int
    arc: int
    tmpfs: Mapping[str, int]
    driver: bool
    """Whether an NVIDIA driver is loaded."""
    users: Mapping[int, str]


def _read(sources: Sources, named: Collection[str]) -> _Read:
    """Read the kernel's figures right after those of the processes, so that they agree."""
    meminfo.read_memory(sources.proc)  # raises without the needed figures
    table = process_table.read_process_table(sources.proc)
    kernel = meminfo.meminfo_figures(sources.proc)
    unknown: dict[str, set[str]] = {}
    for one in table.processes:
        if (told := owners.container_id(one.cgroups)) and told[1] not in named:
            unknown.setdefault(told[0], set()).add(told[1])
    arc, driver = _arc(sources.proc), (sources.proc / _DRIVER).exists()
    return _Read(kernel, table, unknown, _zram(sources.sys), arc, _tmpfs(sources.proc), driver, _users(sources.passwd))


async def _gpu(sources: Sources) -> GpuReading:
    """Read the GPU, with repeats: a reading during another one is empty."""
    for _ in range(GPU_TRIES):
        reading = await sources.reader.gpu()
        if reading.gpu is not None or not (sources.proc / _DRIVER).exists():
            break
        await asyncio.sleep(GPU_PAUSE_S)
    return reading


async def _limited(work: Callable[[], T], limit_s: float) -> T:
    try:
        async with asyncio.timeout(limit_s):
            return await in_thread(work)
    except TimeoutError:
        raise HostError(f"/proc was not read within {limit_s:g} s.", code="memory_unread", hint="Try again.") from None


async def _detail(work: Callable[[], T], *, otherwise: T) -> T:
    with suppress(HostError, OSError, ValueError):
        return await _limited(work, DETAIL_S)
    return otherwise


def _where(reading: GpuReading, read: _Read) -> GpuMemory:
    if reading.gpu is None:
        return GpuMemory.SILENT if read.driver else GpuMemory.NONE
    own, total = reading.own_memory, read.meminfo["MemTotal"]
    return GpuMemory.UNIFIED if own is None or abs(own - total) < ALIKE * total else GpuMemory.OWN


async def _shares(info: Mapping[str, int], processes: tuple[ProcessMemory, ...], proc: Path) -> dict[int, int]:
    """Exact shares of the largest processes by pid, if pages shared by a fork count more than once."""
    anonymous = sum(one.anonymous for one in processes)
    if anonymous <= info.get("AnonPages", anonymous) * OVERLAP:
        return {}
    largest = sorted((one for one in processes if not one.stuck), key=lambda one: -one.anonymous)[:SHARES]
    return await _detail(lambda: _exact(largest, proc), otherwise=dict[int, int]())


def _exact(largest: Iterable[ProcessMemory], proc: Path) -> dict[int, int]:
    """Read exact shares until half of DETAIL_S is over."""
    until, found = time.monotonic() + DETAIL_S / 2, dict[int, int]()
    for one in largest:
        if time.monotonic() > until:
            break
        if (share := _share(one.pid, proc)) is not None:
            found[one.pid] = share
    return found


def _share(pid: int, proc: Path) -> int | None:
    """Anonymous memory with each shared page divided by its number of users; None if it may not be read."""
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * KIB for line in lines if line.startswith("Pss_Anon:")), None)


def _cached(weights: Mapping[str, Iterable[Path]]) -> dict[str, int]:
    """Return the cached bytes by model, without models that have a file which this user may not query."""
    until, found, counted = time.monotonic() + DETAIL_S / 2, dict[str, int](), set[Path]()
    for model, files in weights.items():
        sizes = []
        for file in set(files) - counted:
            if time.monotonic() > until:
                return found
            sizes.append(_cached_bytes(file))
            counted.add(file)
        if sizes and None not in sizes:
            found[model] = sum(size for size in sizes if size is not None)
    return {model: size for model, size in found.items() if size}


def _cached_bytes(file: Path) -> int | None:
    try:
        opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return page_cache.cached_bytes(opened)
    finally:
        os.close(opened)


def _zram(sys: Path) -> int:
    """RAM of swap compressed in memory: third figure of mm_stat (kernel's zram.rst)."""
    total = 0
    for file in sys.glob("block/zram*/mm_stat"):
        with suppress(OSError, ValueError, IndexError):
            total += int(file.read_text().split()[2])
    return total


def _arc(proc: Path) -> int:
    """Size of ZFS's cache, which /proc/meminfo lacks: "size 4 BYTES" in its arcstats."""
    try:
        rows = [line.split() for line in (proc / "spl/kstat/zfs/arcstats").read_text().splitlines()]
    except OSError:
        return 0
    return next((int(row[2]) for row in rows if len(row) == 3 and row[0] == "size" and row[2].isdecimal()), 0)


def _tmpfs(proc: Path) -> dict[str, int]:
    """Used bytes of each visible tmpfs, by mount point; one that is mounted twice counts once."""
    found: dict[str, tuple[str, int]] = {}
    try:
        rows = (proc / "self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    for words in (row.split() for row in rows if " - tmpfs " in row):
        mount = words[4].replace("\\040", " ")
        with suppress(OSError):
            told = os.statvfs(mount)
            found.setdefault(words[2], (mount, (told.f_blocks - told.f_bfree) * told.f_frsize))
    return dict(found.values())


def _users(passwd: Path) -> dict[int, str]:
    """Local users by uid, without directory services, which may hang with the network."""
    try:
        rows = [line.split(":") for line in passwd.read_text(errors="replace").splitlines()]
    except OSError:
        return {}
    return {int(row[2]): row[0] for row in rows if len(row) > 2 and row[2].isdecimal()}

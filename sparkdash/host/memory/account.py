"""The account of the box's memory, read on demand. A late read is left out, and the account still adds up.

Of a process only files are read that the kernel answers without the process's memory lock: `cmdline` takes that lock,
and a reader hangs with a hanging process: it is read with a time limit, for names alone.
"""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TypeVar

from sparkdash.domain.container import LABEL_OWNER, LABEL_PROFILE, ContainerInfo, ContainerState
from sparkdash.domain.memory import GpuMemory, Holder, MemoryAccount
from sparkdash.errors import HostError
from sparkdash.host import kernel_figures, meminfo
from sparkdash.host.box import GpuReading
from sparkdash.host.command import run_command
from sparkdash.host.memory import account_division as division
from sparkdash.host.processes.proc import PROC
from sparkdash.host.runtime import Runtime
from sparkdash.host.thread import in_thread
from sparkdash.units import KIB, MIB

RUNTIME_S = 5.0
TABLE_S = 10.0  # 3,566 processes take 0.35 s on two cores, more on a frozen box
SCRIPTS_S = 2.0
ALIKE = 0.05
"""Difference up to which a GPU's reported own memory is taken for the system's, as a GB10 reports it."""
GPU_TRIES, GPU_PAUSE_S = 5, 0.1
SCRIPT_LARGE = 64 * MIB
"""Least size of the Python programs whose script is named."""

_DRIVER = "driver/nvidia/version"
_FIELDS = re.compile(rb"^(Name|State|PPid|Uid|RssAnon|RssShmem|VmSwap):[ \t]*(.*)$", re.M)
_NAMES = ("ps", "--no-trunc", "--format", "{{.ID}}\t{{.Names}}\t{{.Image}}")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Sources of an account; only tests give the paths."""

    runtime: Runtime
    gpu: Callable[[], Awaitable[GpuReading]]
    """Reads the GPU once, with a deadline of its own."""
    owner: str
    """Label of our engines."""
    ours: frozenset[int] = field(default_factory=lambda: frozenset({os.getpid()}))
    """Pids of our daemon and of the asking process; their children are ours too."""
    engines: Mapping[str, set[int]] = field(default_factory=dict)
    """Pids by profile, as far as already known."""
    uid: int = field(default_factory=os.getuid)
    proc: Path = PROC
    passwd: Path = Path("/etc/passwd")


async def account_for_memory(sources: Sources) -> MemoryAccount:
    """Account for the box's memory once. Raises HostError: `no_meminfo`; `memory_unread` after TABLE_S."""
    running = await _our_containers(sources)
    reading = await _gpu(sources)
    read = await _limited(lambda: _read(sources.proc), TABLE_S)
    known = division.KnownOwners(
        engines={pid: profile for profile, pids in sources.engines.items() for pid in pids},
        containers=await _docker_containers(read.processes) | {info.id: named for info, named in running},
        mains={info.pid: named for info, named in running if info.pid},
        ours=sources.ours,
        asks=sources.uid,
        users=_users(sources.passwd),
    )
    scripts: dict[int, str] = {}
    with suppress(HostError):
        scripts = await _limited(lambda: script_names(read.processes, sources.proc), SCRIPTS_S)
    processes = tuple(replace(one, name=scripts.get(one.pid, one.name)) for one in read.processes)
    figures = replace(
        read,
        processes=processes,
        gpu=reading.processes,
        gpu_whole=not reading.unmeasured,
        gpu_memory=_where(reading, read.meminfo["MemTotal"], sources.proc),
    )
    # Thousands of processes take some ten milliseconds.
    return await in_thread(lambda: division.divide_memory(replace(figures, owners=division.owners(processes, known))))


async def _limited(work: Callable[[], T], limit_s: float) -> T:
    try:
        async with asyncio.timeout(limit_s):
            return await in_thread(work)
    except TimeoutError:
        raise HostError(f"/proc was not read within {limit_s:g} s.", code="memory_unread", hint="Try again.") from None


def _read(proc: Path) -> division.MemoryFigures:
    """Read the kernel's figures right after those of the processes, so that they agree."""
    meminfo.read_memory(proc)  # raises without the needed figures
    processes, unreadable = read_processes(proc)
    kernel = kernel_figures.read_meminfo(str(proc))
    return division.MemoryFigures(at=time.time(), meminfo=kernel, processes=processes, unreadable=unreadable)


def read_processes(root: Path = PROC) -> tuple[tuple[division.ProcessMemory, ...], int]:
    """Read all processes with memory of their own; return them with the number that this user may not read."""
    found, unreadable = [], 0
    for pid in [int(name) for name in os.listdir(root) if name.isdigit()]:  # noqa: PTH208 - thousands of Path objects
        try:
            one = _process(pid, f"{root}/{pid}")
        except PermissionError:
            unreadable += 1
        except OSError:  # it has ended
            continue
        else:
            found += [one] if one else []
    return tuple(found), unreadable


def _process(pid: int, folder: str) -> division.ProcessMemory | None:
    fields = dict(_FIELDS.findall(_text(f"{folder}/status")))
    if b"RssAnon" not in fields:  # a kernel thread, or a zombie
        return None
    groups = b""
    with suppress(OSError):
        groups = _text(f"{folder}/cgroup")
    return division.ProcessMemory(
        pid,
        parent=int(fields.get(b"PPid", b"0")),
        name=fields.get(b"Name", b"").decode(errors="replace"),
        uid=int((fields.get(b"Uid", b"0").split() or [b"0"])[0]),
        anonymous=_bytes(fields, b"RssAnon"),
        shared=_bytes(fields, b"RssShmem"),
        swapped=_bytes(fields, b"VmSwap"),
        cgroup=next((line[3:] for line in groups.decode(errors="replace").splitlines() if line.startswith("0::")), ""),
        stuck=fields.get(b"State", b"").startswith(b"D"),
    )


def _bytes(fields: dict[bytes, bytes], name: bytes) -> int:
    words = fields.get(name, b"").split()
    return int(words[0]) * KIB if words else 0


def _text(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - thousands of Path objects
        return file.read()


def _users(passwd: Path) -> dict[int, str]:
    """Local users by uid, without directory services, which may hang with the network."""
    try:
        rows = [line.split(":") for line in passwd.read_text(errors="replace").splitlines()]
    except OSError:
        return {}
    return {int(row[2]): row[0] for row in rows if len(row) > 2 and row[2].isdecimal()}


def script_names(processes: Iterable[division.ProcessMemory], proc: Path = PROC) -> dict[int, str]:
    """Names of large Python processes with the script or module that they run, by pid; never an argument."""
    found = {}
    for one in processes:
        if one.anonymous < SCRIPT_LARGE or one.stuck or not one.name.startswith("python"):
            continue
        with suppress(OSError):
            words = (proc / str(one.pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[1:]
            first = next((word for word in words if not word.startswith("-") or word == "-c"), "-c")
            if name := PurePath(first).name.removeprefix("-c"):
                found[one.pid] = f"{one.name} {name[:40]}"
    return found


async def _our_containers(sources: Sources) -> list[tuple[ContainerInfo, division.Owner]]:
    """Running containers of our own runtime; none while it does not answer."""
    try:
        async with asyncio.timeout(RUNTIME_S):
            found = await sources.runtime.containers({})
    except (HostError, TimeoutError):
        return []
    name, owner = sources.runtime.name, sources.owner
    return [(each, _named(each, name, owner)) for each in found if each.state is ContainerState.RUNNING]


def _named(found: ContainerInfo, runtime: str, owner: str) -> division.Owner:
    profile = found.labels.get(LABEL_PROFILE)
    if profile is not None and found.labels.get(LABEL_OWNER) == owner:
        return division.Owner(Holder.ENGINE, profile)
    return division.Owner(Holder.CONTAINER, found.name, runtime=runtime, image=found.image)


async def _docker_containers(processes: Iterable[division.ProcessMemory]) -> dict[str, division.Owner]:
    """Containers of docker by id, where a process runs in one."""
    found = (division.container_id(one.cgroup) for one in processes)
    if not any(told and told[0] == "docker" for told in found):
        return {}
    try:
        done = await run_command(("docker", *_NAMES), deadline_s=RUNTIME_S)
    except OSError:  # not installed, or hanging: TimeoutError is an OSError
        return {}
    rows = [line.split("\t") for line in done.out.splitlines()]
    return {
        row[0]: division.Owner(Holder.CONTAINER, row[1], runtime="docker", image=row[2])
        for row in rows
        if len(row) == 3
    }


async def _gpu(sources: Sources) -> GpuReading:
    """Read the GPU, with repeats: a reading during another one is empty."""
    for _ in range(GPU_TRIES):
        reading = await sources.gpu()
        if reading.gpu is not None or not (sources.proc / _DRIVER).exists():
            break
        await asyncio.sleep(GPU_PAUSE_S)
    return reading


def _where(reading: GpuReading, total: int, proc: Path) -> GpuMemory:
    if reading.gpu is None:
        return GpuMemory.SILENT if (proc / _DRIVER).exists() else GpuMemory.NONE
    own = reading.own_memory
    return GpuMemory.UNIFIED if own is None or abs(own - total) < ALIKE * total else GpuMemory.OWN

"""Queries of the real box beyond plain files: commands, disks, ports, the GPU, the catalog.

Tests hand Probe other functions.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from sparkdash import catalog, paths
from sparkdash.doctor.facts import Disk, Listener, ProfilesSeen, UnreadFact
from sparkdash.domain.memory import LoadContiguity, MemoryAccount
from sparkdash.domain.metric import Gpu
from sparkdash.domain.profile import ApiProtocol, Profile
from sparkdash.engines.registry import adapter_of
from sparkdash.engines.rule import Severity
from sparkdash.host.box import BoxReader
from sparkdash.host.command import CommandResult, run_command
from sparkdash.host.kernel_lines import KernelFindings
from sparkdash.host.kernel_log import KernelLog
from sparkdash.host.memory.account import Sources, account_for_memory
from sparkdash.host.nvml import Nvml
from sparkdash.host.podman.podman import Podman
from sparkdash.host.processes.process import Process
from sparkdash.rules import findings
from sparkdash.settings import Settings
from sparkdash.store import past
from sparkdash.telemetry import gpu_power

READ_S = 5.0
"""Time limit of one read. All reads together take 0.1 s on an idle box."""

K = TypeVar("K")
V = TypeVar("V")


async def read_within(what: str, work: Callable[[], V], *, limit_s: float = READ_S) -> V | UnreadFact:
    """Run `work` in a thread of its own; return its result, or an UnreadFact if it fails or takes too long."""
    future: Future[V] = Future()
    future.set_running_or_notify_cancel()
    threading.Thread(target=_work, args=(future, work), name=f"doctor {what}", daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), limit_s)
    except TimeoutError:
        return UnreadFact(f"{what} did not answer within {limit_s:g} s")
    except Exception as error:  # noqa: BLE001 - any failure is the reason why the fact is unknown
        return UnreadFact(f"{what} cannot be read: {error}")


async def gather_by_key(keys: Iterable[K], read: Callable[[K], Awaitable[V]]) -> dict[K, V]:
    """Read all keys at once; return the results by key."""
    ordered = list(keys)
    return dict(zip(ordered, await asyncio.gather(*map(read, ordered)), strict=True))


def _work(future: Future[V], work: Callable[[], V]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - handed to the waiting caller
        future.set_exception(error)
    else:
        future.set_result(result)


COMMAND_S = 15.0
"""Time limit of one command. `podman info` takes 0.1 s; its first call after a reboot may take seconds."""
DAY_S = 86_400.0
"""Span of the kernel's log that is read."""
NVML_S = 10.0
"""Time limit of a reading of the GPU: without the persistence daemon the first one initialises the driver."""
LOOKS, APART_S = 3, 1.0
"""Readings of a busy GPU and their distance: a single one cannot show the stuck low-power state."""


async def command(argv: Sequence[str]) -> CommandResult:
    return await run_command(argv, deadline_s=COMMAND_S)


async def looks() -> list[Gpu]:
    """Read the GPU once, and up to LOOKS times while it is busy; nothing without NVML."""
    nvml = Nvml(deadline_s=NVML_S)
    found: list[Gpu] = []
    while (gpu := (await nvml.read()).gpu) is not None:
        found.append(gpu)
        if len(found) == LOOKS or (gpu.utilization or 0.0) < gpu_power.BUSY:
            break
        await asyncio.sleep(APART_S)
    return found


def disk(path: Path) -> Disk:
    """File system of `path`, or of its nearest existing parent."""
    while not path.exists() and path != path.parent:
        path = path.parent
    usage = shutil.disk_usage(path)
    return Disk(usage.total, usage.free)


def listeners() -> list[Listener]:
    """All TCP listeners; programs of other users are named for root only."""
    import psutil

    heard = [(each.laddr, each.pid) for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    return [Listener(where.port, where.ip, pid, _program(pid)) for where, pid in heard if where]


def _program(pid: int | None) -> str | None:
    import psutil

    try:
        return None if pid is None else psutil.Process(pid).name()
    except psutil.Error:
        return None


def profiles(settings: Settings) -> ProfilesSeen:
    """Read the catalog and count what the rules find in it."""
    found = catalog.load_catalog(settings.profile_folders())
    levels = [one.level for one in findings(found)]
    return ProfilesSeen(
        len(found.profiles),
        len(found.problems),
        levels.count(Severity.ERROR),
        levels.count(Severity.WARNING),
        tuple(name for name, profile in found.profiles.items() if not profile.cannot_run and _lacks_one(profile)),
        importlib.util.find_spec("litellm") is not None,
    )


async def account(settings: Settings) -> MemoryAccount:
    """Account for the box's memory by holder; our engines are known by their labels. Raises HostError."""
    runtime = Process(paths.state_dir() / "processes") if settings.runtime == "process" else Podman(settings.runtime)
    return await account_for_memory(Sources(runtime=runtime, gpu=BoxReader().gpu, owner=paths.owner()))


def loads() -> tuple[LoadContiguity, ...]:
    """Free blocks before and after the last loads, from the daemon's database."""
    return past.read_loads(paths.state_dir() / "sparkdash.db")


async def kernel_log() -> KernelFindings | None:
    """Relevant lines of the kernel's log of the last day; None if this user may not read it."""
    return await KernelLog().since(time.time() - DAY_S)


def _lacks_one(profile: Profile) -> bool:
    return any(adapter_of(profile).lacks_protocol(profile, None, protocol) for protocol in ApiProtocol)

"""Probe: reads every fact that the checks declare, all at once. Tests hand it other sources.

Rule: it only reads, and never waits without a limit.
"""

import asyncio
import getpass
import os
import platform
import resource
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sparkdash import catalog, paths
from sparkdash.doctor import box, check, containers, memory, services  # noqa: F401 - in the register's order
from sparkdash.doctor.check import (
    Check,
    DaemonSeen,
    Disk,
    Listener,
    ProfilesSeen,
    Readings,
    Unreadable,
    checks_named,
    judge,
)
from sparkdash.domain.memory import MemoryAccount
from sparkdash.domain.metric import DiskRate, Gpu
from sparkdash.domain.node import Finding
from sparkdash.engines.rule import Severity
from sparkdash.errors import SparkdashError
from sparkdash.host.box import BoxReader, Nvml
from sparkdash.host.command import CommandResult, run_command
from sparkdash.host.kernel_lines import KernelFindings
from sparkdash.host.kernel_log import KernelLog
from sparkdash.host.local_weights import weight_files_of
from sparkdash.host.memory import page_cache
from sparkdash.host.memory.account import Sources, account_for_memory
from sparkdash.host.podman.with_starters import runtime_called
from sparkdash.host.thread import in_thread
from sparkdash.paths import open_regular
from sparkdash.rules import findings
from sparkdash.settings import Settings
from sparkdash.telemetry import power

READ_S = 5.0
"""Time limit of one read. All reads together take 0.1 s on an idle box."""

K = TypeVar("K")
V = TypeVar("V")


async def read_within(what: str, work: Callable[[], V], *, limit_s: float = READ_S) -> V | Unreadable:
    """Run `work` in a thread of its own; return its result, or an Unreadable if it fails or takes too long."""
    try:
        return await asyncio.wait_for(in_thread(work), limit_s)
    except TimeoutError:
        return Unreadable(f"{what} did not answer within {limit_s:g} s")
    except Exception as error:  # noqa: BLE001 - any failure is the reason why the fact is unknown
        return Unreadable(f"{what} cannot be read: {error}")


async def gather_by_key(keys: Iterable[K], read: Callable[[K], Awaitable[V]]) -> dict[K, V]:
    ordered = list(keys)
    return dict(zip(ordered, await asyncio.gather(*map(read, ordered)), strict=True))


COMMAND_S = 15.0
"""Time limit of one command. `podman info` takes 0.1 s; its first call after a reboot may take seconds."""
DAY_S = 86_400.0
DISK_S = 30.0
"""Time limit of measuring the disk: folders of dozens of models are listed first."""
NVML_S = 10.0
"""Time limit of a reading of the GPU: without the persistence daemon the first one initialises the driver."""
LOOKS, APART_S = 3, 1.0
"""Readings of a busy GPU and their distance: a single one cannot show the stuck low-power state."""


async def read_command(argv: Sequence[str]) -> CommandResult:
    return await run_command(argv, deadline_s=COMMAND_S)


async def read_looks() -> list[Gpu]:
    """Read the GPU once, and up to LOOKS times while it is busy; nothing without NVML."""
    nvml = Nvml(deadline_s=NVML_S)
    found: list[Gpu] = []
    while (gpu := (await nvml.read()).gpu) is not None:
        found.append(gpu)
        if len(found) == LOOKS or (gpu.utilization or 0.0) < power.BUSY:
            break
        await asyncio.sleep(APART_S)
    return found


def read_disk(path: Path) -> Disk:
    while not path.exists() and path != path.parent:
        path = path.parent
    usage = shutil.disk_usage(path)
    return Disk(usage.total, usage.free)


def read_listeners() -> list[Listener]:
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


def read_profiles(settings: Settings) -> ProfilesSeen:
    found = catalog.load_catalog(settings.profile_folders())
    levels = [one.level for one in findings(found)]
    return ProfilesSeen(
        len(found.profiles), len(found.problems), levels.count(Severity.ERROR), levels.count(Severity.WARNING)
    )


async def read_account(settings: Settings) -> MemoryAccount:
    """Account for the box's memory by holder; our engines are known by their labels. Raises HostError."""
    runtime = runtime_called(settings.runtime)
    return await account_for_memory(Sources(runtime=runtime, gpu=BoxReader().gpu, owner=paths.owner()))


async def read_kernel_log() -> KernelFindings | None:
    """Relevant lines of the kernel's log of the last day; None if this user may not read it."""
    return await KernelLog().since(time.time() - DAY_S)


def measure_disk(settings: Settings) -> DiskRate | None:
    """Read weights of the profiles for a moment. Raises OSError."""
    profiles, home = catalog.load_catalog(settings.profile_folders()).profiles.values(), settings.hf_home.expanduser()
    return page_cache.measure_disk_rate(
        {file for one in profiles for ref in one.weights for file in weight_files_of(ref, home)}
    )


FILE_LIMIT = 1 << 20
"""Bytes of a file that are read; a CDI spec of one GPU has 20 kB."""

Ended = CommandResult | None | Unreadable
Text = str | None | Unreadable
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Sources of the readings. Only the first three differ between real runs; tests replace the others."""

    settings: Settings
    settings_problem: str | None = None
    daemon: DaemonSeen | None = None
    root: Path = Path("/")
    command: Callable[[Sequence[str]], Awaitable[CommandResult]] = read_command
    looks: Callable[[], Awaitable[Sequence[Gpu]]] = read_looks
    disk: Callable[[Path], Disk] = read_disk
    listeners: Callable[[], Sequence[Listener]] = read_listeners
    profiles: Callable[[Settings], ProfilesSeen] = read_profiles
    account: Callable[[Settings], Awaitable[MemoryAccount]] = read_account
    kernel_log: Callable[[], Awaitable[KernelFindings | None]] = read_kernel_log
    disk_rate: Callable[[Settings], DiskRate | None] = measure_disk
    machine: str = field(default_factory=platform.machine)
    kernel: str = field(default_factory=platform.release)
    page_size: int = field(default_factory=resource.getpagesize)
    uid: int = field(default_factory=os.getuid)
    user: str = field(default_factory=lambda: _user())
    home: str = field(default_factory=lambda: str(Path("~").expanduser()))

    async def look(self, checks: Iterable[Check]) -> Readings:
        """Read what these checks need; never raises for a fact that cannot be read."""
        needs = [check.needs for check in checks]

        async def if_any(need: str, read: Callable[[], Awaitable[T]]) -> T | None:
            return await read() if any(each.get(need) for each in needs) else None

        commands = await gather_by_key({argv for each in needs for argv in each.get("runs", ())}, self._ended)
        names = self._names(commands)
        files, disks, heard, profiles, gpu = await asyncio.gather(
            gather_by_key(_fill_paths(names, {path for each in needs for path in each.get("reads", ())}), self._texts),
            gather_by_key(
                _fill_paths(names, {path for each in needs for path in each.get("disks", ())}),
                lambda path: read_within(path, lambda: self.disk(self._at(path))),
            ),
            if_any("listeners", lambda: read_within("The list of ports", self.listeners)),
            if_any("profiles", lambda: read_within("The profiles", lambda: self.profiles(self.settings))),
            if_any("gpu", self.looks),
        )
        account = await if_any("account", self._account)
        kernel = await if_any("kernel", self.kernel_log)
        rate = await if_any(
            "disk_rate",
            lambda: read_within("The disk of the weights", lambda: self.disk_rate(self.settings), limit_s=DISK_S),
        )
        return Readings(
            settings=self.settings,
            settings_problem=self.settings_problem,
            machine=self.machine,
            kernel=self.kernel,
            page_size=self.page_size,
            uid=self.uid,
            names=names,
            files={path: text for texts in files.values() for path, text in texts.items()},
            commands=commands,
            disks=disks,
            listeners=heard or (),
            looks=gpu or (),
            daemon=self.daemon,
            profiles=profiles,
            account=account,
            kernel_log=kernel,
            disk_rate=rate,
        )

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _names(self, commands: Mapping[tuple[str, ...], Ended]) -> dict[str, str]:
        """Values of the names in declared paths; podman tells its folder of images."""
        names = {
            "uid": str(self.uid),
            "user": self.user,
            "home": self.home,
            "hf_home": self._own(self.settings.hf_home),
            "cache_dir": self._own(self.settings.cache_dir),
        }
        done = commands.get(check.DOCKER if self.settings.runtime == "docker" else check.COMMAND)
        if isinstance(done, CommandResult):
            info = check.parse_podman_info(done)
            if root := (info.graph_root if info else "") or str(check.docker_info(done).get("DockerRootDir") or ""):
                names["graphroot"] = root
        return names

    def _own(self, path: Path) -> str:
        words = str(path)
        return self.home + words[1:] if words.startswith("~/") else str(path.expanduser().absolute())

    async def _ended(self, argv: tuple[str, ...]) -> Ended:
        words = " ".join(argv)
        try:
            return await self.command(argv)
        except FileNotFoundError:
            return None
        except TimeoutError:
            return Unreadable(f"`{words}` did not answer within {COMMAND_S:g} s")
        except OSError as error:
            if shutil.which(argv[0]) is None:  # an unreadable folder of PATH raises PermissionError
                return None
            return Unreadable(f"`{words}` cannot be run: {error.strerror or error}")

    async def _texts(self, pattern: str) -> dict[str, Text]:
        """Texts by path; None for a path without wildcards that does not exist."""
        texts = await read_within(pattern, lambda: self._met(pattern))
        return {pattern: texts} if isinstance(texts, Unreadable) else texts

    def _met(self, pattern: str) -> dict[str, Text]:
        if not set(pattern) & set("*?["):
            return {pattern: _text(self._at(pattern))}
        paths = self.root.glob(pattern.lstrip("/"))
        return {f"/{path.relative_to(self.root)}": _text(path) for path in paths if path.is_file()}

    async def _account(self) -> MemoryAccount | Unreadable:
        try:
            return await self.account(self.settings)
        except SparkdashError as error:
            return Unreadable(error.message.rstrip("."))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in some containers
        return str(os.getuid())


def _fill_paths(names: Mapping[str, str], declared: Iterable[str]) -> set[str]:
    """Fill the names of declared paths in; paths with an unknown name are left out, which Readings reports."""
    found = set()
    for pattern in declared:
        try:
            found.add(pattern.format_map(names))
        except KeyError:
            continue
    return found


def _text(path: Path) -> Text:
    try:
        with open_regular(path) as file:
            return file.read(FILE_LIMIT).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return None
    except OSError as error:
        return Unreadable(f"{path} cannot be read: {error.strerror or error}")


async def examine(probe: Probe, names: Iterable[str] = ()) -> tuple[Finding, ...]:
    """Read the box and run all checks, or those named. Raises AdmissionError: no check has that name."""
    chosen = checks_named(names)
    return judge(await probe.look(chosen), chosen)

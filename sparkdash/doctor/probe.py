"""Probe: reads every fact that the checks declare, all at once."""

from __future__ import annotations

import asyncio
import getpass
import os
import platform
import resource
import shutil
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sparkdash.doctor import box_queries
from sparkdash.doctor import facts as podman_info
from sparkdash.doctor.box_queries import gather_by_key, read_within
from sparkdash.doctor.check import Check
from sparkdash.doctor.facts import DaemonSeen, Disk, Facts, Listener, ProfilesSeen, UnreadFact
from sparkdash.domain.memory import LoadContiguity, MemoryAccount
from sparkdash.domain.metric import Gpu
from sparkdash.errors import SparkdashError
from sparkdash.host.command import CommandResult
from sparkdash.host.kernel_lines import KernelFindings
from sparkdash.settings import Settings

FILE_LIMIT = 1 << 20
"""Bytes of a file that are read; a CDI spec of one GPU has 20 kB."""

Ended = CommandResult | None | UnreadFact
Text = str | None | UnreadFact
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Sources of the facts. Only the first three differ between real runs; tests replace the others."""

    settings: Settings
    settings_problem: str | None = None
    daemon: DaemonSeen | None = None
    root: Path = Path("/")
    """Prefix of every path that is read."""
    command: Callable[[Sequence[str]], Awaitable[CommandResult]] = box_queries.command
    looks: Callable[[], Awaitable[Sequence[Gpu]]] = box_queries.looks
    disk: Callable[[Path], Disk] = box_queries.disk
    listeners: Callable[[], Sequence[Listener]] = box_queries.listeners
    profiles: Callable[[Settings], ProfilesSeen] = box_queries.profiles
    loads: Callable[[], Sequence[LoadContiguity]] = box_queries.loads
    account: Callable[[Settings], Awaitable[MemoryAccount]] = box_queries.account
    kernel_log: Callable[[], Awaitable[KernelFindings | None]] = box_queries.kernel_log
    machine: str = field(default_factory=platform.machine)
    kernel: str = field(default_factory=platform.release)
    page_size: int = field(default_factory=resource.getpagesize)
    uid: int = field(default_factory=os.getuid)
    user: str = field(default_factory=lambda: _user())
    home: str = field(default_factory=lambda: str(Path("~").expanduser()))
    memlock: int = field(default_factory=lambda: resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    async def look(self, checks: Iterable[Check]) -> Facts:
        """Read what these checks need; never raises for a fact that cannot be read."""
        wanted = tuple(checks)
        commands = await gather_by_key(_declared(wanted, lambda check: check.runs), self._ended)
        names = self._names(commands)
        files, modes, disks, heard, profiles, gpu = await asyncio.gather(
            gather_by_key(_fill_paths(names, _declared(wanted, lambda check: check.reads)), self._texts),
            gather_by_key(_fill_paths(names, _declared(wanted, lambda check: check.modes)), self._mode),
            gather_by_key(_fill_paths(names, _declared(wanted, lambda check: check.disks)), self._disk),
            _read_if_any(wanted, lambda check: check.listeners, self._listeners),
            _read_if_any(wanted, lambda check: check.profiles, self._profiles),
            _read_if_any(wanted, lambda check: check.gpu, self.looks),
        )
        account = await _read_if_any(wanted, lambda check: check.account, self._account)
        loads = await _read_if_any(wanted, lambda check: check.loads, self._loads)
        kernel = await _read_if_any(wanted, lambda check: check.kernel, self.kernel_log)
        return Facts(
            settings=self.settings,
            settings_problem=self.settings_problem,
            machine=self.machine,
            kernel=self.kernel,
            page_size=self.page_size,
            uid=self.uid,
            memlock=None if self.memlock == resource.RLIM_INFINITY else self.memlock,
            environment=self._set_variables(),
            names=names,
            files=_merged(files.values()),
            modes=modes,
            commands=commands,
            disks=disks,
            listeners=heard or (),
            looks=gpu or (),
            daemon=self.daemon,
            profiles=profiles,
            account=account,
            loads=loads or (),
            kernel_log=kernel,
        )

    def _set_variables(self) -> frozenset[str]:
        return frozenset(name for name, value in self.environment.items() if value)

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
        done = commands.get(podman_info.COMMAND)
        if isinstance(done, CommandResult) and (info := podman_info.parse_podman_info(done)) and info.graph_root:
            names["graphroot"] = info.graph_root
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
            return UnreadFact(f"`{words}` did not answer within {box_queries.COMMAND_S:g} s")
        except OSError as error:
            if (
                shutil.which(argv[0]) is None
            ):  # an unreadable folder of PATH raises PermissionError for a missing program
                return None
            return UnreadFact(f"`{words}` cannot be run: {error.strerror or error}")

    async def _texts(self, pattern: str) -> dict[str, Text]:
        """Texts by path; None for a path without wildcards that does not exist."""
        texts = await read_within(pattern, lambda: self._met(pattern))
        return {pattern: texts} if isinstance(texts, UnreadFact) else texts

    def _met(self, pattern: str) -> dict[str, Text]:
        if not set(pattern) & set("*?["):
            return {pattern: _text(self._at(pattern))}
        paths = self.root.glob(pattern.lstrip("/"))
        return {f"/{path.relative_to(self.root)}": _text(path) for path in paths if path.is_file()}

    async def _mode(self, path: str) -> int | UnreadFact | None:
        return await read_within(path, lambda: _bits(self._at(path)))

    async def _disk(self, path: str) -> Disk | UnreadFact:
        return await read_within(path, lambda: self.disk(self._at(path)))

    async def _listeners(self) -> Sequence[Listener] | UnreadFact:
        return await read_within("The list of ports", self.listeners)

    async def _account(self) -> MemoryAccount | UnreadFact:
        try:
            return await self.account(self.settings)
        except SparkdashError as error:
            return UnreadFact(error.message.rstrip("."))

    async def _loads(self) -> Sequence[LoadContiguity] | UnreadFact:
        return await read_within("The record of loads", self.loads)

    async def _profiles(self) -> ProfilesSeen | UnreadFact:
        return await read_within("The profiles", lambda: self.profiles(self.settings))


def _merged(parts: Iterable[Mapping[str, T]]) -> dict[str, T]:
    return {key: value for part in parts for key, value in part.items()}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in some containers
        return str(os.getuid())


def _declared(checks: Iterable[Check], facts: Callable[[Check], Iterable[T]]) -> set[T]:
    """Collect the facts of one kind that any of the checks declares."""
    return {fact for check in checks for fact in facts(check)}


def _fill_paths(names: Mapping[str, str], declared: Iterable[str]) -> set[str]:
    """Fill the names of declared paths in; paths with an unknown name are left out, which Facts reports."""
    found = set()
    for pattern in declared:
        try:
            found.add(pattern.format_map(names))
        except KeyError:
            continue
    return found


def _text(path: Path) -> Text:
    try:
        with path.open("rb") as file:
            return file.read(FILE_LIMIT).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return None
    except OSError as error:
        return UnreadFact(f"{path} cannot be read: {error.strerror or error}")


def _bits(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


async def _read_if_any(
    checks: Iterable[Check], needs: Callable[[Check], bool], read: Callable[[], Awaitable[T]]
) -> T | None:
    return await read() if any(map(needs, checks)) else None

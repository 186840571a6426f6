"""PURE: Facts, everything that was read of a box, and nothing that was not.

Owns: how checks ask for what was read. Must not know how it was read, or what it means.
Rule: what does not exist is None; what is there but could not be read raises Unread, which makes the finding "unknown".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

from sparkdash.domain.memory.account import MemoryAccount
from sparkdash.domain.memory.contiguity import LoadContiguity
from sparkdash.domain.metric import Gpu
from sparkdash.host.command import CommandResult
from sparkdash.host.kernel_log.lines import KernelFindings
from sparkdash.settings import Settings
from sparkdash.units import KIB

T = TypeVar("T")


class UnreadFact(Exception):  # noqa: N818 - it is no fault, it is an answer
    """It is there, but could not be read; the message says what and why."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system's size in bytes; `free` is what this user may still write."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Listener:
    """A TCP port that somebody listens on. `pid` and `program` are None where the kernel does not tell this user."""

    port: int
    address: str
    pid: int | None = None
    program: str | None = None


@dataclass(frozen=True, slots=True)
class DaemonSeen:
    """The daemon, as it answers; `problem` says why it does not, the rest is then None."""

    address: str
    version: str | None = None
    pid: int | None = None
    url: str | None = None
    runtime: str | None = None
    low_power: bool = False
    """Has it seen the GPU stuck in its low-power state?"""
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ProfilesSeen:
    """The catalog in figures: profiles that load, files' problems, and what the rules say against profiles."""

    profiles: int
    problems: int
    errors: int
    warnings: int
    translated: tuple[str, ...] = ()
    """Profiles whose engines are known to lack a protocol that clients speak."""
    translator: bool = True
    """Is what translates installed?"""


@dataclass(frozen=True, slots=True)
class Facts:
    """A box. Paths are as on the box, with `{user}`-like names filled in; bytes, seconds."""

    settings: Settings = field(default_factory=Settings)
    settings_problem: str | None = None
    """Why the owner's settings are not valid; `settings` are then the defaults."""
    machine: str = ""
    """As `uname -m` says."""
    kernel: str = ""
    """As `uname -r` says."""
    page_size: int = 4 * KIB
    """Of a page of memory, in bytes, as the kernel was built."""
    uid: int = 0
    memlock: int | None = None
    """Soft limit of locked memory; None is no limit."""
    environment: frozenset[str] = frozenset()
    """Names of variables that are set and not empty; never their values."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What `{user}`, `{uid}`, `{home}`, `{hf_home}`, `{cache_dir}` and `{graphroot}` stand for."""
    files: Mapping[str, str | UnreadFact | None] = field(default_factory=dict)
    modes: Mapping[str, int | UnreadFact | None] = field(default_factory=dict)
    commands: Mapping[tuple[str, ...], CommandResult | UnreadFact | None] = field(default_factory=dict)
    disks: Mapping[str, Disk | UnreadFact] = field(default_factory=dict)
    listeners: Sequence[Listener] | UnreadFact = ()
    looks: Sequence[Gpu] = ()
    """A few looks at the GPU, a second apart; empty when NVML tells nothing."""
    daemon: DaemonSeen | None = None
    profiles: ProfilesSeen | UnreadFact | None = None
    account: MemoryAccount | UnreadFact | None = None
    """Who holds the box's memory."""
    loads: Sequence[LoadContiguity] | UnreadFact = ()
    """Free blocks before and after the last loads, oldest first."""
    kernel_log: KernelFindings | UnreadFact | None = None
    """Lines of the kernel's log of the last day; None where it is closed to this user."""

    @property
    def rootless(self) -> bool:
        """Does podman run for an ordinary user?"""
        return self.uid != 0

    def path(self, pattern: str) -> str:
        """A declared path with its names filled in. Raises Unread when nobody told what one of them stands for."""
        try:
            return pattern.format_map(self.names)
        except KeyError:
            raise UnreadFact(f"Where {pattern} is, was not told") from None

    def file(self, pattern: str) -> str | None:
        """The text of one declared file; None when there is none."""
        return told(self.files[self.path(pattern)])

    def matching(self, pattern: str) -> dict[str, str]:
        """By path: the text of every file that a declared pattern has met."""
        wanted = self.path(pattern)
        found = {path: told(text) for path, text in self.files.items() if fnmatchcase(path, wanted)}
        return {path: text for path, text in sorted(found.items()) if text is not None}

    def mode(self, pattern: str) -> int | None:
        """The permission bits of something whose content is nobody's business; None when it is not there."""
        return told(self.modes[self.path(pattern)])

    def ran(self, command: tuple[str, ...]) -> CommandResult | None:
        """How a declared command ended; None when there is no such program."""
        return told(self.commands[command])

    def disk(self, pattern: str) -> Disk:
        """The file system that a declared place is on."""
        found = told(self.disks.get(self.path(pattern), UnreadFact(f"{pattern} is not known")))
        assert found is not None  # noqa: S101 - a disk is read or Unread
        return found

    def heard(self) -> Sequence[Listener]:
        """Who listens on TCP."""
        found = told(self.listeners)
        return () if found is None else found

    def told_loads(self) -> Sequence[LoadContiguity]:
        """The last loads; none where no daemon has kept any."""
        return told(self.loads) or ()

    def kernel_lines(self) -> KernelFindings | None:
        """Lines of the kernel's log; None where it is closed to this user."""
        return told(self.kernel_log)


def told(value: T | UnreadFact) -> T:
    """`value`, unless it could not be read. Raises Unread."""
    if isinstance(value, UnreadFact):
        raise value
    return value


def meminfo(text: str) -> dict[str, int]:
    """Bytes (plain counts where the kernel gives no unit) by the names of /proc/meminfo."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words:
            found[name] = int(words[0]) * (KIB if words[1:] == ["kB"] else 1)
    return found


def file_system(path: str, mountinfo: str) -> str | None:
    """The type of the file system that `path` is on, from /proc/self/mountinfo (proc(5)); None when it does not tell."""
    best, kind = "", None
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        words = before.split()
        if not dash or len(words) < 5:
            continue
        point = words[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind

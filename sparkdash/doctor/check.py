"""Checks of the doctor: what they read from a box, their results, the register of all, and their run.

Rule: a thing that does not exist is None. A thing that exists but could not be read raises Unreadable, which makes the
finding "unknown". Pure.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

from sparkdash.catalog.catalog import nearest
from sparkdash.domain.memory import MemoryAccount
from sparkdash.domain.metric import DiskRate, Gpu
from sparkdash.domain.node import Finding, Status
from sparkdash.errors import AdmissionError
from sparkdash.host.command import CommandResult
from sparkdash.host.kernel_lines import KernelFindings
from sparkdash.settings import Settings

T = TypeVar("T")


class Unreadable(Exception):  # noqa: N818 - no error, but an answer
    """Existing thing that could not be read; the message says what and why."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Size of a file system in bytes; `free` is what this user may still write."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Listener:
    """Listening TCP port. `pid` and `program` are None where the kernel hides them from this user."""

    port: int
    address: str
    pid: int | None = None
    program: str | None = None


@dataclass(frozen=True, slots=True)
class DaemonSeen:
    """Answer of the daemon; `problem` says why there is none, and the other fields are then None."""

    address: str
    version: str | None = None
    pid: int | None = None
    url: str | None = None
    runtime: str | None = None
    low_power: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ProfilesSeen:
    """Counts of the catalog: profiles that load, problems of files, errors and warnings by the rules."""

    profiles: int
    problems: int
    errors: int
    warnings: int


@dataclass(frozen=True, slots=True)
class Readings:
    """Readings read from one box. Paths have `{user}`-like names filled in; units are bytes and seconds."""

    settings: Settings = field(default_factory=Settings)
    settings_problem: str | None = None
    """Why the owner's settings are not valid; `settings` are then the defaults."""
    machine: str = ""
    kernel: str = ""
    page_size: int = 4096
    uid: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    """Values of `{user}`, `{uid}`, `{home}`, `{hf_home}`, `{cache_dir}` and `{graphroot}`."""
    files: Mapping[str, str | Unreadable | None] = field(default_factory=dict)
    commands: Mapping[tuple[str, ...], CommandResult | Unreadable | None] = field(default_factory=dict)
    disks: Mapping[str, Disk | Unreadable] = field(default_factory=dict)
    listeners: Sequence[Listener] | Unreadable = ()
    looks: Sequence[Gpu] = ()
    """A few readings of the GPU, a second apart; empty without NVML."""
    daemon: DaemonSeen | None = None
    profiles: ProfilesSeen | Unreadable | None = None
    account: MemoryAccount | Unreadable | None = None
    kernel_log: KernelFindings | Unreadable | None = None
    """Lines of the kernel's log of the last day; None where it is closed to this user."""
    disk_rate: DiskRate | Unreadable | None = None
    """Rate at which weights were read just now; None without any that are not in memory."""

    @property
    def rootless(self) -> bool:
        return self.uid != 0

    def path(self, pattern: str) -> str:
        """Fill the names of a declared path in. Raises Unreadable for a name without a known value."""
        try:
            return pattern.format_map(self.names)
        except KeyError:
            raise Unreadable(f"The place of {pattern} is not known") from None

    def file(self, pattern: str) -> str | None:
        """Text of one declared file; None if it does not exist."""
        return require_read(self.files[self.path(pattern)])

    def matching(self, pattern: str) -> dict[str, str]:
        """Text of every file that matches a declared pattern, by path."""
        wanted = self.path(pattern)
        found = {path: require_read(text) for path, text in self.files.items() if fnmatchcase(path, wanted)}
        return {path: text for path, text in sorted(found.items()) if text is not None}

    def ran(self, command: tuple[str, ...]) -> CommandResult | None:
        """Result of a declared command; None without such a program."""
        return require_read(self.commands[command])

    def disk(self, pattern: str) -> Disk:
        return require_read(self.disks.get(self.path(pattern), Unreadable(f"{pattern} is not known")))


def require_read(value: T | Unreadable) -> T:
    if isinstance(value, Unreadable):
        raise value
    return value


def file_system(path: str, mountinfo: str) -> str | None:
    """Type of the file system of `path`, from /proc/self/mountinfo (proc(5)); None if it lists none."""
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


COMMAND = ("podman", "info", "--format", "json")
DOCKER = ("docker", "info", "--format", "{{json .}}")

_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class PodmanInfo:
    """Readings that `podman info` prints; empty text for a missing one."""

    version: str
    graph_root: str
    graph_driver: str
    oci_runtime: str
    network: str


def parse_podman_info(done: CommandResult) -> PodmanInfo | None:
    try:
        found = json.loads(done.out) if not done.code else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return PodmanInfo(
        version=_text(found, "version", "Version"),
        graph_root=_text(found, "store", "graphRoot"),
        graph_driver=_text(found, "store", "graphDriverName"),
        oci_runtime=_text(found, "host", "ociRuntime", "name"),
        network=_text(found, "host", "networkBackend"),
    )


def _text(found: object, *keys: str) -> str:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def podman_info_of(readings: Readings) -> PodmanInfo:
    """Return podman's readings on this box. Raises Unreadable without them, which the check `podman` reports."""
    done = readings.ran(COMMAND)
    if done is None:
        raise Unreadable("podman is not installed")
    if (info := parse_podman_info(done)) is None:
        raise Unreadable("`podman info` fails, see the check podman")
    return info


def docker_info(done: CommandResult) -> dict[str, Any]:
    """Parse the result of DOCKER; a daemon that does not answer leaves `ServerVersion` out."""
    try:
        found = json.loads(done.out)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def version_numbers(version: str) -> tuple[int, ...]:
    """Parse a version: "4.9.3" -> (4, 9, 3). Keeps the first three numbers; empty without any."""
    return tuple(int(number) for number in _NUMBERS.findall(version)[:3])


class CheckResult(NamedTuple):
    """Finding without the name of its check."""

    status: Status
    evidence: str
    fix: str | None = None


def ok(evidence: str) -> CheckResult:
    return CheckResult(Status.OK, evidence)


def note(evidence: str, fix: str | None = None) -> CheckResult:
    """Report a fact worth knowing, which harms nothing."""
    return CheckResult(Status.NOTE, evidence, fix)


def unknown(evidence: str, fix: str | None = None) -> CheckResult:
    """Report that the check could not be decided."""
    return CheckResult(Status.UNKNOWN, evidence, fix)


def warn(evidence: str, fix: str) -> CheckResult:
    """Report a fault that will hurt sooner or later."""
    return CheckResult(Status.WARN, evidence, fix)


def fail(evidence: str, fix: str) -> CheckResult:
    """Report a fault that keeps engines from running."""
    return CheckResult(Status.FAIL, evidence, fix)


CheckFunction = Callable[[Readings], Iterator[CheckResult]]


class CheckReads(TypedDict, total=False):
    """Readings that a check declares to need; only these are read."""

    reads: tuple[str, ...]
    """Files, by glob pattern; patterns may hold names such as `{user}`."""
    runs: tuple[tuple[str, ...], ...]
    disks: tuple[str, ...]
    """Paths whose file system is measured."""
    listeners: bool
    gpu: bool
    profiles: bool
    account: bool
    kernel: bool
    disk_rate: bool
    """Reads weights for two seconds, so that such a check runs only when it is named."""


@dataclass(frozen=True, slots=True)
class Check:
    """Check with its subject in one sentence (`about`) and the readings that it reads."""

    name: str
    about: str
    look: CheckFunction
    needs: CheckReads


CHECKS: dict[str, Check] = {}
"""All checks by name, in the order of the report."""


def check(name: str, about: str, **needs: Unpack[CheckReads]) -> Callable[[CheckFunction], CheckFunction]:

    def register(look: CheckFunction) -> CheckFunction:
        CHECKS[name] = Check(name, about, look, needs)
        return look

    return register


C = TypeVar("C")


def choose_checks(register: Mapping[str, C], names: Iterable[str]) -> tuple[C, ...]:
    """Checks of these names, in the register's order; all without names. Raises AdmissionError: check_not_found."""
    wanted = list(names)
    refuse_unknown(wanted, register)
    return tuple(check for name, check in register.items() if not wanted or name in wanted)


def refuse_unknown(names: Iterable[str], known: Collection[str]) -> None:
    """Raise AdmissionError (check_not_found) for a name that is not known."""
    for name in names:
        if name not in known:
            close = nearest(name, known)
            hint = f"Did you mean {' or '.join(close)}?" if close else "`sparkdash doctor --list` lists them."
            raise AdmissionError(f"There is no check {name!r}.", code="check_not_found", hint=hint)


def results_of(said: Iterator[CheckResult]) -> Iterator[CheckResult]:
    """Yield a check's results; a fact that could not be read, or a fault of the check itself, becomes "unknown"."""
    try:
        yield from said
    except Unreadable as why:
        yield unknown(f"{why}.")
    except Exception as error:  # noqa: BLE001 - an unforeseen file must not hide the other findings
        yield unknown(f"The check itself failed ({type(error).__name__}: {error}).")


def checks_named(names: Iterable[str]) -> tuple[Check, ...]:
    """Checks of these names, in the order of the register; all without names. Raises AdmissionError."""
    wanted = tuple(names)
    return tuple(one for one in choose_checks(CHECKS, wanted) if wanted or not one.needs.get("disk_rate"))


def judge(readings: Readings, chosen: Sequence[Check]) -> tuple[Finding, ...]:
    return tuple(
        Finding(name=each.name, status=said.status, evidence=said.evidence, fix=said.fix)
        for each in chosen
        for said in results_of(each.look(readings))
    )

"""State of an engine's processes: where their threads wait, processor time, memory.

Owns: reading /proc for them. Must not know how it is shown (`redacted_text`).
Rule: the command line of a process with a thread that hangs in the kernel is not read, as the reader would hang too.
All functions block.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from sparkdash.host.processes.proc import PROC
from sparkdash.units import KIB

CGROUPS = Path("/sys/fs/cgroup")
PROCESSES = 128
"""Limit of processes."""
THREADS = 4096
"""Limit of threads of one process."""
BUSIEST = 5
"""Number of threads listed with their processor time."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_HANGS = "D"
_MEMORY = ("VmRSS", "RssAnon", "RssShmem", "VmSwap")


@dataclass(frozen=True, slots=True)
class ThreadSeen:
    """Thread of a process. `wchan` is the kernel function that it waits in; "0" if it runs, or if that is hidden."""

    tid: int
    name: str
    state: str
    wchan: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class ProcessSeen:
    """Process with its threads, in bytes and seconds; None where the kernel reports nothing."""

    pid: int
    name: str
    state: str
    parent: int
    threads: int
    cpu_s: float
    started_ticks: int
    groups: dict[tuple[str, str], int] = field(default_factory=dict)
    """Threads by state and wchan."""
    memory: dict[str, int] = field(default_factory=dict)
    is_frozen: bool | None = None
    """Whether the process's control group is frozen (`podman pause`)."""
    cpu_share: float | None = None
    """Processor time over the measured span; 1.0 is one core."""
    busiest: tuple[tuple[ThreadSeen, float], ...] = ()
    """Threads with the most processor time over that span, each with its share."""
    program: str | None = None
    argv: tuple[str, ...] | None = None

    @property
    def hangs(self) -> bool:
        """Whether a thread waits in the kernel, where no signal reaches it, except in a frozen control group."""
        return not self.is_frozen and any(state == _HANGS for state, _ in self.groups)


def measure_processes(
    pids: Iterable[int], span_s: float, proc: Path = PROC, cgroups: Path = CGROUPS
) -> tuple[ProcessSeen, ...]:
    """Read the living processes twice, `span_s` seconds apart, without command lines. Blocks: call it in a thread."""
    chosen = sorted(pids)[:PROCESSES]
    before = {pid: _threads(pid, proc) for pid in chosen}
    began = time.monotonic()
    time.sleep(span_s)  # in a thread of its own: the loop goes on, and a late result is dropped
    passed = time.monotonic() - began
    found = (_process(pid, before[pid], passed, proc, cgroups) for pid in chosen)
    return tuple(one for one in found if one is not None)


def with_argv(seen: ProcessSeen, proc: Path = PROC) -> ProcessSeen:
    """Add the command line, unless reading it could hang."""
    if seen.hangs:
        return seen
    with suppress(OSError):
        words = (proc / str(seen.pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        return replace(seen, argv=tuple(words[:-1] if words[-1] == "" else words))
    return seen


def _process(pid: int, before: dict[int, ThreadSeen], passed: float, proc: Path, cgroups: Path) -> ProcessSeen | None:
    folder = proc / str(pid)
    fields = _stat(folder / "stat")
    if fields is None:
        return None
    name, rest = fields
    threads = _threads(pid, proc)
    spent = {tid: max(one.cpu_s - (before[tid].cpu_s if tid in before else 0.0), 0.0) for tid, one in threads.items()}
    busiest = sorted(((threads[tid], used / passed) for tid, used in spent.items() if used), key=lambda pair: -pair[1])
    program = None
    with suppress(OSError):
        program = (folder / "exe").readlink().name
    return ProcessSeen(
        pid=pid,
        name=name,
        state=rest[0],
        parent=int(rest[1]),
        threads=int(rest[17]),
        cpu_s=(int(rest[11]) + int(rest[12])) * _TICK_S,
        started_ticks=int(rest[19]),
        groups=dict(Counter((one.state, one.wchan) for one in threads.values())),
        memory=_memory(folder),
        is_frozen=_is_frozen(folder, cgroups),
        cpu_share=sum(spent.values()) / passed if passed else None,
        busiest=tuple(busiest[:BUSIEST]),
        program=program,
    )


def _threads(pid: int, proc: Path) -> dict[int, ThreadSeen]:
    found = {}
    with suppress(OSError):
        for number, entry in enumerate(os.scandir(proc / str(pid) / "task")):
            if number >= THREADS:
                break
            if fields := _stat(Path(entry.path) / "stat"):
                name, rest = fields
                cpu_s = (int(rest[11]) + int(rest[12])) * _TICK_S
                found[int(entry.name)] = ThreadSeen(int(entry.name), name, rest[0], _wchan(entry.path), cpu_s)
    return found


def _stat(path: Path) -> tuple[str, list[str]] | None:
    """Parse the name and the fields after it (proc(5): the first is the state)."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    before, _, after = text.rpartition(")")
    rest = after.split()
    return (before.partition("(")[2], rest) if len(rest) > 19 else None


def _wchan(folder: str) -> str:
    try:
        return (Path(folder) / "wchan").read_text().strip() or "0"
    except OSError:
        return "?"


def _memory(folder: Path) -> dict[str, int]:
    try:
        lines = (folder / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    split = (line.partition(":") for line in lines)
    return {name: int(value.split()[0]) * KIB for name, _, value in split if name in _MEMORY and value.strip()}


def _is_frozen(folder: Path, cgroups: Path) -> bool | None:
    found = group_file(folder, "cgroup.events", "freezer", "freezer.state", cgroups)
    if found is None:
        return None
    return "frozen 1" in found or "FROZEN" in found.split()


def group_file(folder: Path, unified: str, controller: str, legacy: str, cgroups: Path = CGROUPS) -> str | None:
    """Read a file of a process's control group; None without such a file.

    `unified` is its name in version 2, `legacy` in version 1 under `controller`.
    """
    try:
        lines = (folder / "cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        inside = path.lstrip("/")
        tries = []
        if number == "0":
            tries = [cgroups / inside / unified, cgroups / "unified" / inside / unified]
        elif controller in controllers.split(","):
            tries = [cgroups / controller / inside / legacy]
        for file in tries:
            with suppress(OSError):
                return file.read_text(errors="replace")
    return None

"""What the kernel tells of single processes.

Owns: reading /proc/<pid>. Must not know why somebody asks. A process that is gone, or that we may not look at,
is None or left out: between listing and reading, processes end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sparkdash.units import KIB

PROC = Path("/proc")

_ENDED = frozenset("ZXx")
_STUCK = "D"
_HOST_MEMORY = ("RssAnon:", "RssShmem:")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The part of /proc/<pid>/stat that says who a process is (proc(5): fields 3, 4, 6, 20 and 22)."""

    pid: int
    parent: int
    session: int
    ended: bool
    """A zombie: it has ended, and only waits for its parent to notice. One whose first thread alone has ended runs on."""
    stuck: bool
    """It waits in the kernel and no signal reaches it: for a moment, or for ever."""
    ticks: int
    """When it started, in clock ticks since boot."""


def stat(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """One process; None when it is gone."""
    try:
        told = (proc / f"{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = (
        told.rpartition(b")")[2].decode().split()
    )  # the name before it may hold spaces, brackets, and anything else
    return ProcessStat(
        pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        ended=fields[0] in _ENDED and int(fields[17]) <= 1,
        stuck=fields[0] == _STUCK,
        ticks=int(fields[19]),
    )


def birth(pid: int, proc: Path = PROC) -> str | None:
    """What tells a process from a later one with the same pid: the boot and the tick it started in; None when it is gone."""
    found = stat(pid, proc)
    return None if found is None else f"{boot(proc)}:{found.ticks}"


def boot(proc: Path = PROC) -> str:
    """This boot's id; empty when the kernel does not tell."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def family(leader: int, proc: Path = PROC) -> set[int]:
    """The running processes of the session that `leader` opened, and all their descendants."""
    everyone = [found for entry in proc.iterdir() if entry.name.isdigit() and (found := stat(int(entry.name), proc))]
    members = {each.pid for each in everyone if each.session == leader or each.pid == leader}
    while more := {each.pid for each in everyone if each.parent in members} - members:
        members |= more
    return {each.pid for each in everyone if each.pid in members and not each.ended}


def host_bytes(pid: int, proc: Path = PROC) -> int | None:
    """Memory of the host side that only this process keeps: anonymous and shared, without file pages, which are page cache.

    Memory shared between processes counts in each of them. None when the process is gone.
    """
    return _summed(pid, _HOST_MEMORY, proc)


def anonymous_of_others(pids: set[int], proc: Path = PROC) -> int:
    """Anonymous memory of all processes but these. Shared memory is left out: it would count once for each that maps it."""
    others = {int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()} - pids
    return sum(_summed(pid, _HOST_MEMORY[:1], proc) or 0 for pid in others)


def taken_in(pids: Iterable[int], proc: Path = PROC) -> dict[int, int]:
    """By pid what a process has read, from storage, cache or elsewhere, and what it keeps in memory, file pages included.

    What is read counts only where we may ask for it: of one's own processes. Those that are gone are left out.
    """
    found = {}
    for pid in pids:
        resident = _summed(pid, ("VmRSS:",), proc)
        if resident is not None:
            found[pid] = resident + (_read_chars(pid, proc) or 0)
    return found


def _read_chars(pid: int, proc: Path) -> int | None:
    try:
        lines = (proc / str(pid) / "io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("rchar:")), None)


def _summed(pid: int, names: tuple[str, ...], proc: Path) -> int | None:
    try:
        text = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return None
    lines = [line.split() for line in text.splitlines() if line.startswith(names)]
    return sum(int(words[1]) for words in lines) * KIB if lines else None

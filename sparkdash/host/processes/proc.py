"""Facts about single processes, from /proc.

A process that has ended, or may not be read, is None or left out, as processes end between listing and reading.
Standard library alone, Python 3.10: `nodes.programs` ships this module to other boxes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")

_ENDED = frozenset("ZXx")
_STUCK = "D"
_HOST_MEMORY = ("RssAnon:", "RssShmem:")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """Identity of a process in /proc/<pid>/stat (proc(5): fields 2, 3, 4, 6, 14 to 17, 20 and 22)."""

    pid: int
    name: str
    """Name that the process chose itself: not harmless to a terminal."""
    state: str
    parent: int
    session: int
    ended: bool
    """Whether the process is a zombie; one whose first thread alone has ended still runs."""
    stuck: bool
    """Whether the process waits in the kernel, where no signal reaches it, for a moment or for ever."""
    ticks: int
    """Start in clock ticks since boot."""
    worked: int
    """CPU time of the process and its ended children, in clock ticks."""


def stat(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """Read the stat of one process; None if it has ended."""
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - read for every process of a box
            told = file.read()
    except OSError:
        return None
    name, _, rest = told.rpartition(b")")  # a name may hold spaces, brackets, and anything else
    fields = rest.decode().split()
    return ProcessStat(
        pid,
        name=name.partition(b"(")[2].decode("utf-8", "replace"),
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        ended=fields[0] in _ENDED and int(fields[17]) <= 1,
        stuck=fields[0] == _STUCK,
        ticks=int(fields[19]),
        worked=sum(map(int, fields[11:15])),
    )


def read_stats(pids: Iterable[int], proc: Path = PROC) -> dict[int, ProcessStat]:
    return {pid: found for pid in pids if (found := stat(pid, proc))}


def birth(pid: int, proc: Path = PROC) -> str | None:
    """Boot and start tick of a process, which differ for a later one with the same pid; None if it has ended."""
    found = stat(pid, proc)
    return None if found is None else f"{boot(proc)}:{found.ticks}"


def boot(proc: Path = PROC) -> str:
    """Id of this boot; empty if the kernel has none."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def list_pids(proc: Path = PROC) -> list[int]:
    """Pids of all processes of the box, zombies included."""
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]


def family(leader: int, proc: Path = PROC) -> set[int]:
    """Running processes of the session of `leader`, and all their descendants."""
    everyone = read_stats(list_pids(proc), proc).values()
    members = {each.pid for each in everyone if leader in (each.session, each.pid)}
    while more := {each.pid for each in everyone if each.parent in members} - members:
        members |= more
    return {each.pid for each in everyone if each.pid in members and not each.ended}


def host_bytes(pid: int, proc: Path = PROC) -> int | None:
    """Host memory that this process keeps: anonymous and shared, without file pages, which are page cache.

    Memory shared between processes counts in each of them. None if the process has ended.
    """
    return _summed(pid, _HOST_MEMORY, proc)


def anonymous_of_others(pids: set[int], proc: Path = PROC) -> int:
    """Sum the anonymous memory of all other processes; shared memory would count once for each of them."""
    others = set(list_pids(proc)) - pids
    return sum(_summed(pid, _HOST_MEMORY[:1], proc) or 0 for pid in others)


def taken_in(pids: Iterable[int], proc: Path = PROC) -> dict[int, int]:
    """Bytes that each process has read and written anywhere, plus its resident memory with file pages, by pid.

    Writes are in it for downloads, whose reads from sockets the kernel does not count. Both count for this user's
    processes only, as others' may not be asked. Ended processes are left out.
    """
    found = {}
    for pid in pids:
        resident = _summed(pid, ("VmRSS:",), proc)
        if resident is not None:
            found[pid] = resident + sum(_io(pid, ("rchar:", "wchar:"), proc))
    return found


def reads(pids: Iterable[int], proc: Path = PROC) -> dict[int, tuple[int, int]]:
    """Bytes that each process read with calls, and that came from a disk for it, by pid: this user's processes only.

    What comes from a disk is also what mapped files and direct reads brought.
    """
    counts = ((pid, _io(pid, ("rchar:", "read_bytes:"), proc)) for pid in pids)
    return {pid: (found[0], found[1]) for pid, found in counts if len(found) > 1}


def _io(pid: int, names: tuple[str, ...], proc: Path) -> list[int]:
    try:
        lines = (proc / str(pid) / "io").read_text().splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) for line in lines if line.startswith(names)]


def _summed(pid: int, names: tuple[str, ...], proc: Path) -> int | None:
    try:
        text = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return None
    lines = [line.split() for line in text.splitlines() if line.startswith(names)]
    return sum(int(words[1]) for words in lines) * 1024 if lines else None

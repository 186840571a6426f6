"""Activity of an engine's processes: CPU time, stopped processes, compilers, bytes read from storage.

Rule: only files that the kernel answers without the process's memory lock. A process that hangs in the driver holds
that lock, and a reader of its `cmdline` would hang too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sparkdash.host.processes.proc import PROC
from sparkdash.units import one_line

# Triton runs ptxas (since 3.5 also ptxas-blackwell) and a C compiler for its launchers. CUDA's nvcc runs cicc,
# cudafe++, ptxas, fatbinary and nvlink; FlashInfer and DeepGEMM run ninja with nvcc; torch's inductor and TVM run a C++
# compiler; CUDA 13's tile compiler is tileiras. The kernel keeps 15 characters of a name.
_COMPILERS = re.compile(
    r"(?:ptxas|nvcc|cicc|cudafe\+\+|fatbinary|nvlink|nvdisasm|tileiras|ninja|make|cmake|cc1|cc1plus|collect2|as|lld"
    r"|ccache|(?:x86_64|aarch64)-linux-g.*|(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|ld)(?:\.\w+)?)(?:-[\w.]*)?"
)
_STOPPED = frozenset("Tt")
_IN_KERNEL = "D"


@dataclass(frozen=True, slots=True)
class Activity:
    """Figures of some processes at one moment, without processes that ended meanwhile."""

    cpu_s: float
    """CPU time of the processes and their ended children; falls when a process without a parent among them ends."""
    processes: int
    stopped: tuple[str, ...] = ()
    """Names of processes stopped by a signal or a debugger."""
    in_kernel: int = 0
    """Number of processes that wait in the kernel, where no signal reaches them."""
    compilers: tuple[str, ...] = ()
    """Distinct names of running compilers."""
    read_bytes: int | None = None
    """Bytes read from storage; None without permission for any process."""


@dataclass(frozen=True, slots=True)
class ActivityStat:
    """Fields of /proc/<pid>/stat about work (proc(5): fields 2, 3, and 14 to 17)."""

    name: str
    """Name made harmless to a terminal, as a process chooses it itself."""
    state: str
    ticks: int
    """CPU time of the process and its ended children, in clock ticks."""


def parse_stat(told: bytes) -> ActivityStat | None:
    """Parse /proc/<pid>/stat; None for any other text."""
    before, _, after = told.rpartition(b")")
    fields = after.split()
    if len(fields) < 15:
        return None
    try:
        ticks = sum(int(field) for field in fields[11:15])
        state = fields[0].decode("ascii")
    except ValueError:
        return None
    name = before.partition(b"(")[2].decode("utf-8", "replace")
    return ActivityStat(one_line(name), state, ticks)


def parse_read_bytes(told: bytes) -> int | None:
    found = re.search(rb"^read_bytes: (\d+)$", told, re.MULTILINE)
    return int(found[1]) if found else None


def is_compiler(name: str) -> bool:
    return _COMPILERS.fullmatch(name) is not None


def read_activity(pids: Iterable[int], proc: Path = PROC) -> Activity | None:
    """Read the activity of one container's processes; None if none of them exists.

    Blocks for up to a millisecond for each process: call it in a thread.
    """
    found = {pid: stat for pid in pids if (stat := parse_stat(_told(f"{proc}/{pid}/stat")))}
    if not found:
        return None
    return _sum_up(list(found.values()), _sum_read_bytes(found, proc))


def _sum_up(stats: list[ActivityStat], read_bytes: int | None) -> Activity:
    return Activity(
        cpu_s=sum(stat.ticks for stat in stats) / os.sysconf("SC_CLK_TCK"),
        processes=len(stats),
        stopped=tuple(sorted(stat.name for stat in stats if stat.state in _STOPPED)),
        in_kernel=sum(stat.state == _IN_KERNEL for stat in stats),
        compilers=tuple(sorted({stat.name for stat in stats if is_compiler(stat.name)})),
        read_bytes=read_bytes,
    )


def _sum_read_bytes(pids: Iterable[int], proc: Path) -> int | None:
    """Sum the bytes read from storage; None without permission for any process."""
    reads = [bytes_ for pid in pids if (bytes_ := parse_read_bytes(_told(f"{proc}/{pid}/io"))) is not None]
    return sum(reads) if reads else None


def _told(file: str | Path) -> bytes:
    try:
        with open(file, "rb", buffering=0) as opened:  # noqa: PTH123 - by far the fastest for hundreds of small files
            return opened.read()
    except OSError:
        return b""

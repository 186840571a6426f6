"""Activity of an engine's processes: CPU time, stopped processes, compilers, bytes read from storage.

Rule: only files that the kernel answers without the process's memory lock. A process that hangs in the driver holds
that lock, and a reader of its `cmdline` would hang too.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sparkdash.host.processes import proc
from sparkdash.units import one_line

# Triton runs ptxas (since 3.5 also ptxas-blackwell) and a C compiler for its launchers. CUDA's nvcc runs cicc,
# cudafe++, ptxas, fatbinary and nvlink; FlashInfer and DeepGEMM run ninja with nvcc; torch's inductor and TVM run a C++
# compiler; CUDA 13's tile compiler is tileiras. The kernel keeps 15 characters of a name.
_COMPILERS = re.compile(
    r"(?:ptxas|nvcc|cicc|cudafe\+\+|fatbinary|nvlink|nvdisasm|tileiras|ninja|make|cmake|cc1|cc1plus|collect2|as|lld"
    r"|ccache|(?:x86_64|aarch64)-linux-g.*|(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|ld)(?:\.\w+)?)(?:-[\w.]*)?"
)
_STOPPED = frozenset("Tt")


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


def is_compiler(name: str) -> bool:
    return _COMPILERS.fullmatch(name) is not None


def read_activity(pids: Iterable[int], root: Path = proc.PROC) -> Activity | None:
    """Read the activity of one container's processes; None if none of them exists.

    Blocks for up to a millisecond for each process: call it in a thread.
    """
    found = proc.read_stats(pids, root)
    if not found:
        return None
    names = {pid: one_line(stat.name) for pid, stat in found.items()}
    reads = [from_disk for _, from_disk in proc.reads(found, root).values()]
    return Activity(
        cpu_s=sum(stat.worked for stat in found.values()) / os.sysconf("SC_CLK_TCK"),
        processes=len(found),
        stopped=tuple(sorted(names[pid] for pid, stat in found.items() if stat.state in _STOPPED)),
        in_kernel=sum(stat.stuck for stat in found.values()),
        compilers=tuple(sorted(set(filter(is_compiler, names.values())))),
        read_bytes=sum(reads) if reads else None,
    )

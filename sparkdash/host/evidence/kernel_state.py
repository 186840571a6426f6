"""State of the kernel during a hang: its log, fragmentation, memory, pressure.

Owns: the choice of files and lines. Each file is read separately, so that a missing one does not hide the others.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection
from pathlib import Path

from sparkdash.host.evidence.processes import CGROUPS, group_file
from sparkdash.host.kernel_log.lines import KernelFindings
from sparkdash.host.kernel_log.reader import NOT_READABLE, KernelLog
from sparkdash.host.processes.proc import PROC
from sparkdash.host.thread import in_thread
from sparkdash.printable import one_line

FILES_S = 3.0
"""Time limit of reading all files; they take milliseconds."""
FILE_LIMIT = 64 * 1024
_FILES = ("buddyinfo", "meminfo", "pressure/memory", "pressure/cpu", "pressure/io", "loadavg")
_VMSTAT = re.compile(
    r"^(?:compact_|pgscan|pgsteal|allocstall|pgmajfault|oom_kill|thp_fault_fallback|workingset_refault)", re.MULTILINE
)
_GROUP = (
    ("memory.stat", "memory.stat"),
    ("memory.current", "memory.usage_in_bytes"),
    ("memory.events", "memory.oom_control"),
    ("memory.pressure", "memory.pressure"),
)
"""Files of the engine's control group in version 2, each with its counterpart in version 1."""


async def kernel_text(log: KernelLog, since: float, pids: Collection[int]) -> str:
    """Report the kernel's log since that moment, and its present figures."""
    return f"{lines_text(await log.since(since), since)}\n{await _files(pids)}"


def lines_text(found: KernelFindings | None, since: float) -> str:
    """Format the relevant lines, oldest first."""
    head = f"== kernel log since {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(since))}"
    if found is None:
        return f"{head}\n{NOT_READABLE}\n"
    counts = ", ".join(f"{kind.value} {count}" for kind, count in found.counts.items())
    lines = [
        f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(line.at))} {one_line(line.text)}" for line in found.lines
    ]
    return "\n".join([head, counts or "No line that matters.", *lines]) + "\n"


async def _files(pids: Collection[int]) -> str:
    try:
        async with asyncio.timeout(FILES_S):
            return await in_thread(lambda: _read_all(pids))
    except TimeoutError:
        return f"The kernel's files were not read within {FILES_S:g} s.\n"


def _read_all(pids: Collection[int], proc: Path = PROC, cgroups: Path = CGROUPS) -> str:
    found = [f"== /proc/{name}\n{_text(proc / name)}" for name in _FILES]
    counters = [line for line in _text(proc / "vmstat").splitlines() if _VMSTAT.match(line)]
    found.append("== /proc/vmstat, what tells of reclaim and compaction\n" + "\n".join(counters))
    first = min(pids, default=None)
    for unified, legacy in _GROUP if first is not None else ():
        text = group_file(proc / str(first), unified, "memory", legacy, cgroups)
        if text is not None:
            found.append(f"== control group: {unified}\n{text[:FILE_LIMIT]}")
    return "\n".join(f"{one.rstrip()}\n" for one in found)


def _text(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(FILE_LIMIT)
    except OSError as error:
        return f"not readable: {error.strerror or error}"

"""Lines of the kernel's log that explain why engines fail, and their meaning.

Sources: the kernel's own message texts (mm/oom_kill.c, kernel/hung_task.c, mm/page_alloc.c), NVIDIA's list of Xid
errors, and reports from GB10 owners. Most hangs of a GB10 leave no line at all. Pure.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from sparkdash.redaction import masked
from sparkdash.units import KIB, size

_PROGRAM = "Start the engine again; if it comes back, try another build of the engine."
_RESET = "Reboot the box."

_KNOWN: dict[int, tuple[str, str]] = {
    8: ("a channel stood still", "With llama.cpp set GGML_CUDA_DISABLE_GRAPHS=1; otherwise start the engine again."),
    13: ("the engine's GPU program made a fault", _PROGRAM),
    31: ("the engine's GPU program read memory that is not there", _PROGRAM),
    43: ("the engine's GPU channel was stopped", _PROGRAM),
    45: ("clean-up after a program was ended", "Nothing: this follows each kill."),
    48: ("a memory error that could not be corrected", f"{_RESET} If it comes back, ask NVIDIA's support."),
    62: ("the GPU's own controller halted", _RESET),
    63: ("a faulty memory row is set aside", "Nothing now; a reboot completes it."),
    64: ("a faulty memory row could not be set aside", "Ask NVIDIA's support."),
    69: ("the engine's GPU program made a fault", _PROGRAM),
    74: ("a fault of an NVLink", _RESET),
    79: ("the GPU is off the bus", "Switch the box off at the plug for a minute, then on."),
    94: ("a memory error that one program alone met", _PROGRAM),
    95: ("a memory error that every program met", _RESET),
    109: ("a change between GPU programs did not end", _PROGRAM),
    119: ("the GPU's system processor (GSP) did not answer in time", _RESET),
    120: ("the GPU's system processor (GSP) made a fault", _RESET),
    154: ("the driver changed its recovery action", "The line says which: reset or reboot."),
    169: ("the driver's modules do not suit this GPU", "A GB10 needs the open kernel modules (nvidia-open)."),
}
_HARMLESS = frozenset({45, 63})


_UNKNOWN = "not in our list", "NVIDIA's list of Xid errors explains it."

LINE_LIMIT = 2048
"""Longest message that the kernel prints (PRINTK_MESSAGE_MAX, Linux 6.6); names and figures come from no more."""
TEXT_LIMIT = 400
"""Characters of a line that are kept and shown."""
KEPT = 500
"""Newest lines that findings keep; all are counted. A freeze writes some 200 of them."""


class KernelKind(StrEnum):
    """Kind of event in a line of the kernel's log."""

    DRIVER_MEMORY = "driver_memory"
    """The NVIDIA driver was refused memory."""
    DRIVER_FAULT = "driver_fault"
    XID = "xid"
    OOM_KILL = "oom_kill"
    HUNG_TASK = "hung_task"
    """Task or processor that stands still in the kernel."""
    PAGE_ALLOCATION = "page_allocation"
    HARDWARE = "hardware"
    """Machine check, memory error, overheating."""
    KERNEL_CRASH = "kernel_crash"


@dataclass(frozen=True, slots=True)
class KernelLine:
    """Relevant line of the kernel's log; None for missing facts."""

    at: float
    """Unix seconds; the kernel's clock may be some seconds off after days."""
    kind: KernelKind
    text: str
    xid: int | None = None
    pid: int | None = None
    process: str | None = None
    bytes: int | None = None
    """Resident memory of a killed process."""
    order: int | None = None
    """Power of two of the contiguous pages that were not available."""
    cgroup: str | None = None
    """Control group of a killed process."""

    @property
    def is_harmless(self) -> bool:
        """Whether the line belongs to normal work, such as the clean-up after a kill."""
        return self.xid in _HARMLESS


@dataclass(frozen=True, slots=True)
class KernelFindings:
    """Relevant lines since a moment, oldest first."""

    lines: tuple[KernelLine, ...] = ()
    counts: Mapping[KernelKind, int] = field(default_factory=lambda: MappingProxyType({}))
    """Counts of all lines, also beyond KEPT."""


def findings(lines: Iterable[KernelLine]) -> KernelFindings:
    """Count the lines and join the two that the kernel writes of one OOM kill."""
    kept: list[KernelLine] = []
    for line in lines:
        if line.kind is KernelKind.OOM_KILL and (before := _same_kill(kept, line)) is not None:
            kept[before] = _joined(kept[before], line)
        else:
            kept.append(line)
    return KernelFindings(tuple(kept[-KEPT:]), MappingProxyType(Counter(line.kind for line in kept)))


def _same_kill(kept: list[KernelLine], line: KernelLine) -> int | None:
    for index in range(len(kept) - 1, max(len(kept) - 20, 0) - 1, -1):
        other = kept[index]
        if other.kind is KernelKind.OOM_KILL and other.pid == line.pid:
            return index
    return None


def _joined(first: KernelLine, second: KernelLine) -> KernelLine:
    told, other = (second, first) if second.bytes is not None else (first, second)
    return replace(told, at=first.at, cgroup=first.cgroup or second.cgroup, process=told.process or other.process)


_KILLED = re.compile(r"Killed process (\d{1,10}),?(?: UID \d+,)? \((.*)\)(.*)")
_RSS = re.compile(r"\b(?:anon|file|shmem)-rss:(\d{1,15})kB")
_OOM = re.compile(r"^oom-kill:.*?\btask_memcg=([^,]*),task=(.*),pid=(\d{1,10}),uid=")
_XID = re.compile(r"NVRM: Xid \([^)]*\): (\d{1,5})\b(.*)")
_XID_PID = re.compile(r"\bpid='?(\d{1,10})")
_XID_NAME = re.compile(r"\bname='?([^,']+)")
_HUNG = re.compile(r"INFO: task (.*):(\d{1,10}) blocked (?:in I/O wait )?for more than \d+ seconds")
_LOCKUP = re.compile(
    r"watchdog: BUG: soft lockup .*\[(.*):(\d{1,10})\]|hard LOCKUP"
    r"|rcu: INFO: \S+ (?:self-)?detected (?:expedited )?stall"
)
_ORDER = re.compile(r"^(?:warn_alloc: )?(.*): page allocation (?:failure|stalls).*?\border:\s?(\d{1,2})\b")
_DRIVER_MEMORY = re.compile(r"NVRM:.*NV_ERR_NO_MEMORY|sysmemConstruct_IMPL.*Cannot allocate sysmem")
_DRIVER_FAULT = re.compile(r"NVRM:.*(?:nv(?:Assert|Check)Ok?FailedNoLog|nvAssertFailedNoLog|rm_init_adapter failed)")
_HARDWARE = re.compile(
    r"\[Hardware Error\]|^mce: |SError Interrupt|^EDAC .*\b(?:CE|UE)\b|Memory failure: 0x"
    r"|temperature above threshold|critical temperature reached|clock throttled"
)
_CRASH = re.compile(r"^(?:Unable to handle kernel |Internal error: |Kernel panic|BUG: (?!workqueue lockup)|Oops)")


def read_line(text: str, at: float) -> KernelLine | None:
    """Parse a line without its prefix; None for an irrelevant one."""
    text = text[:LINE_LIMIT]
    kept = masked(text)[:TEXT_LIMIT]
    for kind, pattern, with_facts in _EVENTS:
        if found := pattern.search(text):
            line = KernelLine(at, kind, kept)
            return with_facts(line, found) if with_facts is not None else line
    return None


def _xid(line: KernelLine, found: re.Match[str]) -> KernelLine:
    pid, name = _XID_PID.search(found[2]), _XID_NAME.search(found[2])
    return replace(line, xid=int(found[1]), pid=int(pid[1]) if pid else None, process=name[1] if name else None)


def _killed(line: KernelLine, found: re.Match[str]) -> KernelLine:
    sizes = [int(size) for size in _RSS.findall(found[3])]
    return replace(line, pid=int(found[1]), process=found[2], bytes=sum(sizes) * KIB if sizes else None)


def _task(line: KernelLine, found: re.Match[str]) -> KernelLine:
    return replace(line, pid=int(found[2]) if found[2] else None, process=found[1] or None)


_EVENTS: tuple[tuple[KernelKind, re.Pattern[str], Callable[[KernelLine, re.Match[str]], KernelLine] | None], ...] = (
    (KernelKind.XID, _XID, _xid),
    (KernelKind.OOM_KILL, _KILLED, _killed),
    (KernelKind.OOM_KILL, _OOM, lambda line, hit: replace(line, pid=int(hit[3]), process=hit[2], cgroup=hit[1])),
    (KernelKind.HUNG_TASK, _HUNG, _task),
    (KernelKind.HUNG_TASK, _LOCKUP, _task),
    (KernelKind.PAGE_ALLOCATION, _ORDER, lambda line, hit: replace(line, process=hit[1], order=int(hit[2]))),
    (KernelKind.DRIVER_MEMORY, _DRIVER_MEMORY, None),
    (KernelKind.DRIVER_FAULT, _DRIVER_FAULT, None),
    (KernelKind.HARDWARE, _HARDWARE, None),
    (KernelKind.KERNEL_CRASH, _CRASH, None),
)
"""Kind, pattern and added facts; the first pattern that matches counts."""

_MEANING = {
    KernelKind.DRIVER_MEMORY: "the NVIDIA driver was refused memory (NV_ERR_NO_MEMORY)",
    KernelKind.DRIVER_FAULT: "the NVIDIA driver reported a fault",
    KernelKind.HUNG_TASK: "the kernel reported a task that stands still",
    KernelKind.HARDWARE: "the hardware reported an error",
    KernelKind.KERNEL_CRASH: "the kernel itself crashed",
}
_ADVICE = {
    KernelKind.DRIVER_MEMORY: "Memory is too fragmented or too short: stop engines and drop the page cache, or reboot.",
    KernelKind.DRIVER_FAULT: "Look at the lines around it with `journalctl -k`.",
    KernelKind.OOM_KILL: "Give the engine a shorter context or a smaller KV cache, or stop what else holds memory.",
    KernelKind.HUNG_TASK: "If it stays so, only a reboot ends it.",
    KernelKind.PAGE_ALLOCATION: "Memory is fragmented: drop the page cache, or reboot.",
    KernelKind.HARDWARE: "Check the cooling; repeated memory errors are a case for NVIDIA's support.",
    KernelKind.KERNEL_CRASH: "Reboot, and install another kernel if it comes back.",
}


def meaning(line: KernelLine) -> str:
    if line.xid is not None:
        return f"the NVIDIA driver reported Xid {line.xid} ({_KNOWN.get(line.xid, _UNKNOWN)[0]})"
    if line.kind is KernelKind.OOM_KILL:
        held = f", which held {size(line.bytes)}" if line.bytes is not None else ""
        return f"the kernel killed {line.process} (pid {line.pid}{held}) for want of memory"
    if line.kind is KernelKind.PAGE_ALLOCATION:
        return f"the kernel found no {2 ** (line.order or 0)} free pages together for {line.process}"
    if line.kind is KernelKind.HUNG_TASK and line.process is not None:
        return f"the task {line.process} (pid {line.pid}) stands still in the kernel"
    return _MEANING[line.kind]


def advice(line: KernelLine) -> str:
    return _KNOWN.get(line.xid, _UNKNOWN)[1] if line.xid is not None else _ADVICE[line.kind]


def is_of(line: KernelLine, pids: Collection[int], container: str | None = None) -> bool:
    """Whether the line names one of these host pids, or this container's control group."""
    in_group = container is not None and line.cgroup is not None and container in line.cgroup
    return in_group or (line.pid is not None and line.pid in pids)


def explains(
    found: KernelFindings, pids: Collection[int], container: str | None = None, near: float | None = None
) -> KernelLine | None:
    """Choose the line that explains the end of an engine with these host pids, or in this container.

    Its own OOM kill comes first, then an Xid of its own processes, then an Xid that stops every user of the GPU. From
    the moment `near` on kills and Xids of unknown processes count too. Last comes memory that the driver was refused.
    """
    lines = [line for line in reversed(found.lines) if not line.is_harmless]
    kills = [line for line in lines if line.kind is KernelKind.OOM_KILL]
    xids = [line for line in lines if line.xid is not None]
    ranked = (
        *_own(kills, pids, container),
        *_own(xids, pids, container),
        *(line for line in xids if line.xid in _FOR_ALL),
        *_since((*kills, *xids), near),
        *(line for line in lines if line.kind is KernelKind.DRIVER_MEMORY),
    )
    return next(iter(ranked), None)


def _own(lines: Iterable[KernelLine], pids: Collection[int], container: str | None) -> list[KernelLine]:
    return [line for line in lines if is_of(line, pids, container)]


def _since(lines: Iterable[KernelLine], near: float | None) -> list[KernelLine]:
    return [] if near is None else [line for line in lines if line.at >= near]


def holds_up(found: KernelFindings) -> KernelLine | None:
    """Choose the newest line that explains why an engine stands still.

    A fault of the GPU comes first, then a task that hangs in the kernel, then memory that was refused.
    """
    lines = [line for line in reversed(found.lines) if not line.is_harmless]
    return next((line for kinds in _HOLD_UP for line in lines if line.kind in kinds), None)


_HOLD_UP = (
    {KernelKind.XID},
    {KernelKind.HUNG_TASK, KernelKind.KERNEL_CRASH},
    {KernelKind.DRIVER_MEMORY},
    {KernelKind.PAGE_ALLOCATION, KernelKind.OOM_KILL},
)
_FOR_ALL = frozenset({48, 62, 79, 95, 119, 120, 154})
"""Xids after which no program can use the GPU."""

"""Checks of memory: limits, holders, the helper, and large free blocks. Pure."""

from collections.abc import Iterator, Mapping

from sparkdash.doctor.check import CheckResult, Readings, check, note, ok, require_read, unknown, warn
from sparkdash.domain.memory import BLOCK, Contiguity, GpuMemory, Holder
from sparkdash.host.kernel_figures import parse_meminfo
from sparkdash.host.memory import contiguity as host
from sparkdash.host.memory.helper import START, TEXT, UNIT, ours
from sparkdash.settings import Settings
from sparkdash.supervisor.decide import contiguity
from sparkdash.units import GIB, KIB, gib

MEMINFO = "/proc/meminfo"
SWAPS = "/proc/swaps"
SWAPPINESS = "/proc/sys/vm/swappiness"
OVERCOMMIT = "/proc/sys/vm/overcommit_memory"
MIN_FREE = "/proc/sys/vm/min_free_kbytes"
NAMES = "/proc/[0-9]*/comm"

SWAPPED = GIB
RESERVED = 2 * GIB
"""Largest vm.min_free_kbytes that costs engines little memory; a raised one was seen to cost 6.2 GiB."""


@check("memory", "Memory that is available now, against the reserve that admission keeps.", reads=(MEMINFO,))
def memory(readings: Readings) -> Iterator[CheckResult]:
    found = parse_meminfo(readings.file(MEMINFO) or "")
    if huge := found.get("HugePages_Total", 0) * found.get("Hugepagesize", 0):
        yield warn(
            f"{gib(huge)} are kept as huge pages, which no engine uses ({MEMINFO}).", "sudo sysctl vm.nr_hugepages=0"
        )
    yield against_reserve(found, readings.settings, "`sparkdash status` shows what holds it.")


def against_reserve(found: Mapping[str, int], settings: Settings, look: str) -> CheckResult:
    """Judge a box's memory by its /proc/meminfo; `look` shows what holds it."""
    total, available, reserve = found.get("MemTotal"), found.get("MemAvailable"), settings.reserve_gib * GIB
    if total is None or available is None:
        return unknown(f"{MEMINFO} lacks MemTotal or MemAvailable.")
    about = f"{gib(available)} available of {gib(total)}, reserve {gib(reserve)} ({MEMINFO})"
    return warn(f"{about}: no further engine is admitted.", look) if available < reserve else ok(f"{about}.")


@check("handover", "No memory is kept for kexec handover (KHO), where it cannot be pinned.", reads=(MEMINFO,))
def handover(readings: Readings) -> Iterator[CheckResult]:
    yield kept_for_handover(readings.file(MEMINFO) or "")


def kept_for_handover(meminfo: str) -> CheckResult:
    """Detect memory kept for kexec handover: CmaFree is then above CmaTotal.

    Its pages are free like CMA's, but in no area of CMA. On GB10s with kernel 7.0 some 9.3 GiB were kept so. RDMA
    memory could not be registered once engines held the rest, and `kho=off` cured it (NVIDIA/NV-Kernels#591,
    MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259).
    """
    found = parse_meminfo(meminfo)
    kept = found.get("CmaFree", 0) - found.get("CmaTotal", 0)
    if kept > 0:
        return warn(
            f"{gib(kept)} are kept for kexec handover (CmaFree above CmaTotal in {MEMINFO}): they count as available, "
            "but cannot be pinned; between two boxes NCCL then fails to start.",
            "kernel command line: kho=off",
        )
    return ok(f"None (CmaFree is not above CmaTotal in {MEMINFO}).")


@check("swap", "Swap: none or zram is best; a swapped-out engine stalls the box.", reads=(SWAPS, SWAPPINESS))
def swap(readings: Readings) -> Iterator[CheckResult]:
    text = readings.file(SWAPS)
    if text is None:
        yield unknown(f"{SWAPS} is not there.")
        return
    areas = _swap_areas(text)
    disks = [used for name, _, used in areas if "/zram" not in name]
    about = ", ".join(f"{name} {gib(total)}, {gib(used)} used" for name, total, used in areas)
    lean = f"swappiness {(readings.file(SWAPPINESS) or '-').strip()}"
    if sum(disks) > SWAPPED:
        yield warn(
            f"Memory was swapped to disk: {about}, {lean} ({SWAPS}).", "sudo swapoff -a, once enough is available"
        )
    elif disks:
        yield note(
            f"Swap on disk: {about}, {lean} ({SWAPS}). It hides an over-commit until the box stalls.",
            "sudo swapoff -a, and comment it out in /etc/fstab",
        )
    else:
        yield ok(f"{about or 'None'} ({SWAPS}).")


def _swap_areas(text: str) -> list[tuple[str, int, int]]:
    """Name, bytes and used bytes by /proc/swaps. Columns by proc(5): name, type, KiB, used KiB, priority."""
    rows = [line.split() for line in text.splitlines()[1:] if line.strip()]
    return [(row[0], int(row[2]) * KIB, int(row[3]) * KIB) for row in rows]


@check(
    "oom-guard", "Something ends a process before memory is gone, also while sparkdash does not run.", reads=(NAMES,)
)
def oom_guard(readings: Readings) -> Iterator[CheckResult]:
    running = {name.strip() for name in readings.matching(NAMES).values()}
    if "earlyoom" in running:
        yield ok("earlyoom runs (/proc/*/comm).")
    elif "systemd-oomd" in running:
        yield note(
            "Only systemd-oomd runs (/proc/*/comm): it judges by cgroups, which do not see the GPU's memory.",
            "sudo apt install earlyoom",
        )
    elif readings.settings.guard == "act":
        yield note(
            "Only sparkdash's own guard watches memory, while its daemon runs (settings; no earlyoom in /proc/*/comm).",
            "sudo apt install earlyoom",
        )
    else:
        yield warn(
            f"Nothing ends a process in time: guard is {readings.settings.guard!r} in the settings, "
            "and no earlyoom runs "
            "(/proc/*/comm). An over-commit can freeze a Spark until it is unplugged.",
            'guard = "act" in config.toml; and sudo apt install earlyoom',
        )


@check("vm", "Kernel settings of memory that are known to hurt engines.", reads=(OVERCOMMIT, MIN_FREE))
def sysctls(readings: Readings) -> Iterator[CheckResult]:
    overcommit, least = (readings.file(OVERCOMMIT) or "").strip(), (readings.file(MIN_FREE) or "").strip()
    kept = int(least) * KIB if least.isdecimal() else None
    strict, greedy = overcommit == "2", kept is not None and kept > RESERVED
    if strict:
        yield warn(
            f"vm.overcommit_memory is 2 ({OVERCOMMIT}): CUDA reserves far more addresses than memory, and is refused.",
            "sudo sysctl vm.overcommit_memory=0",
        )
    if greedy:
        yield warn(
            f"vm.min_free_kbytes keeps {gib(kept)} from everybody ({MIN_FREE}).", "sudo sysctl vm.min_free_kbytes=67584"
        )
    if not strict and not greedy:
        yield ok(f"overcommit_memory {overcommit or '-'}, min_free_kbytes {gib(kept, 2)} (/proc/sys/vm).")


LOST = 4 * GIB
"""Least memory without a holder that is reported: an idle driver keeps less."""


@check("memory-holders", "No GPU memory is held for processes that have ended.", account=True)
def holders(readings: Readings) -> Iterator[CheckResult]:
    found = require_read(readings.account)
    if found is None:
        yield unknown("The account of memory was not read.")
        return
    lost = next((one.bytes for one in found.holdings if one.kind is Holder.UNACCOUNTED and one.bytes >= LOST), 0)
    shared = found.gpu not in (GpuMemory.NONE, GpuMemory.OWN)
    if lost and shared and found.gpu_told and not any(one.gpu_bytes for one in found.holdings):
        text = f"The GPU driver or the kernel holds {gib(lost)} for no process: GPU memory of ended processes."
        yield warn(text, "sudo reboot")
    else:
        yield ok("None was found; `sparkdash memory` shows who holds what.")


INSTALL = "sparkdash service install --helper | sudo sh"


@check(
    "memory-helper",
    "The unit that frees and compacts memory before a load that fragmented memory would stop.",
    reads=(UNIT,),
)
def memory_helper(readings: Readings) -> Iterator[CheckResult]:
    """Check the unit's file: a run that fails is told by the load, and only root may read the folder of sudo's rule."""
    unit = readings.file(UNIT)
    if unit is None:
        yield note(f"not installed ({UNIT} is not there): a load into fragmented memory is refused.", INSTALL)
        return
    if not ours(unit):
        yield note(f"{UNIT} was not written by sparkdash; it is started as it is.")
    elif unit != TEXT:
        yield note(f"{UNIT} is of another version of sparkdash.", INSTALL)
    else:
        yield ok(f"installed ({UNIT}); `sudo -n {' '.join(START)}` tries it, and drops the kernel's caches.")


BUDDYINFO, VMSTAT = "/proc/buddyinfo", "/proc/vmstat"
WEDGED = ("7.0.0-1019-nvidia", "failed 7 boots of 7 with a workload that others run (open-gpu-kernel-modules#1358)")


@check("contiguity", "Large free blocks, which the GPU's driver needs.", reads=(BUDDYINFO, VMSTAT, MEMINFO), gpu=True)
def blocks(readings: Readings) -> Iterator[CheckResult]:
    """Judge the free blocks against the largest load that fits into the available memory."""
    seen = host.parse_contiguity(readings.file(BUDDYINFO) or "", readings.file(VMSTAT) or "", readings.page_size)
    if seen is None:
        yield unknown(f"{BUDDYINFO} does not list the free blocks.")
        return
    yield _judged(readings, seen)
    if readings.kernel == WEDGED[0]:
        yield note(f"Kernel {readings.kernel} {WEDGED[1]}.", "boot another kernel: 6.17.0-nvidia ran the same")


def _judged(readings: Readings, seen: Contiguity) -> CheckResult:
    """Compare the free blocks with those of the largest load."""
    about = _now(seen)
    available = parse_meminfo(readings.file(MEMINFO) or "").get("MemAvailable")
    wanted = contiguity.blocks_for(available or 0)
    if not (readings.looks and readings.looks[0].unified):
        return ok(f"{about} ({BUDDYINFO}). Judged on a DGX Spark only.")
    if contiguity.enough(seen.blocks, wanted):
        return ok(f"{about} ({BUDDYINFO}).")
    if seen.free_bytes < wanted.blocks * BLOCK:
        return note(
            f"{about} ({BUDDYINFO}). Most of the {gib(available)} available is page cache. Weights leave it before a "
            f"load, which needs {wanted.blocks} blocks."
        )
    shortage = f"Memory is {contiguity.describe_shortage(seen.blocks, wanted)}, with {gib(available)} available"
    return warn(
        f"{shortage}. {about} ({BUDDYINFO}).",
        f"{contiguity.FIX}; if too few blocks come free, reboot before a big load",
    )


def _now(seen: Contiguity) -> str:
    large = f"{gib(seen.free_2m_bytes)} of {gib(seen.free_bytes)} free memory in blocks of 2 MiB and more"
    stalls, fails = seen.compact_stall, seen.compact_fail
    worked = f"; compaction failed {fails:,} of {stalls:,} times" if stalls and fails is not None else ""
    return f"32 MiB blocks: {seen.blocks:,} free; {large}{worked}"

"""Checks of the box's shared memory, and of the safeguards for when it runs out.

On a GB10 an over-commit of GPU memory freezes the kernel instead of ending a process (open-gpu-kernel-modules#1358,
dgx-spark-playbooks#97).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sparkdash.doctor.check import CheckResult, check, note, ok, unknown, warn
from sparkdash.doctor.facts import Facts, meminfo
from sparkdash.units import GIB, KIB, gib, percent

MEMINFO = "/proc/meminfo"
SWAPS = "/proc/swaps"
SWAPPINESS = "/proc/sys/vm/swappiness"
PRESSURE = "/proc/pressure/memory"
OVERCOMMIT = "/proc/sys/vm/overcommit_memory"
MIN_FREE = "/proc/sys/vm/min_free_kbytes"
NAMES = "/proc/[0-9]*/comm"

SWAPPED = GIB
"""Bytes swapped to disk from which programs slow down."""
RESERVED = 2 * GIB
"""Largest vm.min_free_kbytes that costs engines little memory; a raised one was seen to cost 6.2 GiB."""
SCARCE_FREE, LARGE_CACHE = 8 * GIB, 16 * GIB
BUSY_PRESSURE = 0.1
"""Share of time during which every task waited for memory."""


@check("memory", "Memory that is available now, against the reserve that admission keeps.", reads=(MEMINFO,))
def memory(facts: Facts) -> Iterator[CheckResult]:
    """Compare available memory with the reserve; huge pages that were reserved are missing from it."""
    found = meminfo(facts.file(MEMINFO) or "")
    total, available = found.get("MemTotal"), found.get("MemAvailable")
    if total is None or available is None:
        yield unknown(f"{MEMINFO} lacks MemTotal or MemAvailable.")
        return
    if huge := found.get("HugePages_Total", 0) * found.get("Hugepagesize", 0):
        yield warn(
            f"{gib(huge)} are kept as huge pages, which no engine uses ({MEMINFO}).",
            "sudo sysctl vm.nr_hugepages=0",
        )
    reserve = facts.settings.reserve_gib * GIB
    about = f"{gib(available)} available of {gib(total)}, reserve {gib(reserve)} ({MEMINFO})"
    if available < reserve:
        yield warn(f"{about}: no further engine is admitted.", "`sparkdash status` shows what holds it.")
    else:
        yield ok(f"{about}.")


@check("page-cache", "Page cache in the available memory, which some engines do not count.", reads=(MEMINFO,))
def page_cache(facts: Facts) -> Iterator[CheckResult]:
    """Compare MemFree with the cache: CUDA counts about MemFree, vLLM from 0.16 on MemAvailable."""
    found = meminfo(facts.file(MEMINFO) or "")
    free, cached = found.get("MemFree"), found.get("Cached")
    if free is None or cached is None:
        yield unknown(f"{MEMINFO} lacks MemFree or Cached.")
        return
    about = f"{gib(free)} free, {gib(cached)} page cache ({MEMINFO})"
    if free < SCARCE_FREE and cached > LARGE_CACHE:
        yield note(
            f"{about}: an engine that counts only free memory may refuse to start.",
            "If one does: sync; echo 3 | sudo tee /proc/sys/vm/drop_caches",
        )
    else:
        yield ok(f"{about}.")


@check("handover", "No memory is kept for kexec handover (KHO), where it cannot be pinned.", reads=(MEMINFO,))
def handover(facts: Facts) -> Iterator[CheckResult]:
    """Detect memory kept for kexec handover: CmaFree is then above CmaTotal.

    Its pages are free like CMA's, but in no area of CMA. On GB10s with kernel 7.0 some 9.3 GiB were kept so. RDMA
    memory could not be registered once engines held the rest, and `kho=off` cured it (NVIDIA/NV-Kernels#591,
    MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259).
    """
    found = meminfo(facts.file(MEMINFO) or "")
    kept = found.get("CmaFree", 0) - found.get("CmaTotal", 0)
    if kept > 0:
        yield warn(
            f"{gib(kept)} are kept for kexec handover (CmaFree above CmaTotal in {MEMINFO}): they count as available, "
            "but cannot be pinned; between two boxes NCCL then fails to start.",
            "kernel command line: kho=off",
        )
    else:
        yield ok(f"None (CmaFree is not above CmaTotal in {MEMINFO}).")


@check("swap", "Swap: none or zram is best; a swapped-out engine stalls the box.", reads=(SWAPS, SWAPPINESS))
def swap(facts: Facts) -> Iterator[CheckResult]:
    """Check swap on disk."""
    text = facts.file(SWAPS)
    if text is None:
        yield unknown(f"{SWAPS} is not there.")
        return
    areas = _swap_areas(text)
    disks = [area for area in areas if "/zram" not in area.name]
    about = ", ".join(f"{area.name} {gib(area.bytes)}, {gib(area.used_bytes)} used" for area in areas)
    lean = f"swappiness {(facts.file(SWAPPINESS) or '-').strip()}"
    if sum(area.used_bytes for area in disks) > SWAPPED:
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


class _SwapArea(NamedTuple):
    name: str
    bytes: int
    used_bytes: int


def _swap_areas(text: str) -> list[_SwapArea]:
    """Parse /proc/swaps. Columns by proc(5): name, type, KiB, used KiB, priority."""
    rows = [line.split() for line in text.splitlines()[1:] if line.strip()]
    return [_SwapArea(row[0], int(row[2]) * KIB, int(row[3]) * KIB) for row in rows]


@check(
    "oom-guard", "Something ends a process before memory is gone, also while sparkdash does not run.", reads=(NAMES,)
)
def oom_guard(facts: Facts) -> Iterator[CheckResult]:
    """Look for a guard among the running processes; sparkdash's own guard needs its daemon."""
    running = {name.strip() for name in facts.matching(NAMES).values()}
    if "earlyoom" in running:
        yield ok("earlyoom runs (/proc/*/comm).")
    elif "systemd-oomd" in running:
        yield note(
            "Only systemd-oomd runs (/proc/*/comm): it judges by cgroups, which do not see the GPU's memory.",
            "sudo apt install earlyoom",
        )
    elif facts.settings.guard == "act":
        yield note(
            "Only sparkdash's own guard watches memory, while its daemon runs (settings; no earlyoom in /proc/*/comm).",
            "sudo apt install earlyoom",
        )
    else:
        yield warn(
            f"Nothing ends a process in time: guard is {facts.settings.guard!r} in the settings, and no earlyoom runs "
            "(/proc/*/comm). An over-commit can freeze a Spark until it is unplugged.",
            'guard = "act" in config.toml; and sudo apt install earlyoom',
        )


@check("vm", "Kernel settings of memory that are known to hurt engines.", reads=(OVERCOMMIT, MIN_FREE))
def sysctls(facts: Facts) -> Iterator[CheckResult]:
    """Check vm.overcommit_memory and vm.min_free_kbytes."""
    overcommit, least = (facts.file(OVERCOMMIT) or "").strip(), (facts.file(MIN_FREE) or "").strip()
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


@check("pressure", "The kernel measures how long tasks wait for memory (PSI), and no task waits.", reads=(PRESSURE,))
def pressure(facts: Facts) -> Iterator[CheckResult]:
    """Check "full avg10": the share of the last 10 s during which every task waited."""
    text = facts.file(PRESSURE)
    if text is None:
        yield note(
            f"The kernel does not measure it ({PRESSURE} does not exist): a stall is noticed later.",
            "kernel command line: psi=1",
        )
        return
    full = next((line for line in text.splitlines() if line.startswith("full ")), "full")
    share = float(dict(word.split("=", 1) for word in full.split()[1:])["avg10"]) / 100
    about = f"All tasks waited for memory {percent(share)} of the last 10 s ({PRESSURE})."
    yield warn(about, "sparkdash stop") if share >= BUSY_PRESSURE else ok(about)

"""Check of large free memory blocks: now, over the last loads, and the kernel's settings for them.

Boxes froze with gigabytes available and no large block free (open-gpu-kernel-modules#1358, sparkring#173): the GPU's
driver asks the kernel for contiguous memory. `supervisor.memory.contiguity` knows how much a load asks for.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkdash.doctor.check import CheckResult, check, note, ok, unknown, warn
from sparkdash.doctor.checks.gpu import MODULE, loaded_driver
from sparkdash.doctor.facts import Facts, UnreadFact, meminfo
from sparkdash.domain.memory import BLOCK, Contiguity, LoadContiguity
from sparkdash.host.memory import contiguity as host
from sparkdash.supervisor.decide import contiguity
from sparkdash.units import duration, gib, size

BUDDYINFO, VMSTAT, ZONEINFO, MEMINFO = "/proc/buddyinfo", "/proc/vmstat", "/proc/zoneinfo", "/proc/meminfo"
BOOT, UPTIME = "/proc/sys/kernel/random/boot_id", "/proc/uptime"
SYSCTLS = tuple(
    f"/proc/sys/vm/{name}"
    for name in ("compaction_proactiveness", "extfrag_threshold", "watermark_boost_factor", "watermark_scale_factor")
)
SHOWN = 5
"""Loads of a trend that are shown, from first to last."""
WEDGED = ("7.0.0-1019-nvidia", "failed 7 boots of 7 with a workload that others run (open-gpu-kernel-modules#1358)")


@check(
    "contiguity",
    "Large free blocks, which the GPU's driver needs: now, over the last loads, and what the kernel does for them.",
    reads=(BUDDYINFO, VMSTAT, ZONEINFO, MEMINFO, BOOT, UPTIME, MODULE, *SYSCTLS),
    gpu=True,
    loads=True,
)
def blocks(facts: Facts) -> Iterator[CheckResult]:
    """Judge the free blocks against the largest load that fits into the available memory."""
    seen = host.parse_contiguity(facts.file(BUDDYINFO) or "", facts.file(VMSTAT) or "", facts.page_size)
    if seen is None:
        yield unknown(f"{BUDDYINFO} does not list the free blocks.")
        return
    loads: Sequence[LoadContiguity] = ()
    try:
        loads = facts.told_loads()
    except UnreadFact as why:  # today's blocks are known without the history
        yield unknown(f"{why}.")
    about = f"{_now(seen)}{_trend(_since_boot(facts, loads), seen, _up(facts))}"
    yield _judged(facts, seen, loads, about)
    yield _kernel(facts)


def _judged(facts: Facts, seen: Contiguity, loads: Sequence[LoadContiguity], about: str) -> CheckResult:
    """Compare the free blocks with those of the largest load. `about`: the free blocks and their trend in words."""
    available = meminfo(facts.file(MEMINFO) or "").get("MemAvailable")
    wanted = contiguity.blocks_for(available or 0, loads)
    if not (facts.looks and facts.looks[0].unified):
        return ok(f"{about} ({BUDDYINFO}). Judged on a DGX Spark only.")
    if contiguity.enough(seen.blocks, wanted):
        return ok(f"{about} ({BUDDYINFO}).")
    if seen.free_bytes < wanted.blocks * BLOCK:
        return note(
            f"{about} ({BUDDYINFO}). Most of the {gib(available)} available is page cache. Weights leave it before a "
            f"load, which needs {wanted.blocks} blocks.",
        )
    shortage = f"Memory is {contiguity.describe_shortage(seen.blocks, wanted)}, with {gib(available)} available"
    return warn(
        f"{shortage}. {about} ({BUDDYINFO}).",
        f"{contiguity.MEND}; if too few blocks come free, reboot before a big load",
    )


def _since_boot(facts: Facts, loads: Sequence[LoadContiguity]) -> list[LoadContiguity]:
    boot = (facts.file(BOOT) or "").strip()
    return [load for load in loads if load.before is not None and load.before.boot == boot]


def _now(seen: Contiguity) -> str:
    large = f"{gib(seen.free_2m_bytes)} of {gib(seen.free_bytes)} free memory in blocks of 2 MiB and more"
    stalls, fails = seen.compact_stall, seen.compact_fail
    worked = f"; compaction failed {fails:,} of {stalls:,} times" if stalls and fails is not None else ""
    return f"32 MiB blocks: {seen.blocks:,} free; {large}{worked}"


def _up(facts: Facts) -> float | None:
    words = (facts.file(UPTIME) or "").split()
    return float(words[0]) if words and words[0].replace(".", "", 1).isdecimal() else None


def _trend(loads: Sequence[LoadContiguity], now: Contiguity, up_s: float | None) -> str:
    """Word the trend: "; before loads 1,417 → 782 → 140 (after the last 12), now 90, over 6d02h up, 9 loads"."""
    counts = [load.before.blocks for load in loads if load.before is not None]
    if not counts:
        return ""
    last = len(counts) - 1
    places = sorted({round(step * last / (SHOWN - 1)) for step in range(SHOWN)})
    course = " → ".join(f"{counts[place]:,}" for place in places)
    number = "1 load" if len(counts) == 1 else f"{len(counts)} loads"
    after = f" (after the last {loads[-1].after.blocks:,})" if loads[-1].after else ""
    return f"; before loads {course}{after}, now {now.blocks:,}, over {duration(up_s)} up, {number}"


def _kernel(facts: Facts) -> CheckResult:
    """Report the kernel's settings for free blocks, and warn of the kernel that failed most."""
    marks = host.watermarks(facts.file(ZONEINFO) or "", facts.page_size)
    kept = f"; reclaim wakes under {size(marks['low'])} free" if "low" in marks else ""
    values = ((path.rpartition("/")[2], (facts.file(path) or "").strip()) for path in SYSCTLS)
    settings = "".join(f", {name} {value}" for name, value in values if value)
    about = f"Kernel {facts.kernel}, driver {loaded_driver(facts.file(MODULE)) or '-'}{kept}{settings}"
    if facts.kernel == WEDGED[0]:
        return note(f"{about}. This kernel {WEDGED[1]}.", "boot another kernel: 6.17.0-nvidia ran the same")
    return ok(f"{about}.")

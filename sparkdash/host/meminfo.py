"""Memory figures of the kernel.

Rule: cheap (two small reads, no subprocess, no driver), as the memory guard must work when all else hangs.
"""

from __future__ import annotations

from pathlib import Path

from sparkdash.domain.metric import Memory
from sparkdash.errors import HostError
from sparkdash.host.processes.proc import PROC
from sparkdash.units import KIB, gib, percent

TOLD_PRESSURE = 0.01
"""Least share of time lost in waiting for memory that is mentioned."""


def read_memory(proc: Path = PROC) -> Memory:
    """Read memory, on a GB10 the GPU's too: CUDA's own "free" excludes reclaimable page cache.

    Raises:
        HostError: /proc/meminfo is missing, or lacks MemTotal or MemAvailable (kernels before 3.14).
    """
    found = meminfo_figures(proc)
    try:
        total, available, free = found["MemTotal"], found["MemAvailable"], found["MemFree"]
    except KeyError as missing:
        raise HostError(
            f"{proc}/meminfo lacks {missing}.",
            code="no_meminfo",
            hint="sparkdash needs Linux, with /proc mounted.",
        ) from None
    swap_total, swap_free = found.get("SwapTotal"), found.get("SwapFree")
    return Memory(
        total=total,
        available=available,
        free=free,
        page_cache=_page_cache(found),
        swap_total=swap_total,
        swap_used=None if swap_total is None or swap_free is None else swap_total - swap_free,
        pressure=_pressure(proc),
    )


def describe_memory(proc: Path = PROC) -> str:
    """Describe: "Then 3.1 GiB of 121.7 GiB of memory were available, and 23 % of the last 10 s were lost in waiting…".

    Empty if the kernel does not report memory.
    """
    try:
        found = read_memory(proc)
    except HostError:
        return ""
    lost = found.pressure or 0.0
    waited = f", and {percent(lost)} of the last 10 s were lost in waiting for memory" if lost >= TOLD_PRESSURE else ""
    return f"Then {gib(found.available)} of {gib(found.total)} of memory were available{waited}."


def meminfo_figures(proc: Path = PROC) -> dict[str, int]:
    """Read /proc/meminfo: bytes by the kernel's own names; empty without the file."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except OSError:
        return {}
    split = (line.partition(":") for line in lines)
    return {name: int(value.split()[0]) * KIB for name, _, value in split if value.strip()}


def _page_cache(found: dict[str, int]) -> int | None:
    """Correct Cached, which includes shared memory (not reclaimable) and excludes reclaimable slab."""
    if "Cached" not in found:
        return None
    return max(found["Cached"] + found.get("SReclaimable", 0) - found.get("Shmem", 0), 0)


def _pressure(proc: Path) -> float | None:
    """Read PSI "full avg10" as a share; None if the kernel was built or booted without PSI."""
    try:
        text = (proc / "pressure/memory").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("full "):
            values = dict(word.split("=", 1) for word in line.split()[1:])
            return float(values["avg10"]) / 100
    return None

"""Memory of this box by the kernel's figures, as a value and in words."""

from pathlib import Path

from sparkdash.domain.metric import Memory
from sparkdash.errors import HostError
from sparkdash.host import kernel_figures
from sparkdash.host.processes.proc import PROC
from sparkdash.units import gib, percent

TOLD_PRESSURE = 0.01
"""Least share of time lost in waiting for memory that is mentioned."""


def read_memory(proc: Path = PROC) -> Memory:
    """Read memory, on a GB10 the GPU's too: CUDA's own "free" excludes reclaimable page cache.

    Raises:
        HostError: /proc/meminfo is missing, or lacks a figure (MemAvailable: kernels before 3.14).
    """
    found = kernel_figures.read_memory(str(proc))
    if found is None:
        raise HostError(
            f"{proc}/meminfo lacks MemTotal, MemAvailable or MemFree.",
            code="no_meminfo",
            hint="sparkdash needs Linux, with /proc mounted.",
        )
    return Memory(**found)


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

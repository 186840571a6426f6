"""Kernel figures for the memory guard, read from files that stay open.

Rule: a look is `pread` and a search. It opens no file and starts no process, as both may fail on a box short of memory.
A look at /proc/vmstat takes 30 µs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from resource import getpagesize

from sparkdash.host.kernel_figures import MemoryFiles, open_optional
from sparkdash.host.memory import contiguity
from sparkdash.host.memory.wedge_signs import Vitals
from sparkdash.units import KIB

SCANNED = (b"\npgscan_kswapd ", b"\npgscan_direct ")
RECLAIMED = (b"\npgsteal_kswapd ", b"\npgsteal_direct ")
STALLS = (
    b"\nallocstall ",
    b"\nallocstall_normal ",
    b"\nallocstall_movable ",
    b"\nallocstall_dma32 ",
    b"\nallocstall_dma ",
)


class VitalsFiles:
    """Open files, owned by the guard's thread; `close` after its end."""

    def __init__(self, proc: Path) -> None:
        """Raises OSError without /proc/meminfo; the other files are optional."""
        self._memory = MemoryFiles(str(proc))
        self.look = self._memory.look
        self._vmstat = open_optional(f"{proc}/vmstat")
        self._buddyinfo = open_optional(f"{proc}/buddyinfo")

    def vitals(self, driver_lines: int, said_at: float | None) -> Vitals:
        """Read all figures that may announce a freeze. Raises OSError, ValueError."""
        vmstat = b"" if self._vmstat is None else b"\n" + os.pread(self._vmstat, 32 * KIB, 0)
        read = _sum(vmstat, (b"\npgpgin ",))
        return Vitals(
            at=time.monotonic(),
            available=self._memory.figure(b"MemAvailable:"),
            free=self._memory.figure(b"MemFree:"),
            scanned=_sum(vmstat, SCANNED),
            reclaimed=_sum(vmstat, RECLAIMED),
            stalls=_sum(vmstat, STALLS),
            read_bytes=None if read is None else read * KIB,
            faults=_sum(vmstat, (b"\npgfault ",)),
            driver_lines=driver_lines,
            said_at=said_at,
        )

    def blocks(self) -> int | None:
        """Free blocks of 32 MiB; None if the kernel does not report them."""
        if self._buddyinfo is None:
            return None
        try:
            text = os.pread(self._buddyinfo, 64 * KIB, 0).decode(errors="replace")
        except OSError:
            return None
        seen = contiguity.parse_contiguity(text, "", getpagesize())
        return None if seen is None else seen.blocks

    def close(self) -> None:
        self._memory.close()
        for fd in (self._vmstat, self._buddyinfo):
            if fd is not None:
                os.close(fd)


def _sum(vmstat: bytes, names: Iterable[bytes]) -> int | None:
    found = [int(line) for name in names if (line := vmstat.partition(name)[2].partition(b"\n")[0]).isdigit()]
    return sum(found) if found else None

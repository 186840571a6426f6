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

from sparkdash.host.guard_rules import GuardReading
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
        self._meminfo = os.open(proc / "meminfo", os.O_RDONLY | os.O_CLOEXEC)
        self._vmstat = _opened(proc / "vmstat")
        self._pressure = _opened(proc / "pressure/memory")
        self._buddyinfo = _opened(proc / "buddyinfo")

    def look(self) -> GuardReading:
        """Read available memory and the pressure. Raises OSError, ValueError."""
        return GuardReading(time.monotonic(), self._available(self._read_meminfo()), self._read_pressure())

    def vitals(self, driver_lines: int, said_at: float | None) -> Vitals:
        """Read all figures that may announce a freeze. Raises as `look`."""
        meminfo, vmstat = self._read_meminfo(), b""
        if self._vmstat is not None:
            vmstat = b"\n" + os.pread(self._vmstat, 32 * KIB, 0)
        read = _sum(vmstat, (b"\npgpgin ",))
        return Vitals(
            at=time.monotonic(),
            available=self._available(meminfo),
            free=int(_after(meminfo, b"MemFree:")) * KIB,
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
        for fd in (self._meminfo, self._vmstat, self._pressure, self._buddyinfo):
            if fd is not None:
                os.close(fd)

    def _read_meminfo(self) -> bytes:
        return os.pread(self._meminfo, 4096, 0)

    def _available(self, meminfo: bytes) -> int:
        return int(_after(meminfo, b"MemAvailable:")) * KIB

    def _read_pressure(self) -> float | None:
        """Read the pressure; None if the kernel does not report it."""
        if self._pressure is None:
            return None
        try:
            return float(_after(os.pread(self._pressure, 512, 0), b"full avg10=")) / 100
        except (OSError, ValueError):
            return None


def _opened(path: Path) -> int | None:
    """Open an optional file; None if the kernel lacks it."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _after(text: bytes, word: bytes) -> bytes:
    """Return the word after `word`. Raises ValueError if it is missing."""
    _, found, rest = text.partition(word)
    if not found:
        raise ValueError(f"{word.decode()} is missing")
    return rest.split(None, 1)[0]


def _sum(vmstat: bytes, names: Iterable[bytes]) -> int | None:
    found = [int(line) for name in names if (line := vmstat.partition(name)[2].partition(b"\n")[0]).isdigit()]
    return sum(found) if found else None

"""Contiguity of the free memory, by /proc/buddyinfo and /proc/vmstat.

Rule: cheap (three reads, well under 1 ms) and without root, which /proc/pagetypeinfo would need. Orders and the page
size are read, not assumed: kernels of Sparks have 4 KiB pages and blocks of up to 32 MiB, or 64 KiB pages and blocks of
up to 512 MiB; x86 ends at 4 MiB.
"""

from collections.abc import Iterable
from pathlib import Path
from resource import getpagesize

from sparkdash.domain.memory import BLOCK, Contiguity
from sparkdash.host.processes.proc import PROC
from sparkdash.units import MIB

HUGE = 2 * MIB
NORMAL, MOVABLE = "Normal", frozenset({"Movable", "Device"})
"""Zones by use: drivers pin their pages, and cannot use movable memory."""
MOST_ORDERS, MOST_PAGES = 32, 1 << 40
"""Bounds of a plausible line."""


def read_contiguity(proc: Path = PROC) -> Contiguity | None:
    """Read the free blocks; None if the kernel does not report them in a known form."""
    try:
        buddyinfo = (proc / "buddyinfo").read_text(errors="replace")
    except OSError:
        return None
    try:
        vmstat = (proc / "vmstat").read_text(errors="replace")
    except OSError:
        vmstat = ""
    return parse_contiguity(buddyinfo, vmstat, getpagesize())


def parse_contiguity(buddyinfo: str, vmstat: str, page_bytes: int) -> Contiguity | None:
    """Parse the text of both files; None without a readable zone."""
    zones = _zones(buddyinfo)
    if not zones:
        return None
    sizes = [page_bytes << order for order in range(max(len(counts) for _, counts in zones))]
    lasting = [counts for name, counts in zones if name == NORMAL]
    lasting = lasting or [counts for name, counts in zones if name not in MOVABLE]
    everywhere = [counts for _, counts in zones]
    told = _counters(vmstat)
    return Contiguity(
        free_bytes=_in_blocks(everywhere, sizes, 0),
        free_2m_bytes=_in_blocks(everywhere, sizes, HUGE),
        free_32m_bytes=_in_blocks(lasting, sizes, min(BLOCK, sizes[-1])),
        compact_stall=told.get("compact_stall"),
        compact_fail=told.get("compact_fail"),
    )


def _counters(vmstat: str) -> dict[str, int]:
    """Parse /proc/vmstat into counters by name."""
    words = (line.split() for line in vmstat.splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal()}


def _zones(buddyinfo: str) -> list[tuple[str, list[int]]]:
    """Parse name and free blocks by order of each zone of each node; other lines are skipped."""
    found = []
    for line in buddyinfo.splitlines():
        head, zone, rest = line.partition("zone")
        words = rest.split()
        if not zone or not head.startswith("Node") or not 2 <= len(words) <= MOST_ORDERS + 1:
            continue
        if all(word.isdecimal() and int(word) < MOST_PAGES for word in words[1:]):
            found.append((words[0], [int(word) for word in words[1:]]))
    return found


def _in_blocks(zones: Iterable[list[int]], sizes: list[int], least: int) -> int:
    """Bytes in free blocks of at least `least` bytes."""
    return sum(count * size for counts in zones for count, size in zip(counts, sizes, strict=False) if size >= least)

"""Contiguity: the share of free memory in large blocks, before and after each load.

Bytes, and counts since boot; None is unknown to this kernel. The GPU's driver cannot use free memory in small pieces:
boxes stood still with gigabytes available and no large block left.
Pure.
"""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.base import Frozen
from sparkdash.units import MIB

BLOCK = 32 * MIB
"""Block size of the figures, as owners of Sparks report them (sparkring, `prepare_launch_memory.py`)."""


class Contiguity(Frozen):
    """Reading of the kernel's free lists and of its effort to fill them."""

    boot: str | None = None
    """Boot id: counters and trends begin anew with each boot."""
    page_bytes: int
    largest_bytes: int
    """Largest block of this kernel: 4 MiB on x86; 32 MiB with 14 orders of 4 KiB pages."""
    free_bytes: int
    """Free memory in blocks of any size, all zones."""
    free_2m_bytes: int
    """Free memory in blocks of 2 MiB and more, all zones."""
    free_32m_bytes: int
    """Free memory in blocks of 32 MiB and more, or of the kernel's largest size where that is smaller. Zone Normal of
    all nodes; without a zone Normal, every zone but Movable.
    """
    compact_stall: int | None = None
    """Number of waits for the kernel to move pages into a large block."""
    compact_fail: int | None = None
    """Number of such waits that gave no block."""
    compact_success: int | None = None
    allocstall: int | None = None
    """Number of allocations that had to free memory first."""
    scanned: int | None = None
    """Pages that were examined for reclaim, by kswapd and by waiting allocations."""
    reclaimed: int | None = None
    """Pages that were reclaimed."""
    refaults: int | None = None
    """File pages that were read again soon after their reclaim."""
    oom_kill: int | None = None

    @property
    def blocks(self) -> int:
        """Free memory as a number of 32 MiB blocks."""
        return self.free_32m_bytes // BLOCK


class LoadOutcome(StrEnum):
    """Outcome of a load, as far as it concerns contiguity."""

    DONE = "done"
    WEDGING = "wedging"
    """The load was stopped because the box was about to stand still."""
    FAILED = "failed"
    """The load failed for any other reason, or was cancelled."""


class LoadContiguity(Frozen):
    """Contiguity before and after one load, with its outcome."""

    id: str
    """Id of the swap of this load."""
    at: float
    """End of the load, Unix seconds."""
    profile: str
    need_bytes: int | None = None
    """Expected need of the load; None while unknown."""
    before: Contiguity | None = None
    """Reading at admission, before the start."""
    after: Contiguity | None = None
    """Reading at the end of the load. A successful load holds its memory at that moment."""
    outcome: LoadOutcome

"""Contiguity: how much of the free memory lies in large blocks, before and after each load.

Bytes, and counts since boot; None is what a kernel does not tell. Free memory in small pieces is of no use to the GPU's
driver: boxes stood still with gigabytes available and no large block left.
"""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.base import Frozen
from sparkdash.units import MIB

BLOCK = 32 * MIB
"""The block that figures count in, as owners of Sparks report them (sparkring, `prepare_launch_memory.py`)."""


class Contiguity(Frozen):
    """One look at the kernel's free lists and at how hard it worked to fill them."""

    boot: str | None = None
    """Which start of the box this is (its boot id): counters begin anew with each, and so does a trend."""
    page_bytes: int
    largest_bytes: int
    """The largest block that this kernel keeps: 4 MiB on x86; 32 MiB with 14 orders of 4 KiB pages."""
    free_bytes: int
    """Free memory in blocks of any size, all zones."""
    free_2m_bytes: int
    """The same in blocks of 2 MiB and more."""
    free_32m_bytes: int
    """In blocks of 32 MiB and more (or of the kernel's largest size, where that is smaller), in zone Normal of all nodes;
    in every zone but Movable where there is no zone Normal."""
    compact_stall: int | None = None
    """How often somebody waited while the kernel moved pages to make a large block."""
    compact_fail: int | None = None
    """How often that gave none."""
    compact_success: int | None = None
    allocstall: int | None = None
    """How often somebody had to free memory before getting some."""
    scanned: int | None = None
    """Pages that were looked at to be taken back, by kswapd and by those who waited."""
    reclaimed: int | None = None
    """Pages of them that were."""
    refaults: int | None = None
    """File pages that were read again soon after they were taken back."""
    oom_kill: int | None = None

    @property
    def blocks(self) -> int:
        """Free blocks of 32 MiB; where blocks are smaller or larger, as many as they amount to."""
        return self.free_32m_bytes // BLOCK


class LoadOutcome(StrEnum):
    """How a load went, as far as it says something of contiguity."""

    DONE = "done"
    WEDGING = "wedging"
    """It was stopped on a sign that the box was about to stand still."""
    FAILED = "failed"
    """For any other reason, or it was cancelled."""


class LoadContiguity(Frozen):
    """Contiguity before and after one load, and how the load went."""

    id: str
    """Of the swap that brought it up."""
    at: float
    """When it ended, Unix seconds."""
    profile: str
    need_bytes: int | None = None
    """What the load was thought to take; None: not known."""
    before: Contiguity | None = None
    """As admission saw it, before the start."""
    after: Contiguity | None = None
    """When the load had ended. A load that went well holds its memory then."""
    outcome: LoadOutcome

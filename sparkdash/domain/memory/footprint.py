"""Footprint: unified memory that a launch took, over its last loads on this box.

Owns: the measurement of one load, the summary of several, and the need that follows. Must not know how memory is
measured, or where figures are kept.

Counted: memory that the kernel cannot give back while the engine runs. Weights that are read through the page cache
into the engine's own memory count once, in the engine. Weights that stay mapped from their file (llama.cpp without
`--no-mmap`) are page cache, which MemAvailable counts as available. A footprint leaves them out: an engine whose
mapped weights do not fit runs slowly, but it runs.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from statistics import median

from pydantic import Field

from sparkdash.domain.base import Frozen
from sparkdash.domain.memory.need import Basis, Need, Term
from sparkdash.units import tokens

LEARNED_FROM = 5
"""Loads per footprint: enough for one outlier to lose, few enough to follow a new driver."""
LONG_PROMPT = 8192
"""Computed prompt tokens from which a request shows what long prompts add after the start. Several times vLLM's default
step of 2048, so that every buffer has had its full size.
"""


class Measure(StrEnum):
    """Method of a measurement."""

    PROCESSES = "processes"
    """Memory of the engine's own processes: NVML's figures, and anonymous and shared host memory."""
    AVAILABLE = "available"
    """Fall of MemAvailable, less what all other processes took and gave back meanwhile."""


class Weighing(Frozen):
    """Measured memory of one load. Bytes; None is unknown, not zero."""

    id: str
    """Id of the swap of this load."""
    at: float
    """Time when the engine was ready, Unix seconds."""
    measure: Measure | None = None
    """Method behind `steady_bytes`; None when the memory could not be measured."""
    steady_bytes: int | None = Field(default=None, ge=0)
    """Memory held once ready."""
    peak_bytes: int | None = Field(default=None, ge=0)
    """Peak during the start."""
    after_prompt_bytes: int | None = Field(default=None, ge=0)
    """Memory held after the first prompt of LONG_PROMPT tokens or more; None before one."""
    spoilt: str | None = None
    """Reason why the load does not count, in words; None when it counts."""
    curve: tuple[tuple[float, int], ...] = ()
    """Fall of MemAvailable as (seconds since the start, bytes), others' memory included. At most 200 points."""

    @property
    def counts(self) -> bool:
        """Whether a footprint may be learned from this load."""
        return self.spoilt is None and self.steady_bytes is not None and self.measure is not None


class Footprint(Frozen):
    """Memory of a launch over its last loads. Bytes; None is unknown, not zero."""

    steady_bytes: int
    """Median of the memory held once ready."""
    peak_bytes: int | None = None
    """Largest of the peaks: a start that fits only usually has wedged boxes."""
    after_prompt_bytes: int | None = None
    """Largest of the memory held after a long prompt; never less than `steady_bytes`."""
    loads: int
    """Number of loads behind the figures."""
    at: float
    """Time when the newest load was ready, Unix seconds."""
    measure: Measure
    """Method of the newest load."""


def learn_footprint(weighings: Sequence[Weighing]) -> Footprint | None:
    """Summarize the last LEARNED_FROM loads that count, oldest first; None without any."""
    last = [weighing for weighing in weighings if weighing.counts][-LEARNED_FROM:]
    if not last:
        return None
    newest = last[-1]
    assert newest.measure is not None  # noqa: S101 - it counts
    steady = int(median(weighing.steady_bytes or 0 for weighing in last))
    return Footprint(
        steady_bytes=steady,
        peak_bytes=_most([weighing.peak_bytes for weighing in last], steady),
        after_prompt_bytes=_most([weighing.after_prompt_bytes for weighing in last], steady),
        loads=len(last),
        at=newest.at,
        measure=newest.measure,
    )


def _most(sizes: Iterable[int | None], least: int) -> int | None:
    """Return the largest known size, at least `least`; None without any."""
    known = [size for size in sizes if size is not None]
    return max([*known, least]) if known else None


def learned_need(seen: Footprint) -> Need:
    """Turn a footprint into a need: the steady memory, and what the first long prompt adds."""
    terms = [Term(name="steady", bytes=seen.steady_bytes, source=_source(seen))]
    if seen.after_prompt_bytes is not None:
        grown = seen.after_prompt_bytes - seen.steady_bytes
        source = f"the most that a prompt of {tokens(LONG_PROMPT)} tokens or more added"
        terms.append(Term(name="long prompts", bytes=grown, source=source))
    return Need(basis=Basis.LEARNED, terms=tuple(terms), peak_bytes=seen.peak_bytes)


def _source(seen: Footprint) -> str:
    """ "median of 3 loads on this box, 2026-11-20, by its own processes"."""
    day = datetime.fromtimestamp(seen.at, tz=UTC).date().isoformat()
    loads = "1 load" if seen.loads == 1 else f"median of {seen.loads} loads"
    by = "by its own processes" if seen.measure is Measure.PROCESSES else "by MemAvailable"
    return f"{loads} on this box, {day}, {by}"

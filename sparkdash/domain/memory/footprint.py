"""Footprint: what a launch was seen to take of the unified memory, over its last loads on this box.

Owns: one load's measurement, how several become one figure, and the need that follows from it. Must not know how memory
is measured, nor where figures are kept.

What counts: memory that the kernel cannot give back while the engine runs. Weights that are read through the page cache
into the engine's own memory count once, in the engine. Weights that stay mapped from their file (llama.cpp without
`--no-mmap`) are page cache: the kernel may drop them, MemAvailable counts them as available, and so a footprint leaves
them out; such an engine runs slowly rather than not at all when they do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from statistics import median

from pydantic import Field

from sparkdash.domain.base import Frozen
from sparkdash.domain.memory.need import Basis, Need, Term
from sparkdash.units import tokens

LEARNED_FROM = 5
"""Loads of one fingerprint that a footprint is taken from: enough for one outlier to lose, few enough to follow a new driver."""
LONG_PROMPT = 8192
"""Prompt tokens, those from the prefix cache left out, from which a request shows what long prompts take beyond the start:
several times the 2048 that vLLM computes per step by default, so that every buffer has had its full size."""


class Measure(StrEnum):
    """How a load's memory was measured."""

    PROCESSES = "processes"
    """What the engine's own processes held: NVML's figures and their anonymous and shared host memory."""
    AVAILABLE = "available"
    """By how much MemAvailable fell, less what all other processes took and gave back meanwhile."""


class Weighing(Frozen):
    """What one load was seen to take. Bytes; None is unknown, not zero."""

    id: str
    """Of the swap that brought it up."""
    at: float
    """When it was ready, Unix seconds."""
    measure: Measure | None = None
    """What `steady_bytes` comes from; None when it could not be measured."""
    steady_bytes: int | None = Field(default=None, ge=0)
    """Held once ready."""
    peak_bytes: int | None = Field(default=None, ge=0)
    """The most held while it came up."""
    after_prompt_bytes: int | None = Field(default=None, ge=0)
    """Held after the first prompt of LONG_PROMPT tokens or more; None before one."""
    spoilt: str | None = None
    """Why nothing is learned from it, in words; None when it counts."""
    curve: tuple[tuple[float, int], ...] = ()
    """By how much MemAvailable had fallen: (seconds since the start, bytes), others' memory included. At most 200 points."""


class Footprint(Frozen):
    """What a launch takes, from its last loads. Bytes; None is unknown, not zero."""

    steady_bytes: int
    """Median of what was held once ready."""
    peak_bytes: int | None = None
    """Largest of the peaks: a start that fits only usually has wedged boxes."""
    after_prompt_bytes: int | None = None
    """Largest of what was held after a long prompt; never less than `steady_bytes`."""
    loads: int
    """How many loads it is taken from."""
    at: float
    """When the newest of them was ready, Unix seconds."""
    measure: Measure
    """Of the newest of them."""


def footprint(weighings: Sequence[Weighing]) -> Footprint | None:
    """One figure from the last LEARNED_FROM loads that count, oldest first; None without any."""
    counted = [w for w in weighings if w.spoilt is None and w.steady_bytes is not None and w.measure is not None]
    last = counted[-LEARNED_FROM:]
    if not last:
        return None
    steady = int(median(w.steady_bytes for w in last if w.steady_bytes is not None))
    peaks = [w.peak_bytes for w in last if w.peak_bytes is not None]
    prompts = [w.after_prompt_bytes for w in last if w.after_prompt_bytes is not None]
    newest = last[-1]
    assert newest.measure is not None  # noqa: S101 - the filter above
    return Footprint(
        steady_bytes=steady,
        peak_bytes=max([*peaks, steady]) if peaks else None,
        after_prompt_bytes=max([*prompts, steady]) if prompts else None,
        loads=len(last),
        at=newest.at,
        measure=newest.measure,
    )


def need(seen: Footprint) -> Need:
    """The need that was learned: what it holds once ready, and what the first long prompt adds."""
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

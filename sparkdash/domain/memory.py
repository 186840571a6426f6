"""Memory of the box: its account, the need and footprint of a launch, the guard's state, contiguity. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from statistics import median
from typing import Literal

from pydantic import Field

from sparkdash.domain.base import Frozen
from sparkdash.units import MIB


class Holder(StrEnum):
    """Kind of a memory holder."""

    ENGINE = "engine"
    """An engine of this daemon; `name` is its profile."""
    CONTAINER = "container"
    """A container that sparkdash did not start."""
    UNIT = "unit"
    """A systemd service or desktop application."""
    PROGRAM = "program"
    """A program that no service or container names, as in a login session."""
    SPARKDASH = "sparkdash"
    """The daemon, its helper processes, dashboards."""
    UNSEEN = "unseen"
    """Processes that this user may not look at, or that came and went."""
    SHARED = "shared"
    """Shared memory that no process maps: tmpfs, memfd, System V."""
    KERNEL = "kernel"
    UNACCOUNTED = "unaccounted"
    """Memory in no process and in none of the kernel's own figures: unnamed GPU memory, drivers' buffers."""
    CACHE = "cache"
    """Page cache, and reclaimable kernel objects."""
    FREE = "free"


FOREIGN = frozenset({Holder.CONTAINER, Holder.UNIT, Holder.PROGRAM, Holder.UNACCOUNTED})
"""Kinds that no sparkdash command ends."""


class Holding(Frozen):
    """Share of one holder. Bytes; None is unknown."""

    kind: Holder
    name: str
    """Profile, container, service or program as the user knows it. Untrusted text: escape it for a terminal."""
    bytes: int
    """Share of the box's memory, each byte counted once."""
    host_bytes: int | None = None
    """Part of `bytes`: anonymous and shared memory of the processes."""
    gpu_bytes: int | None = None
    """GPU memory of the processes by NVML; part of `bytes` where GPU and system share one memory."""
    swap_bytes: int | None = None
    """Memory in swap, beyond `bytes`."""
    user: str | None = None
    what: str | None = None
    """Largest programs, image, or the meaning of the figure."""
    processes: int | None = None
    pid: int | None = None
    """Pid of the largest process."""
    remedy: str | None = None
    """Command that frees the memory; None where there is none, or where it would cut the owner off."""

    @property
    def proposed_remedy(self) -> str | None:
        """`remedy`, but no `kill` of a program: what it is doing, its owner alone knows."""
        return None if self.kind is Holder.PROGRAM else self.remedy

    @property
    def reclaimable(self) -> bool:
        return self.kind is Holder.CACHE


class GpuMemory(StrEnum):
    """Location of the GPU's memory."""

    UNIFIED = "unified"
    """In the system's memory, as on a GB10."""
    OWN = "own"
    """On the GPU itself: none of it is in the account."""
    SILENT = "silent"
    """Unknown: a driver is loaded and does not answer."""
    NONE = "none"


class MemoryAccount(Frozen):
    """Account of the box's memory at one moment. The holdings' bytes add up to `total`."""

    at: float
    """Unix seconds."""
    total: int
    available: int | None = None
    holdings: tuple[Holding, ...]
    """Holders, largest first; then reclaimable memory; free memory last."""
    gpu: GpuMemory = GpuMemory.NONE
    gpu_told: bool = False
    """Whether the driver listed the processes on the GPU, each with its memory."""
    unreadable: int = 0
    """Processes that this user may not look at."""
    mlocked_bytes: int | None = None
    """Pages that cannot be swapped or evicted; part of other rows."""
    swap_total: int | None = None
    swap_used: int | None = None
    notes: tuple[str, ...] = ()
    """Overlaps and contradictions between sources, and how each was resolved."""

    def foreign(self, least: int = 0) -> tuple[Holding, ...]:
        return tuple(one for one in self.holdings if one.kind in FOREIGN and one.bytes >= least)


class Basis(StrEnum):
    """Origin of a need, the most trusted first."""

    LEARNED = "learned"
    """Measured on this box, from earlier loads of the same fingerprint."""
    DECLARED = "declared"
    """Written in the profile, with its source."""
    ESTIMATED = "estimated"
    """Computed from the weights' headers and the engine's flags."""
    UNKNOWN = "unknown"
    """At least one term is unknown, so there is no sum."""


class Term(Frozen):
    """Summand of a need."""

    name: str
    """Word of the field: weights, drafter, kv, overhead, steady, or utilization (a share of the box taken whole)."""
    bytes: int | None = Field(default=None, ge=0)
    """Size of the term; None is unknown, not zero."""
    source: str
    """Header, flag, file or measurement behind the figure, in words; for an unknown one, what is missing."""


class Need(Frozen):
    """Memory that a launch takes while it serves, and at most while it loads. Bytes; None is unknown, not zero."""

    basis: Basis = Basis.UNKNOWN
    terms: tuple[Term, ...] = ()
    peak_bytes: int | None = Field(default=None, ge=0)
    """Peak while loading, when known; never less than the need while serving."""

    @property
    def total_bytes(self) -> int | None:
        """Sum of the terms: the need while serving. None while any term is unknown, or without terms."""
        total = 0
        for term in self.terms:  # a loop: every decision asks for it, several times
            if term.bytes is None:
                return None
            total += term.bytes
        return total if self.terms else None

    @property
    def room_bytes(self) -> int | None:
        """Memory that must be free before the start: the peak when known, else the sum."""
        total = self.total_bytes
        if total is None or self.peak_bytes is None:
            return total
        return max(total, self.peak_bytes)


LEARNED_FROM = 5
"""Loads per footprint: enough for one outlier to lose, few enough to follow a new driver."""


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
    measure: Measure | None = None
    """Method behind `steady_bytes`; None when the memory could not be measured."""
    steady_bytes: int | None = Field(default=None, ge=0)
    peak_bytes: int | None = Field(default=None, ge=0)
    spoilt: str | None = None
    """Reason why the load does not count, in words; None when it counts."""

    @property
    def counts(self) -> bool:
        return self.spoilt is None and self.steady_bytes is not None and self.measure is not None


class Footprint(Frozen):
    """Memory of a launch over its last loads. Bytes; None is unknown, not zero."""

    steady_bytes: int
    """Median of the memory held once ready."""
    peak_bytes: int | None = None
    """Largest of the peaks: a start that fits only usually has wedged boxes."""
    loads: int
    at: float
    """Time when the newest load was ready, Unix seconds."""
    measure: Measure


def learn_footprint(weighings: Sequence[Weighing]) -> Footprint | None:
    """Summarize the last LEARNED_FROM loads that count, oldest first; None without any."""
    last = [weighing for weighing in weighings if weighing.counts][-LEARNED_FROM:]
    if not last:
        return None
    newest = last[-1]
    assert newest.measure is not None  # noqa: S101 - it counts
    steady = int(median(weighing.steady_bytes or 0 for weighing in last))
    peaks = [weighing.peak_bytes for weighing in last if weighing.peak_bytes is not None]
    return Footprint(
        steady_bytes=steady,
        peak_bytes=max([*peaks, steady]) if peaks else None,
        loads=len(last),
        at=newest.at,
        measure=newest.measure,
    )


def learned_need(seen: Footprint) -> Need:
    steady = Term(name="steady", bytes=seen.steady_bytes, source=_source(seen))
    return Need(basis=Basis.LEARNED, terms=(steady,), peak_bytes=seen.peak_bytes)


def _source(seen: Footprint) -> str:
    """Word the basis: "median of 3 loads on this box, 2026-11-20, by its own processes"."""
    day = datetime.fromtimestamp(seen.at, tz=UTC).date().isoformat()
    loads = "1 load" if seen.loads == 1 else f"median of {seen.loads} loads"
    by = "by its own processes" if seen.measure is Measure.PROCESSES else "by MemAvailable"
    return f"{loads} on this box, {day}, {by}"


class GuardLevel(StrEnum):
    """Shortage of memory, mildest first."""

    OK = "ok"
    WARN = "warn"
    HOLD = "hold"
    """No load begins."""
    KILL = "kill"
    """The engine that costs least is killed."""

    @property
    def rank(self) -> int:
        return _ORDER.index(self)


_ORDER = tuple(GuardLevel)


class Floors(Frozen):
    """Available memory under which each level begins; kill <= hold <= warn."""

    warn: int
    hold: int
    kill: int

    def level(self, available: int) -> GuardLevel:
        floors = ((GuardLevel.KILL, self.kill), (GuardLevel.HOLD, self.hold), (GuardLevel.WARN, self.warn))
        return next((level for level, floor in floors if available < floor), GuardLevel.OK)

    def of(self, level: GuardLevel) -> int:
        return {GuardLevel.WARN: self.warn, GuardLevel.HOLD: self.hold, GuardLevel.KILL: self.kill}.get(level, 0)


class GuardKill(Frozen):
    """An engine that the guard killed."""

    at: float
    profile: str
    available: int
    pressure: float | None = None
    """PSI "full avg10" at that moment, as a share of time; None where the kernel has no PSI."""
    processes: int = 0
    """Number of killed processes; 0 when none could be signalled and the runtime was asked instead."""
    reason: str


class Guard(Frozen):
    """State of the memory guard."""

    mode: Literal["off", "warn", "act"]
    floors: Floors | None = None
    level: GuardLevel = GuardLevel.OK
    since: float | None = None
    """Time of the last change of level; None before the first."""
    kills: tuple[GuardKill, ...] = ()
    """Last kills of this daemon's life, newest first."""


BLOCK = 32 * MIB
"""Block size of the figures, as owners of Sparks report them (sparkring, `prepare_launch_memory.py`)."""


class Contiguity(Frozen):
    """Reading of the kernel's free lists and of its effort to fill them."""

    free_bytes: int
    """Free memory in blocks of any size, all zones."""
    free_2m_bytes: int
    """Free memory in blocks of 2 MiB and more, all zones."""
    free_32m_bytes: int
    """Free memory in blocks of 32 MiB (or the kernel's largest) and more: zone Normal, else all zones but Movable."""
    compact_stall: int | None = None
    """Number of waits for the kernel to move pages into a large block."""
    compact_fail: int | None = None
    """Number of such waits that gave no block."""

    @property
    def blocks(self) -> int:
        """Free memory as a number of 32 MiB blocks."""
        return self.free_32m_bytes // BLOCK

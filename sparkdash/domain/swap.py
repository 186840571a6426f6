"""Swap: one change of residents, from the first drain to the last warm-up token."""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.base import Frozen
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.memory.need import Need


class SwapPhase(StrEnum):
    """The seven steps, in their order."""

    DRAIN = "drain"
    STOP = "stop"
    RECLAIM = "reclaim"
    PREFLIGHT = "preflight"
    CREATE = "create"
    LOAD = "load"
    WARM = "warm"


class SwapCause(StrEnum):
    """Who wanted it."""

    REQUEST = "request"
    USER = "user"
    BENCH = "bench"
    IDLE = "idle"
    FALLBACK = "fallback"
    ADOPT = "adopt"
    """An earlier daemon began it."""
    PRELOAD = "preload"
    REPAIR = "repair"
    """The engine before it was stuck."""


class SwapOutcome(StrEnum):
    """How it ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Step(Frozen):
    """One step of a swap that ended: a phase, or within the load a stage of the engine's own log."""

    name: str
    """A phase's word; "start" before the engine's first word, then a LoadProgress's stage. What comes after a stage said
    that it is complete is "... done", and a stage that comes a second time "... 2"."""
    s: float


class Swap(Frozen):
    """One change of residents. Times are Unix seconds, durations seconds."""

    id: str
    target: str | None
    """The profile that comes; None when a swap only stops."""
    evict: tuple[str, ...]
    reasons: dict[str, str] = {}
    """Why each of them leaves, in words."""
    cause: SwapCause
    phase: SwapPhase
    started_at: float
    phase_at: float
    """When the present phase began."""
    waits_for: str | None = None
    """What its present phase waits for, in words: "2 requests of gpt-oss-120b". None: for nothing, or `progress` tells."""
    until: float | None = None
    """When that wait ends at the latest, Unix seconds: requests are cut, engines killed, missing memory is given up."""
    progress: LoadProgress | None = None
    waiting: int = 0
    """Requests that wait for the target."""
    expected_s: float | None = None
    """Learned time of the whole swap; None before the first."""
    fraction: float | None = None
    """Share of the whole swap, 0..1. Never falls; 1 only once done. Measured against earlier swaps where there are any,
    else against the memory that the target needs. None: not known, as while the swap takes far longer than ever.
    """
    still_since: float | None = None
    """Time since which the load shows no progress: no new line in its log, no memory taken. Set after half a minute;
    None while it moves.
    """
    eta_s: float | None = None
    """What was left at `eta_at`, a drain's rest left out: the median over earlier swaps. None before the first."""
    eta_low_s: float | None = None
    """The least and the most that those earlier swaps still took from here; None while there is but one."""
    eta_high_s: float | None = None
    eta_at: float | None = None
    """When these were told, Unix seconds: count on from there."""
    learned_from: int = 0
    """Earlier swaps that the estimate rests on; 0: none such was seen here."""
    similar: bool = False
    """They brought up another launch of the same model on the same engine."""
    stage_s: dict[SwapPhase, float] = {}
    """Time of each phase that is over."""
    steps: tuple[Step, ...] = ()
    """What it did in order and how long each took, the drain left out; of one that ended."""
    ended_at: float | None = None
    outcome: SwapOutcome | None = None
    failure: Failure | None = None


class Plan(Frozen):
    """What making a profile resident would do. Bytes and seconds; None is unknown, not zero."""

    profile: str
    evict: tuple[str, ...] = ()
    """Profiles that would leave; empty when the profile runs already or fits beside the others."""
    reasons: dict[str, str] = {}
    """Why each of them would leave, in words."""
    beside: tuple[str, ...] = ()
    """Profiles whose engines would stay."""
    need: Need = Need()
    """What it takes, term by term."""
    needs_bytes: int | None = None
    """What must be free before it starts: its peak where that is known, else the sum of the terms."""
    now_bytes: int | None = None
    """What is available now, with what engines that ended lately are still giving back."""
    reserve_bytes: int = 0
    """What is kept free."""
    available_bytes: int | None = None
    """What would be available once those have left, the reserve taken off."""
    fits: bool | None = None
    """None while it is not known; such a start is tried."""
    verdict: str = ""
    """The same for people, with what it rests on."""
    held: str | None = None
    """Why the memory guard lets no load of it begin as memory is now, with the figures and until when; None when it does."""
    expected_s: float | None = None
    """Learned time of the swap; None before the first, 0 when the profile runs already."""

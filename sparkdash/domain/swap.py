"""Swap: one change of residents, from the first drain to the last warm-up token. Pure."""

from enum import StrEnum

from sparkdash.domain.base import Frozen
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.memory import Need


class SwapPhase(StrEnum):
    """The steps, in their order."""

    COPY = "copy"
    """Image and weights are copied to another node; only where something is missing there."""
    DRAIN = "drain"
    STOP = "stop"
    RECLAIM = "reclaim"
    PREFLIGHT = "preflight"
    CREATE = "create"
    LOAD = "load"
    WARM = "warm"


class SwapCause(StrEnum):
    """Origin of a swap."""

    REQUEST = "request"
    USER = "user"
    BENCH = "bench"
    IDLE = "idle"
    FALLBACK = "fallback"
    ADOPT = "adopt"
    """An earlier daemon began the swap."""
    PRELOAD = "preload"
    SET = "set"
    """Recorded by earlier versions, for sets of profiles."""
    REPAIR = "repair"
    """The previous engine was stuck."""
    DEFAULT = "default"
    """The box was unused, and returned to its default profile."""


class SwapOutcome(StrEnum):
    """Outcome of a swap."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class DefaultProfile(Frozen):
    """Profile that the box returns to once the engines in its way were unused for `after_s` seconds."""

    profile: str
    after_s: float


class Step(Frozen):
    """Step of an ended swap: a phase, or within the load a stage of the engine's own log."""

    name: str
    """Phase's word; "start" before the engine's first; then a LoadProgress's stage. A stage met again is "… 2", and
    what follows a stage that reported its completion "… done".
    """
    s: float


class KvBack(Frozen):
    """Conversations that were read back from the disk instead of being computed again."""

    tokens: int
    s: float
    prefill_s: float
    """Seconds that computing them would have taken, by the engine's own rate."""


class Start(Frozen):
    """A start, taken apart. Bytes; None is unknown, not zero."""

    stages: tuple[Step, ...]
    """Seconds of each stage: container, process (up to its first line), imports, the log's, server, first token."""
    compiled: bool | None = None
    """Whether graphs were compiled anew; False: they came from a cache. None: the log does not tell."""
    disk_bytes: int | None = None
    """Bytes that its processes read from a disk."""
    cached_bytes: int | None = None
    """Bytes that they read from the page cache; None where the files are mapped, too."""
    peak_bytes: int | None = None
    """Most memory that its processes held."""
    image_id: str | None = None
    first_on_image: bool | None = None
    """Whether no earlier start of this model and engine had the same image, so that its caches were empty."""
    caches_empty: bool | None = None
    """Whether its folder of compile caches was empty; None: it has none, or several boxes have one each."""
    io_uring: bool | None = None
    """Whether its container's seccomp profile allows io_uring; None: no container."""
    kv_back: KvBack | None = None


class Swap(Frozen):
    """A change of residents. Times are Unix seconds, durations seconds."""

    id: str
    target: str | None
    """Profile that comes up; None when a swap only stops."""
    evict: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    """Nodes that the target runs on, the serving one first; empty without a target, and for a server not ours."""
    reasons: dict[str, str] = {}
    cause: SwapCause
    phase: SwapPhase
    started_at: float
    phase_at: float
    waits_for: str | None = None
    """Condition that the present phase waits for, such as "2 requests of gpt-oss-120b". None: nothing, or `progress`
    tells it.
    """
    until: float | None = None
    """Deadline of that wait, Unix seconds: then requests are cut, engines killed, missing memory given up."""
    progress: LoadProgress | None = None
    waiting: int = 0
    """Number of requests that wait for the target."""
    expected_s: float | None = None
    fraction: float | None = None
    """Share of the whole swap, 0..1. Never falls; 1 only once done. Measured against earlier swaps where there are any,
    else by the log's share of the weights, else by the memory that the target needs. None: unknown, as while the swap
    takes far longer than ever.
    """
    still_since: float | None = None
    """Time since which the load shows no progress: no new log line, no memory taken. Set after half a minute; None
    while it moves.
    """
    gives_up_at: float | None = None
    """Time at which the load is ended unless it moves before, Unix seconds; set with `still_since`."""
    heard_at: float | None = None
    """Time of the last line of the engine's log, Unix seconds, some seconds old; None before the first."""
    eta_s: float | None = None
    """Remaining seconds at `eta_at`, without the rest of a drain: the median over earlier swaps.

    None before the first.
    """
    eta_low_s: float | None = None
    """Least and most that those earlier swaps still took from here; None while there is only one."""
    eta_high_s: float | None = None
    eta_at: float | None = None
    """Time of these estimates, Unix seconds: count on from there."""
    reads_s: float | None = None
    """Least seconds that reading the weights takes, by the disk's rate as `sparkdash doctor disk` measured it; None
    where that is not known, or where earlier swaps tell more.
    """
    learned_from: int = 0
    """Number of earlier swaps behind the estimate; 0 without any."""
    similar: bool = False
    """Whether those swaps brought up another launch of the same model on the same engine."""
    other_caches: bool = False
    """Whether those swaps found full compile caches where this one's are empty, or the other way round."""
    stage_s: dict[SwapPhase, float] = {}
    steps: tuple[Step, ...] = ()
    """Steps in order with their durations, without the drain; only of an ended swap."""
    start: Start | None = None
    """The target's start, or the ended stages of a load under way. None: it failed, or an earlier daemon began it."""
    ended_at: float | None = None
    outcome: SwapOutcome | None = None
    failure: Failure | None = None


class PlanNode(Frozen):
    """Memory of one node that a profile would run on. Bytes; None is unknown, not zero."""

    node: str
    now_bytes: int | None = None
    """Available memory now, with what recently ended engines are still giving back."""
    available_bytes: int | None = None
    fits: bool | None = None
    """Whether the profile fits there; None while unknown, and then the start is tried."""


def phases_of(swap: Swap) -> tuple[SwapPhase, ...]:
    copies = swap.phase is SwapPhase.COPY or SwapPhase.COPY in swap.stage_s
    return tuple(phase for phase in SwapPhase if copies or phase is not SwapPhase.COPY)


class Plan(Frozen):
    """Effects of making a profile resident. Bytes and seconds; None is unknown, not zero. Of a profile for several
    nodes the bytes are those of the tightest node.
    """

    profile: str
    nodes: tuple[str, ...] = ()
    """Nodes that the profile would run on, or runs on, the serving one first; empty without one."""
    on_nodes: tuple[PlanNode, ...] = ()
    evict: tuple[str, ...] = ()
    """Profiles that would leave; empty when the profile runs already or fits beside the others."""
    reasons: dict[str, str] = {}
    beside: tuple[str, ...] = ()
    need: Need = Need.model_construct()
    needs_bytes: int | None = None
    """Memory that must be free before the start: the peak where known, else the sum of the terms."""
    now_bytes: int | None = None
    """Available memory now, with what recently ended engines are still giving back."""
    reserve_bytes: int = 0
    available_bytes: int | None = None
    """Memory that would be available after the evictions, less the reserve."""
    fits: bool | None = None
    """Whether the profile fits; None while unknown, and then the start is tried."""
    verdict: str = ""
    held: str | None = None
    """Why the memory guard holds this load back now, with the figures and until when; None when it does not."""
    requests_wait: str | None = None
    """Engines that hold a request (never a person's `use`) off for the profile, and until when; None without any."""
    expected_s: float | None = None
    """Learned duration of the swap; None before the first, 0 when the profile runs already."""
    starts: tuple[Start, ...] = ()
    """The last starts of this model on this engine, newest first, also by other profiles."""

"""Engine: one incarnation of a profile; its incidents, standstills while it held requests, and their repair. Pure."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any

from sparkdash.domain.base import Frozen
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import EngineKind
from sparkdash.domain.request import Task
from sparkdash.errors import EngineError


class LivenessState(StrEnum):
    """Activity of an engine that holds work."""

    BUSY = "busy"
    """Tokens are generated, or bytes of an answer are relayed."""
    PREFILL = "prefill"
    """Prompts are computed: the KV cache fills, or the GPU works, and no token comes yet."""
    COMPILING = "compiling"
    """The CPU prepares the work: kernels of the first request, or a grammar."""
    SILENT = "silent"
    """Standstill, not yet for long enough to call the engine stuck."""
    STUCK = "stuck"
    """Standstill for longer than any healthy work takes."""


class RepairStep(StrEnum):
    """Current repair of a stuck engine."""

    WATCH = "watch"
    """The engine is only reported: `on_stuck: tell`, or sparkdash did not start it."""
    EVIDENCE = "evidence"
    CANCEL = "cancel"
    END = "end"
    """The engine is being ended; its next start follows."""


class Liveness(Frozen):
    """Liveness of one engine. Times are Unix seconds."""

    state: LivenessState
    why: str = ""
    """Signals with figures: "1 request running, no token, no KV change, GPU 14 W, 0 % CPU"."""
    since: float
    """Time of the last progress; without any, the beginning of the work."""
    step: RepairStep | None = None
    step_since: float | None = None


class EngineState(StrEnum):
    """Stage of an engine's life."""

    ABSENT = "absent"
    CREATING = "creating"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    FAILED = "failed"

    @property
    def is_coming(self) -> bool:
        return self in (EngineState.CREATING, EngineState.LOADING, EngineState.WARMING)

    @property
    def is_serving(self) -> bool:
        return self in (EngineState.READY, EngineState.DRAINING)


class LoadProgress(Frozen):
    """Progress of an engine's start, read from its own log.

    `stage` is one of nodes, download, weights, compile, kv, kernels, graphs, warmup, http, ready; start until the log
    names one.
    """

    stage: str
    fraction: float | None = None
    """Share of this stage that is done, 0..1; None when the log does not say."""
    detail: str = ""
    took_s: float | None = None
    """Seconds of the stage up to this line, as the engine's log tells them."""


class Failure(Frozen):
    """Reason why an engine did not come up, or died."""

    code: str
    """out_of_memory, port_in_use, unknown_flag, model_not_found, image_missing, no_gpu_device, cdi_stale, wrong_arch,
    token_refused, engine_crash, peer_lost, node_unreachable, no_progress, bad_answer, engine_unhealthy, does_not_fit,
    runtime_missing, cancelled
    """
    message: str
    hint: str | None = None
    phase: str | None = None
    exit_code: int | None = None
    log_tail: tuple[str, ...] = ()
    evidence: str | None = None
    """Folder on the box with what was kept of an engine that hung."""

    def hint_for(self, profile: str) -> str | None:
        """Put the profile's name into the hint where the dialect left a place for it."""
        return self.hint.replace("{profile}", profile) if self.hint else None

    def error(self) -> EngineError:
        return EngineError(
            self.message,
            code=self.code,
            hint=self.hint,
            phase=self.phase,
            container_exit=self.exit_code,
            log_tail=self.log_tail,
            evidence=self.evidence,
        )


class Parked(Frozen):
    """Profile that is not started until it is released or edited, since another attempt would not help."""

    since: float
    """Unix seconds."""
    failures: int
    """Within ten minutes, or an hour for an engine that was stuck more than three times."""
    failure: Failure
    fingerprint: str = ""
    """Fingerprint of the launch that failed; an edited profile has another and is released. Empty when unknown."""


class Engine(Frozen):
    """Incarnation of a profile. Times are Unix seconds."""

    profile: str
    kind: EngineKind
    state: EngineState
    since: float
    fingerprint: str
    port: int | None = None
    url: str | None = None
    """Root URL, without /v1."""
    model_id: str | None = None
    """Name of the model on an attached server; None: the server uses the profile's names."""
    container: str | None = None
    nodes: tuple[str, ...] = (LOCAL,)
    """Nodes that the engine runs on, the serving one first."""
    version: str | None = None
    ready_at: float | None = None
    load_s: float | None = None
    """Duration of the last start, from create to ready; None for an adopted engine."""
    progress: LoadProgress | None = None
    failure: Failure | None = None
    adopted: bool = False
    simulated: bool = False
    in_flight: int = 0
    does: frozenset[Task] | None = None
    asked_at: dict[Task, float] = {}
    """Time of the last request to the engine, by task; published when the number of requests changes."""
    most_steps_s: float | None = None
    """Most decode steps per second of one sequence that a GB10's memory bandwidth allows; None while unknown."""
    liveness: Liveness | None = None

    @property
    def is_stuck(self) -> bool:
        return self.liveness is not None and self.liveness.state is LivenessState.STUCK

    @property
    def is_foreign(self) -> bool:
        """Whether the server runs by itself: sparkdash uses it, and can neither start nor stop it."""
        return self.kind.is_external


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRequest:
    """Request for evidence about one engine. Times are Unix seconds; `looks` are JSON-ready, without prompts."""

    profile: str
    kind: EngineKind
    reason: str
    pids: frozenset[int] = frozenset()
    """Host pids of the engine's processes, as last known; empty when the runtime lists none."""
    container: str | None = None
    fingerprint: str = ""
    version: str | None = None
    started_at: float | None = None
    """Start of the engine; kernel log lines count from here."""
    looks: Sequence[Mapping[str, Any]] = ()
    """Last looks at the engine, oldest first."""
    log: Sequence[str] = ()
    """Last lines of the engine's raw log; secrets and prompts are removed when the lines are kept."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Location of evidence. Without `folder`, `problem` says why; with both, only part was written."""

    folder: str | None
    problem: str | None = None


TakeEvidence = Callable[[EvidenceRequest], Awaitable[Evidence]]
"""Callback that takes evidence within 20 s, and raises only when cancelled."""


async def no_evidence(_request: EvidenceRequest) -> Evidence:
    """Take none: the default where no folder is kept, as on a simulated box."""
    return Evidence(None, "No evidence is kept here.")


RECENT_INCIDENTS = 20
"""Incidents in a snapshot; GET /api/incidents returns all that are kept."""


class IncidentEnd(StrEnum):
    """Outcome of an incident."""

    MOVED = "moved"
    """The engine moved again by itself."""
    RECOVERED = "recovered"
    """The engine moved again once its requests were cancelled."""
    RESTARTED = "restarted"
    """The engine was ended, and its profile serves again."""
    FAILED = "failed"
    """The engine ended, and its profile did not come up again."""
    STOPPED = "stopped"
    """A person, or a swap to another profile, ended the engine."""
    TOLD = "told"
    """Report without a repair: the requests left, and the engine moved again with the next ones."""
    UNKNOWN = "unknown"
    """The daemon ended meanwhile."""


REPAIRS = frozenset({IncidentEnd.RECOVERED, IncidentEnd.RESTARTED})
"""Ends that count into the mean time to repair."""


class TakenStep(Frozen):
    """Step of a repair, with the time of its start."""

    step: RepairStep
    at: float


class Incident(Frozen):
    """A standstill of an engine that held requests."""

    id: str
    profile: str
    fingerprint: str
    began: float
    """Time of the last progress that was seen."""
    named_at: float
    why: str
    steps: tuple[TakenStep, ...] = ()
    ended_at: float | None = None
    """Time when the profile served again or was given up; None while the incident is open."""
    end: IncidentEnd | None = None
    note: str = ""
    """Outcome as one sentence; empty while the incident is open."""
    evidence: str | None = None
    """Folder with the evidence that was taken before the engine was ended."""

    @property
    def repaired_s(self) -> float | None:
        """Time from the last progress until the profile served again; None unless something repaired it."""
        return None if self.ended_at is None or self.end not in REPAIRS else self.ended_at - self.began


class RepairTime(Frozen):
    """Mean time to repair, over `n` incidents."""

    n: int
    mean_s: float


class Repairs(Frozen):
    """Mean time to repair over all profiles, and for each."""

    every: RepairTime | None = None
    by_profile: dict[str, RepairTime] = {}


class IncidentList(Frozen):
    """Incidents, newest first, and the mean time to repair over all that are kept."""

    incidents: tuple[Incident, ...] = ()
    repairs: Repairs = Repairs.model_construct()


def summarize_repairs(incidents: Iterable[Incident]) -> Repairs:
    took: defaultdict[str, list[float]] = defaultdict(list)
    for incident in incidents:
        if incident.repaired_s is not None:
            took[incident.profile].append(incident.repaired_s)
    if not took:
        return Repairs()
    by_profile = {name: RepairTime(n=len(times), mean_s=fmean(times)) for name, times in took.items()}
    every = [one for times in took.values() for one in times]
    return Repairs(every=RepairTime(n=len(every), mean_s=fmean(every)), by_profile=by_profile)

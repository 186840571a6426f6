"""Judge of liveness: decides whether an engine that holds work makes progress.

An engine is alive when work it holds makes progress. Its health route tells nothing: a vLLM whose GPU kernel never
returns answers 200 on `/health`, `/v1/models` and `/metrics` for ever.

* Progress is a counter that changed, a KV cache that fills, or a byte that reached a client. In a long prefill every
  token counter of vLLM stands still; the KV cache's use is the only figure that moves.
* Requests that arrive or leave are no progress: clients retry on a stuck engine too. Time without progress is added up
  over all work since the last progress, so that clients which give up early cannot hide a stuck engine.
* Low power, idle processes, or processes that were stopped are *votes*: they shorten the wait for the verdict.
  Compilers, or a busy CPU under an idle GPU, are *excuses*: they lengthen it. Neither alone is a verdict. Each interval
  without progress uses up its share of the limit that its own signals set: an engine that compiled for ten minutes is
  not stuck in the moment in which its compiler ends.
* An interval in which sparkdash itself was held up, or the box slept, does not count.

The thresholds are those of reports about vLLM, SGLang and llama.cpp on GB10 and other boxes; none was measured on a
GB10 by us. vLLM has no time-out of its own on one GPU; SGLang and TensorRT-LLM end themselves after 300 s. Pure.
"""

from dataclasses import dataclass
from enum import Enum, auto

from sparkdash.domain.engine import LivenessState
from sparkdash.units import counted, duration, number, percent

NAMES_SHOWN = 3


class HealthAnswer(Enum):
    """Answer of the engine's health route."""

    WELL = auto()
    BROKEN = auto()
    """Another status than 200, or the connection was refused."""
    SILENT = auto()


@dataclass(frozen=True, slots=True)
class EngineSignals:
    """All signals of one engine at one moment. None: not known."""

    at: float
    """Monotonic seconds, as are all times here."""
    held: int
    relayed_at: float | None = None
    """Time of the last byte of any answer of this engine, pings left out; answers that are over count too."""
    health: HealthAnswer | None = None
    answers: bool | None = None
    """Whether the engine's own figures came with this look; None for an engine without figures."""
    running: float | None = None
    waiting: float | None = None
    """Requests that wait in the engine, the deferred ones included."""
    deferred: float | None = None
    """Number of waiting requests that wait for a grammar, or for a KV cache that is fetched."""
    kv_used: float | None = None
    """Share of the KV cache in use, as the engine told it, not rounded."""
    progress: tuple[float | None, ...] = ()
    """Counters of tokens, steps, finished requests and preemptions."""
    prompt_progress: float | None = None
    """Counter of prompt tokens that moves during a prefill, where the engine has one."""
    asleep: bool | None = None
    queue_silent_s: float | None = None
    """Seconds for which llama-server's /slots has been silent while its health route answers."""
    cpu_s: float | None = None
    processes: int | None = None
    stopped: int | None = None
    stopped_names: tuple[str, ...] = ()
    in_kernel: int | None = None
    """Processes that no signal reaches: they wait for the disk, or in a driver that hangs."""
    compilers: tuple[str, ...] = ()
    read_bytes: float | None = None
    power_w: float | None = None
    """Power of the GPU; None also while another engine of the box works."""
    low_w: float | None = None
    """Power below which this GPU computes nothing."""
    utilization: float | None = None
    """Utilization of the GPU, 0..1; None also while another engine of the box works."""
    lag_s: float = 0.0
    """Seconds by which sparkdash itself was late with this look."""

    @property
    def has_work(self) -> bool:
        return self.held > 0 or (self.running or 0) > 0 or (self.waiting or 0) > 0


def describe_signals(look: EngineSignals, cores: float | None, still_s: float, excuse: str) -> str:
    """Describe the signals with their figures. `excuse`: what lengthens the wait for a verdict, empty for nothing."""
    parts = [_requests(look)]
    if look.stopped:
        parts.append(_stopped(look, look.stopped))
    if look.in_kernel:
        parts.append(f"{look.in_kernel} of its processes in the kernel (state D)")
    still = "nothing came" if look.kv_used is None else "no token and no change of the KV cache"
    parts.append(f"{still} for {duration(still_s)}")
    if look.asleep:
        parts.append("the engine is asleep")
    if excuse:
        parts.append(excuse)
    parts += _silences(look)
    if look.power_w is not None:
        parts.append(f"GPU {number(look.power_w, 0, ' W')} at {percent(look.utilization)}")
    if cores is not None:
        parts.append(f"{percent(cores)} CPU")
    return ", ".join(parts)


def _silences(look: EngineSignals) -> list[str]:
    parts = []
    if look.health is HealthAnswer.SILENT:
        parts.append("its health route does not answer")
    elif look.answers is False:
        parts.append("its figures do not come")
    if look.queue_silent_s:
        parts.append(f"its task queue has not answered for {duration(look.queue_silent_s)}")
    return parts


def _stopped(look: EngineSignals, stopped: int) -> str:
    if stopped == look.processes:
        return "its processes are stopped"
    names = ", ".join(look.stopped_names[:NAMES_SHOWN])
    return f"{stopped} of its processes are stopped" + (f" ({names})" if names else "")


def _requests(look: EngineSignals) -> str:
    if not (look.running or look.waiting):  # a hanging engine has old figures, or none
        return f"{counted(look.held, 'request')} on it"
    return f"{number(look.running)} running, {number(look.waiting)} waiting"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Seconds of work without progress."""

    slow_s: float = 30.0
    """Until an engine is called silent. One step of a large batch over a long context takes up to 30 s."""
    stopped_s: float = 60.0
    """Until an engine is stuck whose processes were stopped."""
    voted_s: float = 120.0
    """Until it is stuck where the GPU and the processes look idle too, or where requests wait and none runs."""
    plain_s: float = 300.0
    """Until it is stuck without such a vote."""
    busy_cpu_s: float = 900.0
    """Limit while the CPU works and the GPU does not: kernels compiled in the engine's own process took 10 minutes."""
    compiling_s: float = 1800.0
    blind_s: float = 900.0
    """Limit of an engine that shows nothing but the bytes of its answers: prefills of 335 s were seen."""
    blind_at_work_s: float = 1800.0
    """Limit of such an engine while the GPU computes: an answer that is not streamed shows nothing."""
    young_s: float = 600.0
    """Time after the start in which all limits but `stopped_s` are doubled: first requests compile and tune."""
    recovery_s: float = 120.0
    """Time that an engine is watched once its requests were cancelled: some were free again after 94 to 105 s."""
    gap_s: float = 30.0
    """Longest interval between two looks that counts: beyond it the box slept, or nobody looked."""


@dataclass(frozen=True, slots=True)
class LivenessVerdict:
    """Judgement of one look."""

    state: LivenessState
    why: str
    still_s: float
    limit_s: float
    moved_at: float
    """Time of the last progress, or of the first work since the judge began."""


BUSY_CPU = 0.5
"""Cores in use from which the CPU counts as working: a server that waits for its GPU uses less than 0.1."""
IDLE_CPU = 0.05
BUSY_GPU = 0.5
READS = 1 << 20
"""Bytes read between two looks that count as work: a log file is less."""


class LivenessJudge:
    """Judges one incarnation of an engine, one look after another."""

    def __init__(self, ready_at: float, thresholds: Thresholds | None = None) -> None:
        self._ready_at = ready_at
        self._limits = thresholds or Thresholds()
        self._last: EngineSignals | None = None
        self._known: EngineSignals | None = None
        """Last look in which the engine told its figures."""
        self._moved_at: float | None = None
        self._still_s = 0.0
        self._used = 0.0
        """Share of its time that is used up, each interval measured by the limit of its own signals."""
        self._generates = False
        """Whether the last progress was tokens or bytes, not a prompt."""

    def forget(self) -> None:
        """Begin anew: what was done about the engine has changed what its signals mean."""
        self._last = self._known = self._moved_at = None
        self._still_s = self._used = 0.0

    def see(self, look: EngineSignals) -> LivenessVerdict | None:
        last, self._last = self._last, look
        cores, limit, excuse = self._weigh(look, last)
        self._add_interval(look, last, limit)
        if look.answers:
            self._known = look
        if not look.has_work:
            return None
        if self._moved_at is None or not (self._still_s or (last is not None and last.has_work)):
            self._moved_at = look.at
        state = self._state(look, excuse)
        why = describe_signals(look, cores, self._still_s, excuse) if self._still_s else ""
        return LivenessVerdict(state, why, self._still_s, limit, self._moved_at)

    def _add_interval(self, look: EngineSignals, last: EngineSignals | None, limit: float) -> None:
        """Count the interval since the last look as progress, or as time without."""
        if self._moved(look, last):
            self._moved_at, self._still_s, self._used = look.at, 0.0, 0.0
        elif last is not None and last.has_work and look.has_work:
            interval, gap_s = look.at - last.at, self._limits.gap_s
            counted = 0.0 if interval > gap_s or look.lag_s > gap_s / 2 else interval
            self._still_s += counted
            if not (look.asleep or last.asleep):  # an engine that is woken gets the full limit
                self._used += counted / limit

    def _weigh(self, look: EngineSignals, last: EngineSignals | None) -> tuple[float | None, float, str]:
        """Cores in use, seconds that an engine like this may be without progress, and what excuses it."""
        cores = _rate(look.cpu_s, last.cpu_s if last else None, look.at - last.at if last else 0.0)
        reads = last is not None and (_difference(look.read_bytes, last.read_bytes) or 0.0) >= READS
        return cores, *self._limit(look, cores, reads=reads)

    def _moved(self, look: EngineSignals, last: EngineSignals | None) -> bool:
        if look.relayed_at is not None and last is not None and look.relayed_at != last.relayed_at:
            self._generates = True
            return True
        known = self._known
        return known is not None and bool(look.answers) and self._figures_moved(look, known)

    def _figures_moved(self, look: EngineSignals, known: EngineSignals) -> bool:
        if _changed(look.progress, known.progress):
            self._generates = True
            return True
        if _changed((look.prompt_progress,), (known.prompt_progress,)) or _kv_moved(look, known):
            self._generates = False
            return True
        grew = (_difference(look.running, known.running) or 0.0) > 0
        return grew and not look.progress and look.kv_used is None

    def _state(self, look: EngineSignals, excuse: str) -> LivenessState:
        if self._used > 1.0 - 1e-9 and not look.asleep:
            return LivenessState.STUCK
        if self._still_s < self._limits.slow_s:
            generates = self._generates or not look.has_work
            return LivenessState.BUSY if generates else LivenessState.PREFILL
        if excuse:
            return LivenessState.COMPILING
        return LivenessState.PREFILL if _may_prefill(look) else LivenessState.SILENT

    def _limit(self, look: EngineSignals, cores: float | None, *, reads: bool) -> tuple[float, str]:
        """Seconds until the verdict, and the excuse that lengthened them, if any."""
        limits = self._limits
        if look.stopped and look.stopped > 0:
            return limits.stopped_s, ""
        patience_factor = 2.0 if look.at - self._ready_at < limits.young_s else 1.0
        excuse = _excuse(look, cores, reads=reads)
        if look.compilers:
            return patience_factor * limits.compiling_s, excuse
        return patience_factor * (limits.busy_cpu_s if excuse else self._unexcused_limit(look, cores)), excuse

    def _unexcused_limit(self, look: EngineSignals, cores: float | None) -> float:
        limits = self._limits
        if look.queue_silent_s is not None and look.queue_silent_s >= limits.slow_s:
            return limits.voted_s
        if _waits_only(look) or _idle(look, cores):
            return limits.voted_s
        if look.answers is None:
            return limits.blind_at_work_s if _works(look) else limits.blind_s
        return limits.plain_s


def _excuse(look: EngineSignals, cores: float | None, *, reads: bool) -> str:
    """Say what excuses an engine without progress; empty for nothing."""
    if look.compilers:
        return f"{look.compilers[0]} compiles"
    if cores is not None and cores >= BUSY_CPU and not _gpu_busy(look):
        return "its processes compute on the CPU"
    return "its processes read from storage" if reads else ""


def _changed(now: tuple[float | None, ...], before: tuple[float | None, ...]) -> bool:
    if len(now) != len(before):
        return True
    return any(a is not None and b is not None and a != b for a, b in zip(now, before, strict=True))


def _difference(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before


def _kv_moved(now: EngineSignals, before: EngineSignals) -> bool:
    """Whether the KV cache shows progress. Requests that were aborted give blocks back; that is none."""
    change = _difference(now.kv_used, before.kv_used)
    if not change:
        return False
    aborted = (now.running or 0) < (before.running or 0) or (now.waiting or 0) < (before.waiting or 0)
    return change > 0 or not aborted


def _rate(now: float | None, before: float | None, seconds: float) -> float | None:
    """Cores in use; None also when processes that used CPU time have gone."""
    spent = _difference(now, before)
    return None if spent is None or spent < 0 or seconds <= 0 else spent / seconds


def _works(look: EngineSignals) -> bool:
    return look.power_w is not None and look.low_w is not None and look.power_w >= look.low_w


def _may_prefill(look: EngineSignals) -> bool:
    return _works(look) and ((look.running or 0) > 0 or look.answers is None)


def _gpu_busy(look: EngineSignals) -> bool:
    """Whether the GPU is in use, be it in a kernel that never returns."""
    return _works(look) or (look.utilization is not None and look.utilization >= BUSY_GPU)


def _waits_only(look: EngineSignals) -> bool:
    """Whether requests wait in the engine and none runs, and none waits for a grammar or a fetched KV cache."""
    return look.running == 0 and (look.waiting or 0) - (look.deferred or 0) > 0


def _idle(look: EngineSignals, cores: float | None) -> bool:
    """Whether GPU and processes look idle. On a GPU a hung kernel shows full utilization at low power."""
    if look.power_w is not None and look.low_w is not None:
        return look.power_w < look.low_w
    if cores is None or cores >= IDLE_CPU:
        return False
    if look.utilization is not None:
        return look.utilization < BUSY_GPU
    # steps that are scheduled fill the cache
    return look.answers is True and look.kv_used is not None and (look.running or 0) > 0


SILENT_S = 20.0
"""Time without an answer, or with some processes stopped, after which nothing more is expected of the engine."""
AGAIN_S = 30.0
"""Least time between two short generations that prove that the engine works."""


class RecoveryOutlook(Enum):
    """Prospect of a recovery after one look at the engine, which decides what follows."""

    WAIT = auto()
    TRY = auto()
    """The engine looks free: a short generation shows whether it works."""
    HOPELESS = auto()
    """Waiting longer helps nothing: the engine cannot recover, or its time is up."""


class Recovery:
    """Judges the recovery of one engine after its requests were cancelled. Monotonic seconds."""

    def __init__(self, began: float, thresholds: Thresholds) -> None:
        self._began = began
        self._limit_s = thresholds.recovery_s
        self._judge = LivenessJudge(began, thresholds)
        self._first = True
        self._dumb_since: float | None = None
        """Since when the engine answers nothing, or has stopped processes."""
        self._tried_at: float | None = None
        self._is_last_try = False
        self.why = f"nothing moved for {duration(self._limit_s)}"

    def see(self, look: EngineSignals) -> RecoveryOutlook:
        if self._is_dumb(look):
            return RecoveryOutlook.HOPELESS
        verdict, first = self._judge.see(look), self._first
        self._first = False
        free = verdict is None or (not first and verdict.still_s == 0.0)
        if self._is_over(look.at):
            return self._last_outlook(may_work=free or look.answers is not True)
        lately = self._tried_at is not None and look.at - self._tried_at < AGAIN_S
        waits = self._dumb_since is not None or not free or lately
        return RecoveryOutlook.WAIT if waits else RecoveryOutlook.TRY

    def _last_outlook(self, *, may_work: bool) -> RecoveryOutlook:
        if self._is_last_try or not may_work:
            return RecoveryOutlook.HOPELESS
        self._is_last_try = True
        return RecoveryOutlook.TRY

    def blind(self, at: float) -> RecoveryOutlook:
        """Judge a moment at which the engine could not be looked at."""
        return RecoveryOutlook.HOPELESS if self._is_over(at) else RecoveryOutlook.WAIT

    def tried(self, at: float) -> None:
        self._tried_at = at

    def _is_dumb(self, look: EngineSignals) -> bool:
        stopped = look.stopped or 0
        if not stopped and look.health is not HealthAnswer.SILENT:
            self._dumb_since = None
            return False
        if self._dumb_since is None:
            self._dumb_since = look.at
        if 0 < stopped == look.processes:
            self.why = "its processes are stopped"
            return True
        if look.at - self._dumb_since < SILENT_S:
            return False
        self.why = "some of its processes are stopped" if stopped else "its server does not answer"
        return True

    def _is_over(self, at: float) -> bool:
        return at - self._began >= self._limit_s

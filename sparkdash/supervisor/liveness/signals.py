"""Signals of an engine's liveness, as one look finds them.

Owns: the values that a look gathers, and their words. Must not judge them (`judge` does), nor know how they are
gathered.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from sparkdash.units import duration, number, percent

NAMES_SHOWN = 3


class HealthAnswer(Enum):
    """Answer of the engine's health route."""

    WELL = auto()
    BROKEN = auto()
    """Another status than 200, or the connection was refused."""
    SILENT = auto()
    """No answer in time."""


@dataclass(frozen=True, slots=True)
class EngineSignals:
    """All signals of one engine at one moment. None: not known."""

    at: float
    """Monotonic seconds, as are all times here."""
    held: int
    """Requests that sparkdash has on the engine, less those whose clients take nothing."""
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
    """Seconds for which the engine's task queue has been silent while its health route answers (llama-server's /slots).
    """
    cpu_s: float | None = None
    """CPU time that all its processes have used."""
    processes: int | None = None
    stopped: int | None = None
    """Number of processes that were stopped by a signal, or are frozen with their control group."""
    stopped_names: tuple[str, ...] = ()
    """Names of the stopped processes, each once."""
    in_kernel: int | None = None
    """Number of processes that wait in the kernel, where no signal reaches them: for the disk, or in a driver that
    hangs.
    """
    compilers: tuple[str, ...] = ()
    """Names of compilers among its processes."""
    read_bytes: float | None = None
    """Bytes that its processes have read from storage."""
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
        """Whether the engine holds any request."""
        return self.held > 0 or (self.running or 0) > 0 or (self.waiting or 0) > 0


def describe_signals(look: EngineSignals, cores: float | None, still_s: float, excuse: str) -> str:
    """Describe the signals with their figures. `excuse`: what lengthens the wait for a verdict, empty for nothing."""
    parts = [_requests(look)]
    if look.stopped:
        parts.append(_stopped(look, look.stopped))
    if look.in_kernel:
        parts.append(f"{look.in_kernel} of its processes in the kernel (state D)")
    parts.append(
        f"no token and no change of the KV cache for {duration(still_s)}"
        if look.kv_used is not None
        else f"nothing came for {duration(still_s)}"
    )
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
        return f"{look.held} request{'s' * (look.held != 1)} on it"
    return f"{number(look.running)} running, {number(look.waiting)} waiting"

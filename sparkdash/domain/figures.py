"""Raw figures of an engine and of the GPU, from telemetry to the judgement of liveness.

Owns: both values. Must not know names of metrics, rates, or the meaning of a figure.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """Figures of one incarnation of an engine. None: the engine does not tell. Times are monotonic seconds."""

    answered_at: float | None = None
    """Time of the scrape that gave these figures; None before the first answer."""
    unanswered_since: float | None = None
    """Time of the first scrape without an answer; None once a scrape was answered."""
    running: float | None = None
    waiting: float | None = None
    deferred: float | None = None
    """Waiting requests that wait for a grammar, remote KV or the like, and not for room."""
    kv_used: float | None = None
    """KV cache in use / KV cache, not rounded: the only figure of vLLM that moves during a prefill."""
    asleep: bool | None = None
    """Whether the engine was put to sleep, its weights unloaded."""
    progress: tuple[float | None, ...] = ()
    """Counters of tokens, steps and requests: any change is movement."""
    prompt_progress: float | None = None
    """Counter of prompt tokens; with llama-server and SGLang it moves during a prefill, with vLLM at its end."""
    uses_queue: bool = False
    """Whether the engine answers for its figures in the queue of its own work, as llama-server does."""
    is_live: bool = True
    """Whether the figures move while a request runs. TensorRT-LLM's and Atlas' do so only when one ends."""


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """Last answered reading of the GPU. None: unknown to the driver."""

    looked_at: float
    """Monotonic seconds."""
    name: str | None = None
    power_w: float | None = None
    low_w: float | None = None
    """Power below which this GPU computes nothing."""
    utilization: float | None = None
    """0..1"""

"""Liveness: whether an engine makes progress on the work it holds.

Pure.
"""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.base import Frozen


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
    """Cancel the engine's requests and watch for progress."""
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

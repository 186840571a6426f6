"""Liveness: whether an engine makes progress on the work it holds, as people and programs see it."""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.base import Frozen


class LivenessState(StrEnum):
    """What an engine that holds work is doing."""

    BUSY = "busy"
    """Tokens are generated, or bytes of an answer are relayed."""
    PREFILL = "prefill"
    """Prompts are computed: the KV cache fills, or the GPU works, and no token comes yet."""
    COMPILING = "compiling"
    """The CPU prepares the work: kernels of the first request, or a grammar."""
    SILENT = "silent"
    """Nothing shows progress, and not yet for long enough to call the engine stuck."""
    STUCK = "stuck"
    """Nothing has shown progress for longer than any healthy work takes."""


class RepairStep(StrEnum):
    """What is being done about a stuck engine."""

    WATCH = "watch"
    """It is only told: `on_stuck: tell`, or the engine is not ours."""
    EVIDENCE = "evidence"
    CANCEL = "cancel"
    """Its requests are cancelled, and it is watched whether that frees it."""
    END = "end"
    """It is being ended; the next start follows."""


class Liveness(Frozen):
    """Liveness of one engine. Times are Unix seconds."""

    state: LivenessState
    why: str = ""
    """What was seen, with figures: "1 request running, no token, no KV change, GPU 14 W, 0 % CPU"."""
    since: float
    """Time of the last progress, or of the beginning of the work if there was none since."""
    step: RepairStep | None = None
    step_since: float | None = None

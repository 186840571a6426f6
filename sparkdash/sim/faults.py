"""The zoo: engines that misbehave, by name. A profile requests one with `sim: {fault: dies-loading}`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sparkdash.errors import ProfileError


class Hang(StrEnum):
    """Kinds of hang of a serving engine."""

    PROCESS = "process"
    CORE = "core"
    SPIN = "spin"
    """Current step never ends, at full load."""
    ADMISSION = "admission"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Deviations of an engine; the default has none."""

    stuck_at: float | None = None
    """Share of the load, 0..1, at which loading stops for ever."""
    dies_at: float | None = None
    """Share of the load, 0..1, at which the process dies."""
    only_chat: bool = False
    """OpenAI's chat completions are the only chat protocol."""

    after_tokens: int | None = None
    """Generated tokens of one answer after which the fault begins, unless the profile says when; None: at once."""
    hang: Hang | None = None
    prefill_s: float = 0.0


HEALTHY = Behaviour()

AT_START: dict[str, Behaviour] = {
    # its load stops at half of the weights and says nothing more; the port never answers
    "never-ready": Behaviour(stuck_at=0.33),
    # CUDA runs out of memory at 60 % of the load: vLLM's error lines, exit code 1
    "dies-loading": Behaviour(dies_at=0.6),
    # has neither /v1/responses nor /v1/messages (404), like older engines and TensorRT-LLM; else healthy
    "only-chat": Behaviour(only_chat=True),
}

SERVING: dict[str, Behaviour] = {
    # the whole process stops itself with SIGSTOP: nothing answers, /health neither; SIGCONT heals it
    "frozen": Behaviour(hang=Hang.PROCESS, after_tokens=48),
    # a kernel never ends: every route answers, no figure moves, no byte comes; GPU 96 % at 20 W, no CPU
    "frozen-core": Behaviour(hang=Hang.CORE, after_tokens=48),
    # the same with a core of CPU and the whole GPU at 80 W
    "livelock": Behaviour(hang=Hang.SPIN, after_tokens=48),
    # what runs ends; after it requests wait for ever: running 0, waiting N, KV 0 %, none deferred
    "waiting-only": Behaviour(hang=Hang.ADMISSION, after_tokens=48),
    # healthy, though it looks stuck: every prompt is filled up to the context and takes 20 minutes of prefill (divided
    # by `time_scale`); only KV use moves
    "long-prefill": Behaviour(prefill_s=1200),
}
"""Faults while it serves, at the time that the profile says, else after the tokens that stand here."""

ZOO = AT_START | SERVING


def behaviour(name: str | None) -> Behaviour:
    """Return the fault of that name; a healthy engine for None.

    Raises:
        ProfileError: no fault of that name; lists the known ones.
    """
    if name is None:
        return HEALTHY
    if name not in ZOO:
        hint = f"Faults: {', '.join(ZOO)}."
        raise ProfileError(f"The simulated engine has no fault {name!r}.", code="unknown_fault", hint=hint)
    return ZOO[name]

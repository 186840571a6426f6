"""The zoo: engines that misbehave, by name. A profile requests one with `sim: {fault: dies-loading}`."""

from dataclasses import dataclass

from sparkdash.errors import ProfileError


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Deviations of an engine; the default has none."""

    stuck_at: float | None = None
    """Share of the load, 0..1, at which loading stops for ever."""
    dies_at: float | None = None
    """Share of the load, 0..1, at which the process dies."""
    only_chat: bool = False
    """OpenAI's chat completions are the only chat protocol."""
    prefill_s: float = 0.0
    """Time that the prefill of each prompt takes, which is filled up to the context; 0: as the prompt has it."""


HEALTHY = Behaviour()

ZOO: dict[str, Behaviour] = {
    # its load stops at half of the weights and says nothing more; the port never answers
    "never-ready": Behaviour(stuck_at=0.33),
    # CUDA runs out of memory at 60 % of the load: vLLM's error lines, exit code 1
    "dies-loading": Behaviour(dies_at=0.6),
    # has neither /v1/responses nor /v1/messages (404), like older engines and TensorRT-LLM; else healthy
    "only-chat": Behaviour(only_chat=True),
    # healthy, though it looks stuck: every prompt takes 20 minutes of prefill (divided by `time_scale`), in which only
    # the use of the KV cache moves
    "long-prefill": Behaviour(prefill_s=1200),
}


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

"""The zoo: engines that misbehave, by name. A profile asks for one with `sim: {fault: dies-loading}`.

Owns: what each animal does, as data. Must not know how it is done: the boot, the engine, the app and the process
each read the fields that concern them.

slow              loads, prefills and decodes at a tenth of its speed; otherwise healthy
never-ready       its load stops at half of the weights and says nothing more; the port never answers
dies-loading      CUDA runs out of memory at 60 % of the load: vLLM's error lines, exit code 1
dies-mid-stream   the process is gone, without a word to the client, after 48 tokens of one answer (a warm-up lives)
lies-about-health every probe says 200, every answer is empty
leaks-memory      claims half a GiB more every second, load or not
forks-orphans     its memory sits in a child of its process group that outlives it (for two minutes at most)
wont-stop         ignores SIGTERM and SIGINT; only SIGKILL ends it
port-taken        finds its port in use, as an engine does that starts too early; exit code 1
bad-metrics       /metrics answers 200 with broken lines, NaN, half a histogram and HTML
only-chat         knows neither /v1/responses nor /v1/messages (404), as engines before 2025 and TensorRT-LLM do; otherwise healthy
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkdash.errors import ProfileError


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What an engine does wrong; the default does nothing wrong."""

    speed: float = 1.0
    """Factor on every speed, the load's included."""
    stuck_at: float | None = None
    """Share of the load, 0..1, at which it stops for ever."""
    dies_at: float | None = None
    """Share of the load at which the process dies."""
    dies_after_tokens: int | None = None
    """Generated tokens of one request after which the process dies."""
    empty_answers: bool = False
    leak_gib_s: float = 0.0
    orphan: bool = False
    ignores_signals: bool = False
    port_taken: bool = False
    garbled_metrics: bool = False
    only_chat: bool = False
    """Of the protocols for chats it speaks OpenAI's chat completions alone."""


HEALTHY = Behaviour()

ZOO: dict[str, Behaviour] = {
    "slow": Behaviour(speed=0.1),
    "never-ready": Behaviour(stuck_at=0.33),
    "dies-loading": Behaviour(dies_at=0.6),
    "dies-mid-stream": Behaviour(dies_after_tokens=48),
    "lies-about-health": Behaviour(empty_answers=True),
    "leaks-memory": Behaviour(leak_gib_s=0.5),
    "forks-orphans": Behaviour(orphan=True),
    "wont-stop": Behaviour(ignores_signals=True),
    "port-taken": Behaviour(port_taken=True),
    "bad-metrics": Behaviour(garbled_metrics=True),
    "only-chat": Behaviour(only_chat=True),
}


def behaviour(name: str | None) -> Behaviour:
    """The animal of that name; a healthy engine for None.

    Raises:
        ProfileError: no such animal; names those that there are.
    """
    if name is None:
        return HEALTHY
    if name not in ZOO:
        raise ProfileError(
            f"The simulated engine has no fault {name!r}.",
            code="unknown_fault",
            hint=f"Faults: {', '.join(ZOO)}.",
        )
    return ZOO[name]

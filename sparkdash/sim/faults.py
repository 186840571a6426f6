"""The zoo: engines that misbehave, by name. A profile requests one with `sim: {fault: dies-loading}`.

The boot log, the engine, the app and the process each read the fields that concern them.

From the start:

slow              loads, prefills and decodes at a tenth of its speed; otherwise healthy
never-ready       its load stops at half of the weights and says nothing more; the port never answers
dies-loading      CUDA runs out of memory at 60 % of the load: vLLM's error lines, exit code 1
leaks-memory      claims half a GiB more every second, load or not
forks-orphans     its memory sits in a child of its process group that outlives it (for two minutes at most)
port-taken        finds its port in use, as an engine does that starts too early; exit code 1
only-chat         has neither /v1/responses nor /v1/messages (404), like older engines and TensorRT-LLM; else healthy

While serving, once the fault begins (`fault_after_s`, `fault_after_tokens`, POST /sim/fault):

dies-mid-stream   the process is gone, without a word to the client, after 48 tokens of one answer (a warm-up lives)
lies-about-health every probe says 200, every answer is empty
wont-stop         ignores SIGTERM and SIGINT; only SIGKILL ends it
bad-metrics       /metrics answers 200 with broken lines, NaN, half a histogram and HTML

Stuck, but alive to every probe unless it says otherwise; each begins after 48 tokens of one answer:

frozen            the whole process stops itself with SIGSTOP: nothing answers, /health neither; SIGCONT heals it
frozen-core       a kernel never ends: every route answers, no figure moves, no byte comes; GPU 96 % at 20 W, no CPU
livelock          the same with a core of CPU and the whole GPU at 80 W
waiting-only      what runs ends; after it requests wait for ever: running 0, waiting N, KV 0 %, none deferred
stalls-until-left stands still, GPU idle, until 100 s after its clients have left; then it works as before

Healthy, though it looks stuck:

long-prefill      every prompt is filled up to the context and takes 20 minutes of prefill; only KV use moves
jit-first         the first prompt waits ten minutes for a compiler, a child process named ptxas; GPU idle
grammar           what asks for a response format waits a minute as `deferred`, with nothing running
asleep            after 48 tokens, once nothing runs: sleep gauge weights_offloaded, no requests; POST /wake_up ends it
quiet             writes no line to its log while it serves

The profile's `time_scale` divides all these seconds.
"""

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
    STALL = "stall"
    """Current step ends some time after all requests served at that moment have left."""
    SLEEP = "sleep"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Deviations of an engine; the default has none."""

    speed: float = 1.0
    """Factor on every speed, the load's included."""
    stuck_at: float | None = None
    """Share of the load, 0..1, at which loading stops for ever."""
    dies_at: float | None = None
    """Share of the load at which the process dies."""
    leak_gib_s: float = 0.0
    orphan: bool = False
    port_taken: bool = False
    only_chat: bool = False
    """OpenAI's chat completions are the only chat protocol."""

    after_tokens: int | None = None
    """Generated tokens of one answer after which the fault begins, unless the profile says when; None: at once."""
    dies: bool = False
    empty_answers: bool = False
    ignores_signals: bool = False
    garbled_metrics: bool = False
    hang: Hang | None = None
    recovers_s: float = 0.0
    prefill_s: float = 0.0
    compile_s: float = 0.0
    grammar_s: float = 0.0
    quiet: bool = False


HEALTHY = Behaviour()

AT_START: dict[str, Behaviour] = {
    "slow": Behaviour(speed=0.1),
    "never-ready": Behaviour(stuck_at=0.33),
    "dies-loading": Behaviour(dies_at=0.6),
    "leaks-memory": Behaviour(leak_gib_s=0.5),
    "forks-orphans": Behaviour(orphan=True),
    "port-taken": Behaviour(port_taken=True),
    "only-chat": Behaviour(only_chat=True),
}

SERVING: dict[str, Behaviour] = {
    "dies-mid-stream": Behaviour(dies=True, after_tokens=48),
    "lies-about-health": Behaviour(empty_answers=True),
    "wont-stop": Behaviour(ignores_signals=True),
    "bad-metrics": Behaviour(garbled_metrics=True),
    "frozen": Behaviour(hang=Hang.PROCESS, after_tokens=48),
    "frozen-core": Behaviour(hang=Hang.CORE, after_tokens=48),
    "livelock": Behaviour(hang=Hang.SPIN, after_tokens=48),
    "waiting-only": Behaviour(hang=Hang.ADMISSION, after_tokens=48),
    "stalls-until-left": Behaviour(hang=Hang.STALL, recovers_s=100, after_tokens=48),
    "long-prefill": Behaviour(prefill_s=1200),
    "jit-first": Behaviour(compile_s=600),
    "grammar": Behaviour(grammar_s=60),
    "asleep": Behaviour(hang=Hang.SLEEP, after_tokens=48),
    "quiet": Behaviour(quiet=True),
}

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

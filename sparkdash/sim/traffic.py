"""Traffic of the demo: simulated clients that talk to `auto`, as people's tools do.

The clients never cause a swap, since `auto` means whatever runs. They repeat a failed request later. The User-Agent of
each request begins with "sparkdash-demo/".
"""

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx

from sparkdash.domain.profile import EngineKind, MemoryNeed, Profile, Published, SimSpec, SimSpeed
from sparkdash.engines import registry
from sparkdash.sim.prose import paragraph, seeded_random
from sparkdash.units import GIB

USER_AGENT = "sparkdash-demo/"
BACK_OFF_S = 3.0


@dataclass(frozen=True, slots=True)
class ClientHabit:
    """Behaviour of a kind of client. Sizes in words, times in seconds."""

    client: str
    system: int
    """Size of the first message: an agent's instructions, a repository's map."""
    ask: tuple[int, int]
    think: tuple[float, float]
    """Pause between an answer and the next question."""
    answer: tuple[int, int]
    turns: int


HABITS = (
    ClientHabit("codex", system=3000, ask=(60, 600), think=(1.0, 4.0), answer=(80, 400), turns=14),
    ClientHabit("open-webui", system=60, ask=(10, 60), think=(6.0, 15.0), answer=(200, 700), turns=8),
    ClientHabit("aider", system=1500, ask=(30, 250), think=(4.0, 10.0), answer=(150, 500), turns=10),
)
Sleep = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class Conversation:
    """Growing conversation: every prompt begins with the previous one."""

    habit: ClientHabit
    rng: random.Random
    messages: list[dict[str, str]] = field(default_factory=list)

    def next(self) -> dict[str, object]:
        if len(self.messages) > 2 * self.habit.turns:
            self.messages = []
        if not self.messages:
            rules = f"Session {self.rng.randrange(10**6)}. {paragraph(self.rng, self.habit.system)}"
            self.messages.append({"role": "system", "content": rules})
        self.messages.append({"role": "user", "content": paragraph(self.rng, self.rng.randint(*self.habit.ask))})
        return {
            "model": "auto",
            "messages": self.messages,
            "max_tokens": self.rng.randint(*self.habit.answer),
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def answered(self, text: str) -> None:
        """Store the answer. An empty one removes the question."""
        if text:
            self.messages.append({"role": "assistant", "content": text})
        else:
            self.messages.pop()


class Traffic:
    """Simulated clients of one gateway. `url` is its base with /v1."""

    def __init__(self, url: str, *, habits: tuple[ClientHabit, ...] = HABITS, sleep: Sleep = asyncio.sleep) -> None:
        self._url = url.rstrip("/")
        self._habits = habits
        self._sleep = sleep
        self._running: asyncio.Task[None] | None = None

    def hang_up(self) -> None:
        """Cancel `run`, in the middle of any request."""
        if self._running is not None:
            self._running.cancel()

    async def run(self) -> None:
        self._running = asyncio.current_task()
        async with httpx.AsyncClient(timeout=httpx.Timeout(600, connect=5)) as http, asyncio.TaskGroup() as clients:
            for habit in self._habits:
                clients.create_task(self._client(http, habit), name=f"demo traffic: {habit.client}")

    async def _client(self, http: httpx.AsyncClient, habit: ClientHabit) -> None:
        rng = seeded_random(f"demo/{habit.client}")
        talk = Conversation(habit, rng)
        while True:
            text = await self._ask(http, talk)
            talk.answered(text)
            await self._sleep(rng.uniform(*habit.think) if text else BACK_OFF_S)

    async def _ask(self, http: httpx.AsyncClient, talk: Conversation) -> str:
        """Return the text of one request; empty after a failure."""
        headers = {"user-agent": f"{USER_AGENT}{talk.habit.client}"}
        try:
            async with http.stream("POST", f"{self._url}/chat/completions", json=talk.next(), headers=headers) as reply:
                if reply.status_code != httpx.codes.OK:
                    return ""
                return "".join([_content(line) async for line in reply.aiter_lines()])
        except httpx.HTTPError:
            return ""


def _content(line: str) -> str:
    if not line.startswith("data: {"):
        return ""
    choices = json.loads(line[6:]).get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


DECODE = 40.0
PREFILL_PER_DECODE = 40.0
"""Prefill speed as a multiple of decode speed where none was published; 30 to 50 on boxes that report both."""
FULL_CONTEXT = 0.7, 0.5
"""Decode and prefill speed at full context, as shares of those at an empty one."""
WEIGHTS_GIB, KV_GIB, OVERHEAD_GIB = 20.0, 10.0, 6.5
"""For what a profile leaves open; overhead as owners of a Spark report it (5.4 to 6.7 GiB), the others invented."""
GIB_PER_BILLION = 0.55
"""GiB of four-bit weights per billion parameters, by the number of parameters in a name ("30b")."""
CONTEXT = 32768
KV_CONTEXTS = 4
"""KV cache in full contexts."""
FIRST_ACCEPTANCE = {"mtp": 0.86, "eagle3": 0.74, "eagle": 0.68, "dflash": 0.78, "draft": 0.66, "ngram": 0.45}
"""Chance of the first draft token by method; each later one is FADING of the one before."""
FADING = 0.93
LOAD_S = 5.0
LOAD_S_PER_GIB = 0.08
"""Short enough for a demo, longer for larger ones; a real 120B takes minutes."""

KEPT = (
    "name", "engine_version", "serves", "args", "nodes", "topologies", "request", "modes", "published", "cannot_run",
    "nearest", "source",
)  # fmt: skip
"""Fields that a twin shares with its original; the simulated dialect reads speculation and batch from `args`."""

_DEPTH = re.compile(r"\b(?:ctx|context|depth)\s*[=@:]?\s*(\d+(?:\.\d+)?)\s*(k?)", re.IGNORECASE)
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)b(?![a-z0-9])")
_K = re.compile(r"k\s*=\s*(\d+)")


def simulated_twin(profile: Profile, *, time_scale: float = 1.0, nodes: int = 1) -> Profile:
    """Return `profile` on the simulated engine. A simulated profile only takes the time scale.

    `time_scale` is how many times faster than real everything runs, `nodes` the number of simulated boxes: what lacks
    only boxes can run on them.
    """
    if profile.engine.is_simulated:
        spec = (profile.sim or SimSpec()).replace(time_scale=time_scale)
        return profile.replace(sim=spec)
    adapter = registry.adapter_of(profile)
    context = adapter.context(profile) or CONTEXT
    memory = _memory(profile)
    spec = SimSpec(
        load_s=round(LOAD_S + LOAD_S_PER_GIB * _total(memory), 1),
        speeds=speeds(profile.published, context),
        acceptance=acceptance(adapter.speculation(profile)),
        speculation=adapter.speculation(profile),
        memory_gib=_total(memory),
        kv_tokens=KV_CONTEXTS * context,
        time_scale=time_scale,
    )
    about = f"SIMULATED: {profile.about}" if profile.about else "SIMULATED"
    kept = {name: getattr(profile, name) for name in KEPT}
    if 1 < profile.nodes <= nodes:
        kept |= {"cannot_run": None, "nearest": None}
    return Profile(**kept, engine=EngineKind.SIM, about=about, context=context, memory=memory, sim=spec, gpu=False)


def speeds(published: tuple[Published, ...], context: int) -> tuple[SimSpeed, ...]:
    """Return a point per published context, its best figure each. A single point falls linearly to the full context."""
    decode = _best(published, "decode_tok_s") or _best(published, "e2e_tok_s") or {0: DECODE}
    prefill = _best(published, "prefill_tok_s")
    top = max(decode.values())
    fastest = max(prefill.values(), default=PREFILL_PER_DECODE * top)
    if len(decode) == 1:
        ((start, value),) = decode.items()
        decode = {0: value, max(context, start + 1): value * FULL_CONTEXT[0]}
    return tuple(
        SimSpeed(
            context=depth,
            decode_tok_s=speed,
            prefill_tok_s=fastest * (1.0 - (1.0 - FULL_CONTEXT[1]) * min(1.0, depth / context)),
        )
        for depth, speed in sorted(decode.items())
    )


def acceptance(speculation: str | None) -> tuple[float, ...]:
    """Return a plausible chance per position for "eagle3 k=1" and similar. Invented."""
    if speculation is None:
        return ()
    found = _K.search(speculation)
    first = next((chance for method, chance in FIRST_ACCEPTANCE.items() if method in speculation.lower()), 0.6)
    return tuple(round(first * FADING**position, 3) for position in range(int(found[1]) if found else 1))


def _best(published: tuple[Published, ...], figure: str) -> dict[int, float]:
    best: dict[int, float] = {}
    for row in published:
        value = getattr(row, figure)
        if value:
            found = _DEPTH.search(row.workload)
            depth = int(float(found[1]) * (1024 if found[2] else 1)) if found else 0
            best[depth] = max(value, best.get(depth, 0.0))
    return best


def _memory(profile: Profile) -> MemoryNeed:
    """Return the profile's need with every unknown term invented, so that the demo can plan swaps."""
    need, found = profile.memory, _SIZE.search(profile.name.lower())
    weights = round(float(found[1]) * GIB_PER_BILLION, 1) if found else WEIGHTS_GIB
    return MemoryNeed(
        weights_gib=weights / profile.nodes if need.weights_gib is None else need.weights_gib,
        kv_gib=KV_GIB if need.kv_gib is None else need.kv_gib,
        overhead_gib=OVERHEAD_GIB if need.overhead_gib is None else need.overhead_gib,
        source=f"simulated; known terms from: {need.source}" if need.source else "simulated",
    )


def _total(memory: MemoryNeed) -> float:
    return round((memory.total_bytes or 0) / GIB, 2)

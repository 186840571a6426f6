"""Rehearsal of a shipped profile on the simulated engine.

Owns: how a profile's published figures become a SimSpec. Must not know: how a simulated engine works.
Taken from the profile: name, aliases, args, context, nodes, known memory terms, published decode and prefill speeds.
INVENTED: everything unpublished (prefill, the fall with context, memory terms), acceptance by position, load times.
`about` and the memory's source begin with "simulated".
"""

from __future__ import annotations

import re

from sparkdash.domain.profile import EngineKind, MemoryNeed, Profile, Published, SimSpec, SimSpeed
from sparkdash.engines import registry
from sparkdash.units import GIB

DECODE = 40.0
"""Speed in tok/s of a profile without a published one."""
PREFILL_PER_DECODE = 40.0
"""Prefill speed as a multiple of decode speed where none was published; 30 to 50 on boxes that report both."""
FULL_CONTEXT = 0.7, 0.5
"""Decode and prefill speed at full context, as shares of those at an empty one."""
WEIGHTS_GIB, KV_GIB, OVERHEAD_GIB = 20.0, 10.0, 6.5
"""For what a profile leaves open; overhead as owners of a Spark report it (5.4 to 6.7 GiB), the others invented."""
GIB_PER_BILLION = 0.55
CONTEXT = 32768
KV_CONTEXTS = 4
"""KV cache in full contexts."""
FIRST_ACCEPTANCE = {"mtp": 0.86, "eagle3": 0.74, "eagle": 0.68, "dflash": 0.78, "draft": 0.66, "ngram": 0.45}
"""Chance of the first draft token by method; each later one is FADING of the one before."""
FADING = 0.93
LOAD_S = 5.0
LOAD_S_PER_GIB = 0.08
"""Short enough for a demo, longer for larger ones; a real 120B takes minutes."""

KEPT = ("name", "engine_version", "serves", "args", "nodes", "request", "published", "cannot_run", "nearest", "source")
"""Fields that a twin shares with its original. `args` stay: the simulated dialect reads speculation and batch from
them.
"""

_DEPTH = re.compile(r"\b(?:ctx|context|depth)\s*[=@:]?\s*(\d+(?:\.\d+)?)\s*(k?)", re.IGNORECASE)
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)b(?![a-z0-9])")
_K = re.compile(r"k\s*=\s*(\d+)")


def simulated_twin(profile: Profile, *, time_scale: float = 1.0, nodes: int = 1) -> Profile:
    """Return `profile` on the simulated engine. A simulated profile only takes the time scale.

    `time_scale` is how many times faster than real everything runs, `nodes` the number of simulated boxes: what lacks
    only boxes can run on them.
    """
    if profile.engine is EngineKind.SIM:
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
        SimSpeed(context=depth, decode_tok_s=speed, prefill_tok_s=fastest * _fall(depth, context, FULL_CONTEXT[1]))
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
            depth = _depth(row.workload)
            best[depth] = max(value, best.get(depth, 0.0))
    return best


def _depth(workload: str) -> int:
    """Return the context named in a workload, else 0."""
    found = _DEPTH.search(workload)
    return int(float(found[1]) * (1024 if found[2] else 1)) if found else 0


def _fall(depth: int, context: int, at_full: float) -> float:
    return 1.0 - (1.0 - at_full) * min(1.0, depth / context)


def _memory(profile: Profile) -> MemoryNeed:
    """Return the profile's need with every unknown term invented, so that the demo can plan swaps."""
    need = profile.memory
    return MemoryNeed(
        weights_gib=_weights(profile) / profile.nodes if need.weights_gib is None else need.weights_gib,
        kv_gib=KV_GIB if need.kv_gib is None else need.kv_gib,
        overhead_gib=OVERHEAD_GIB if need.overhead_gib is None else need.overhead_gib,
        source=f"simulated; known terms from: {need.source}" if need.source else "simulated",
    )


def _weights(profile: Profile) -> float:
    """Return the GiB of four-bit weights by the number of parameters in the name ("30b")."""
    found = _SIZE.search(profile.name.lower())
    return round(float(found[1]) * GIB_PER_BILLION, 1) if found else WEIGHTS_GIB


def _total(memory: MemoryNeed) -> float:
    return round((memory.total_bytes or 0) / GIB, 2)

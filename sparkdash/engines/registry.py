"""Adapters by engine kind, and the estimated need of a launch: a sum of terms, each with its source.

The kind's line in `EngineKind` registers the adapter: `sparkdash/engines/KIND` has it as ENGINE, and is loaded late.
Pure.
"""

from dataclasses import replace
from functools import cache
from importlib import import_module

from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.engines.memory_terms import Facts, add_held
from sparkdash.engines.probes import MetricNames
from sparkdash.units import GIB

METRIC_PATHS = ("/prometheus/metrics", "/metrics", "/v1/metrics")
"""Paths of metrics in the order of trying, NVIDIA NIM's last. TensorRT-LLM's /metrics is JSON that a read consumes."""

ATLAS = MetricNames(
    path="/metrics",
    # Its token counters move when a request ends: a rate of them would be a burst after every answer.
    prefix_hits=("atlas_prefix_cache_hit_tokens_total",),
    prefix_queries=("atlas_prompt_tokens_total",),
    running=("atlas_requests_active",),
    verified=("atlas_spec_decode_verify_total",),
    moving=("atlas_requests_total", "atlas_generation_tokens_total", "atlas_spec_decode_verify_total"),
    is_live=False,
    ttft=("atlas_time_to_first_token_seconds",),
    started=(),
)
"""Metrics of Atlas, a described server (`engines/generic`)."""


@cache
def adapter(kind: EngineKind) -> EngineAdapter:
    found: EngineAdapter = import_module(f"sparkdash.engines.{kind.value}").ENGINE
    return found


def adapter_of(profile: Profile) -> EngineAdapter:
    return adapter(profile.engine).of(profile)


def all_adapters() -> tuple[EngineAdapter, ...]:
    return tuple(map(adapter, EngineKind))


def owner_of(owned_by: object) -> EngineAdapter | None:
    """Return the engine whose server writes this `owned_by` into its list of models."""
    return next((one for one in all_adapters() if one.owned_by is not None and one.owned_by == owned_by), None)


def recognise_exposition(path: str, text: str) -> MetricNames | None:
    """Recognise the engine that wrote this exposition; return its names, to be read at `path`, or None."""
    lines = text.split("\n")
    known = ((one.metric_prefix, one.metrics) for one in all_adapters())
    for prefix, names in (*known, ("atlas_", ATLAS)):
        if prefix is not None and any(line.startswith(prefix) for line in lines):
            return replace(names, path=path)
    return None


_ORDER = ("weights", "drafter", "kv", "utilization", "loader", "overhead")


def estimate_launch(profile: Profile, facts: Facts, box_bytes: int | None) -> Need:
    """Estimate the need of one launch on a box of `box_bytes` (None: unknown), term by term, without a peak.

    A declared figure (`memory:`) precedes the computed one.
    """
    adapter, declared = adapter_of(profile), _declared(profile)
    if (fixed := adapter.fixed_need(profile)) is not None:
        return fixed
    computed = {term.name: term for term in adapter.memory_terms(profile, facts, box_bytes)}
    terms = _merged(profile, adapter, computed, declared)
    if not terms or any(term.bytes is None for term in terms):
        return Need(terms=terms)
    is_declared = all(declared.get(term.name) == term for term in terms)
    return Need(basis=Basis.DECLARED if is_declared else Basis.ESTIMATED, terms=terms)


def _merged(
    profile: Profile, adapter: EngineAdapter, computed: dict[str, Term], declared: dict[str, Term]
) -> tuple[Term, ...]:
    body = dict(computed)
    if declared.keys() >= {"weights", "kv"}:  # what it really takes, not the share that it may take
        body.pop("utilization", None)
    # A part of a share is no summand beside it.
    parts = ("weights", "kv") if "utilization" in body else ()
    body |= {name: term for name, term in declared.items() if name not in parts}
    if "utilization" not in body:
        body |= {term.name: term for term in adapter.loader_terms(profile)}
    overhead = adapter.overhead(profile, is_shared="utilization" in body)
    body.setdefault("overhead", add_held(overhead, adapter.memory_beside(profile)))
    return tuple(body[name] for name in _ORDER if name in body)


def _declared(profile: Profile) -> dict[str, Term]:
    memory = profile.memory
    sizes = {"weights": memory.weights_gib, "kv": memory.kv_gib, "overhead": memory.overhead_gib}
    why = f"in the profile: {memory.source or 'no source given'}"
    return {
        name: Term(name=name, bytes=int(size * GIB), source=f"memory.{name}_gib {why}")
        for name, size in sizes.items()
        if size is not None
    }

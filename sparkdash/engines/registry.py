"""Adapters by engine kind.

An engine of kind X is the module or folder `sparkdash/engines/X`, which holds its adapter as ENGINE: the kind's line in
`EngineKind` registers it. It is loaded when it is first asked for, as most programs meet one or two.

Pure.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.engines.probes import MetricNames

METRIC_PATHS = ("/prometheus/metrics", "/metrics", "/v1/metrics")
"""Paths of metrics, in the order of trying. TensorRT-LLM's /metrics is JSON that each read consumes, so it is left to
other readers. The last path is NVIDIA NIM's.
"""

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
    """Return the stateless adapter of an engine kind; of `generic` one that knows no profile."""
    found: EngineAdapter = import_module(f"sparkdash.engines.{kind.value}").ENGINE
    return found


def adapter_of(profile: Profile) -> EngineAdapter:
    """Return the adapter of a profile's engine."""
    return adapter(profile.engine).of(profile)


def all_adapters() -> tuple[EngineAdapter, ...]:
    """Return the adapters of all engine kinds."""
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

"""Recognition of the engine behind a server's metrics.

Owns: the paths of metrics, and the names that identify an engine. Must not know HTTP.
Pure.
"""

from __future__ import annotations

from dataclasses import replace

from sparkdash.engines.adapter import MetricNames
from sparkdash.engines.llamacpp.engine import LlamaCpp
from sparkdash.engines.sglang.engine import Sglang
from sparkdash.engines.trtllm.engine import TrtLlm
from sparkdash.engines.vllm.surface import METRICS as VLLM

PATHS = ("/prometheus/metrics", "/metrics", "/v1/metrics")
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

_BY_PREFIX = {
    "vllm:": VLLM,
    "sglang:": Sglang.metrics,
    "llamacpp:": LlamaCpp.metrics,
    "trtllm_": TrtLlm.metrics,
    "atlas_": ATLAS,
}


def recognise_exposition(path: str, text: str) -> MetricNames | None:
    """Recognise the engine that wrote this exposition; return its names, to be read at `path`, or None."""
    lines = text.split("\n")
    for prefix, names in _BY_PREFIX.items():
        if any(line.startswith(prefix) for line in lines):
            return replace(names, path=path)
    return None

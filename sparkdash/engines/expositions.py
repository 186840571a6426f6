"""Whose figures the metrics of a server are that may be any engine. Pure.

Owns: where such a server may tell figures, and by which names an engine is known. Must not know HTTP.
"""

from __future__ import annotations

from dataclasses import replace

from sparkdash.engines.adapter import MetricNames
from sparkdash.engines.llamacpp import LlamaCpp
from sparkdash.engines.sglang import Sglang
from sparkdash.engines.trtllm import TrtLlm
from sparkdash.engines.vllm_surface import METRICS as VLLM

PATHS = ("/prometheus/metrics", "/metrics", "/v1/metrics")
"""In this order: the /metrics of a TensorRT-LLM is JSON that is gone once read, and is not taken from whoever else reads it. The
last is NVIDIA NIM's."""

ATLAS = MetricNames(
    path="/metrics",
    # Its token counters move when a request ends: a rate of them would be a burst after every answer.
    prefix_hits=("atlas_prefix_cache_hit_tokens_total",),
    prefix_queries=("atlas_prompt_tokens_total",),
    running=("atlas_requests_active",),
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


def recognise(path: str, text: str) -> MetricNames | None:
    """The names of the engine that wrote this exposition, to be read at `path`; None when no known one did."""
    lines = text.split("\n")
    for prefix, names in _BY_PREFIX.items():
        if any(line.startswith(prefix) for line in lines):
            return replace(names, path=path)
    return None

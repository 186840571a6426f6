"""List values of a profile's args, and how each engine's command line writes them.

Owns: the flags that take a list as several words, or once per value; export and import share the table. For any other
flag a list is one JSON word.
Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from sparkdash.domain.profile import EngineKind


class ListArgs(NamedTuple):
    """Flags of one engine that take lists; names with hyphens."""

    several: frozenset[str] = frozenset()
    """Flags whose values follow as words: `--sizes 1 2 4`."""
    repeated: frozenset[str] = frozenset()
    """Flags given once per value: `--middleware a --middleware b`."""


NO_LISTS = ListArgs()

_VLLM = ListArgs(
    several=frozenset(
        {
            "allowed-media-domains", "api-key", "collect-detailed-traces", "cpu-offload-params",
            "cudagraph-capture-sizes", "ignore-patterns", "kv-cache-dtype-skip-layers", "logits-processors",
            "lora-modules",
            "lora-target-modules",
            "numa-bind-cpus", "numa-bind-nodes", "offload-params", "served-model-name",
            "sleep-preserve-parameter-names",
        }
    ),
    repeated=frozenset({"middleware"}),
)  # fmt: skip
"""Every flag with nargs "+", or one that is appended, in the argument parser of vLLM 0.32.0."""

_SGLANG = ListArgs(
    several=frozenset(
        {
            "allowed-media-domains", "bucket-e2e-request-latency", "bucket-inter-token-latency",
            "bucket-time-to-first-token", "cuda-graph-bs", "cuda-graph-bs-decode",
            "cuda-graph-bs-prefill", "custom-weight-loader", "debug-tensor-dump-layers",
            "encoder-register-urls", "encoder-urls", "flashinfer-autotune-skip-ops",
            "gc-threshold", "generation-tokens-buckets", "log-requests-target",
            "lora-target-modules", "numa-node", "piecewise-cuda-graph-tokens",
            "prefill-delayer-forward-passes-buckets", "prefill-delayer-wait-seconds-buckets", "prompt-tokens-buckets",
            "return-aux-hidden-state-layer-ids", "tokenizer-metrics-allowed-custom-labels",
            "uvicorn-access-log-exclude-prefixes",
        }
    )
)  # fmt: skip
"""Every flag with nargs "+" or "*" in the server arguments of SGLang 0.5.3 to 0.5.23."""

_LLAMACPP = ListArgs(
    repeated=frozenset(
        {
            "control-vector", "control-vector-scaled", "lora", "lora-scaled", "override-kv", "override-tensor",
            "override-tensor-draft",
        }
    )
)  # fmt: skip
"""Flags of llama-server that builds up to autumn 2025 take once per value; later ones want commas in one value."""


def list_args_of(kind: EngineKind) -> ListArgs:
    """Return the list flags of an engine kind."""
    known = {EngineKind.VLLM: _VLLM, EngineKind.SGLANG: _SGLANG, EngineKind.LLAMACPP: _LLAMACPP}
    return known.get(kind, NO_LISTS)

"""Lists: what a list among a profile's args becomes on a command line.

Owns: which flags of which engine take a list as words, or once for each value; the way there and the way back are
made from it. What is not listed takes one word, and its list is JSON.
"""

from __future__ import annotations

from typing import NamedTuple

from sparkdash.domain.profile import EngineKind


class ListArgs(NamedTuple):
    """Flags of one engine; names with hyphens."""

    several: frozenset[str] = frozenset()
    """Their values follow as words: `--sizes 1 2 4`."""
    repeated: frozenset[str] = frozenset()
    """Given once for each value: `--middleware a --middleware b`."""


NO_LISTS = ListArgs()

_VLLM = ListArgs(
    several=frozenset(
        {
            "allowed-media-domains", "api-key", "collect-detailed-traces", "cpu-offload-params", "cudagraph-capture-sizes",
            "ignore-patterns", "kv-cache-dtype-skip-layers", "logits-processors", "lora-modules", "lora-target-modules",
            "numa-bind-cpus", "numa-bind-nodes", "offload-params", "served-model-name", "sleep-preserve-parameter-names",
        }
    ),
    repeated=frozenset({"middleware"}),
)  # fmt: skip
"""Every flag with nargs "+", or one that is appended, in the argument parser of vLLM 0.32.0."""

_SGLANG = ListArgs(several=frozenset({"cuda-graph-bs", "uvicorn-access-log-exclude-prefixes"}))
"""Flags as SGLang's own tests and help write them; its parser was not read whole."""


def list_args_of(kind: EngineKind) -> ListArgs:
    """The flags of that engine."""
    return {EngineKind.VLLM: _VLLM, EngineKind.SGLANG: _SGLANG}.get(kind, NO_LISTS)

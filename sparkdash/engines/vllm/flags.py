"""vLLM flags that common recipes have and a version refuses, with their replacements.

Read in the argument parsers of the wheels 0.16.0 0.17.0 0.18.0 0.19.0 0.20.0 0.22.1 0.26.0 0.29.0 0.33.0. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparkdash.domain.profile import Profile
from sparkdash.engines.argv import ListArgs, lookup, version_pair
from sparkdash.errors import ProfileError

NEVER = ("speculative-model", "speculative-method", "num-speculative-tokens")
"""Flags of no version since 0.16, yet common in recipes: speculation is one JSON value."""

LAST_WITHOUT = {
    "moe-backend": (0, 16), "performance-mode": (0, 16), "linear-backend": (0, 20), "spec-method": (0, 20),
    "spec-model": (0, 20), "spec-tokens": (0, 20),
}  # fmt: skip
"""Newest checked version without the flag."""

FIRST_WITHOUT = {"swap-space": (0, 18), "calculate-kv-scales": (0, 29)}
"""Oldest checked version that dropped the flag."""

SHORT = {
    "tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size",
    "sc": "speculative-config", "cc": "compilation-config", "ac": "attention-config", "q": "quantization",
    "n": "nnodes", "r": "node-rank", "ep": "enable-expert-parallel", "dcp": "decode-context-parallel-size",
    "pcp": "prefill-context-parallel-size", "dpn": "data-parallel-rank", "dpr": "data-parallel-start-rank",
    "dpl": "data-parallel-size-local", "dpa": "data-parallel-address", "dpp": "data-parallel-rpc-port",
    "dpb": "data-parallel-backend", "dph": "data-parallel-hybrid-lb", "dpe": "data-parallel-external-lb",
    "asc": "api-server-count", "O": "optimization-level",
}  # fmt: skip
"""Short flags of the argument parser of vLLM 0.32.0."""
OLD_SPECULATION = {
    "speculative-model": "model",
    "speculative-method": "method",
    "num-speculative-tokens": "num_speculative_tokens",
    "speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "speculative-max-model-len": "max_model_len",
}
"""Flags of old recipes, and their keys in --speculative-config."""

LISTS = ListArgs(
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


def too_new(profile: Profile) -> list[str]:
    found = version_pair(profile.engine_version)
    return _given(profile, (name for name, last in LAST_WITHOUT.items() if found and found <= last))


def removed(profile: Profile) -> list[str]:
    found = version_pair(profile.engine_version)
    return _given(profile, (name for name, first in FIRST_WITHOUT.items() if found and found >= first))


def never_known(profile: Profile) -> list[str]:
    return _given(profile, NEVER)


def refuse_known_bad(profile: Profile) -> None:
    """Refuse a command line that vLLM would refuse, by a ProfileError with the rewrite."""
    if wrong := never_known(profile):
        raise ProfileError(
            f"Profile {profile.name} uses {', '.join(wrong)}, which vLLM does not have.",
            code="unknown_flag",
            hint=f"Write `{rewrite(profile)}`.",
        )
    if wrong := [*too_new(profile), *removed(profile)]:
        raise ProfileError(
            f"Profile {profile.name} uses {', '.join(wrong)}, which vLLM {profile.engine_version} does not have.",
            code="unknown_flag",
            hint="Remove it, or correct `engine_version` if the image holds another one.",
        )


def is_quiet(profile: Profile) -> bool:
    """Whether this vLLM can leave paths out of its access log: from 0.17 on.

    Some builds named 0.16 are older than the flag (vLLM PR #30011).
    """
    return (version_pair(profile.engine_version) or (0, 0)) > (0, 16)


def rewrite(profile: Profile) -> str:
    """Rewrite the NEVER flags of the profile as the one argument that replaces them."""
    method = lookup(profile.args, "speculative-method") or "…"
    model = lookup(profile.args, "speculative-model")
    depth = lookup(profile.args, "num-speculative-tokens") or "…"
    drafter = f'model: "{model}", ' if model else ""
    return f"speculative-config: {{method: {method}, {drafter}num_speculative_tokens: {depth}}}"


def _given(profile: Profile, names: Iterable[str]) -> list[str]:
    return [name for name in names if lookup(profile.args, name) is not None]

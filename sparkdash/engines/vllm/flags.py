"""vLLM flags of old recipes with their replacements. Pure."""

from __future__ import annotations

from sparkdash.domain.profile import Profile
from sparkdash.engines.argv import lookup, version_pair

NEVER = ("speculative-model", "speculative-method", "num-speculative-tokens")
"""Flags of no version since 0.16, yet common in recipes: speculation is one JSON value."""

OLD_SPECULATION = {
    "speculative-model": "model",
    "speculative-method": "method",
    "num-speculative-tokens": "num_speculative_tokens",
    "speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "speculative-max-model-len": "max_model_len",
}
"""Flags of old recipes, and their keys in --speculative-config."""


def never_known(profile: Profile) -> list[str]:
    return [name for name in NEVER if lookup(profile.args, name) is not None]


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

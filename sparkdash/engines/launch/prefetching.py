"""Detection of launches that fill the page cache with their weights before they read them.

Owns: the flags that cause it. Must not know the page cache.
Pure.
"""

from __future__ import annotations

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.launch.argv import lookup


def fills_cache(profile: Profile) -> bool:
    """Whether the launch prefetches: vLLM's --safetensors-load-strategy=prefetch (weight_utils.py, 0.32)."""
    return profile.engine is EngineKind.VLLM and lookup(profile.args, "safetensors-load-strategy") == "prefetch"

"""Whether a launch fills the page cache with its weights before it reads them.

Owns: the flags that ask for it. Must not know the page cache.
"""

from __future__ import annotations

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.launch.argv import lookup


def fills_cache(profile: Profile) -> bool:
    """Whether what was read once is read again from memory: vLLM's --safetensors-load-strategy=prefetch (weight_utils.py, 0.32)."""
    return profile.engine is EngineKind.VLLM and lookup(profile.args, "safetensors-load-strategy") == "prefetch"

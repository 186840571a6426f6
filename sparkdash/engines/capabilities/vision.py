"""Image input: whether a launch reads images, by its command line and its weights.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from sparkdash.domain.profile import ArgValue, EngineKind, Profile
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.launch.argv import lookup

_MUST_BE_ASKED = frozenset({"gemma3", "llama4", "step3_vl", "inkling"})
"""Models whose vision SGLang leaves out unless `--enable-multimodal` asks for it (its `mm_disabled_models`, 2026)."""
_TOWER = ("mmproj", "mmproj-url")
"""llama.cpp's flags for a separate vision tower. A tower that llama.cpp fetches itself comes with the model."""


def reads_images(profile: Profile, target: WeightFacts | None) -> bool | None:
    """Whether the launch reads images; None while unknown. `target`: facts about the target model's weights."""
    args = profile.args
    if profile.engine is EngineKind.LLAMACPP:
        return _llamacpp(args)
    if target is None:
        return None
    if profile.engine is EngineKind.VLLM:
        return target.sees and not lookup(args, "language-model-only") and _image_limit(args) != 0
    if profile.engine is EngineKind.SGLANG:
        asked = lookup(args, "enable-multimodal")
        return target.sees and bool(asked if asked is not None else target.architecture not in _MUST_BE_ASKED)
    return None


def _llamacpp(args: Mapping[str, ArgValue]) -> bool | None:
    """Whether a llama-server has a vision tower; None when it fetches the model itself."""
    if lookup(args, "no-mmproj"):
        return False
    return bool(lookup(args, *_TOWER)) or (None if lookup(args, "hf-repo") else False)


def _image_limit(args: Mapping[str, ArgValue]) -> object:
    """Return vLLM's limit of images per prompt: the flag itself, or one of the image options."""
    if (alone := lookup(args, "limit-mm-per-prompt.image")) is not None:
        return alone
    limits = lookup(args, "limit-mm-per-prompt")
    if isinstance(limits, str):
        try:
            limits = json.loads(limits)
        except ValueError:
            return None
    limit = limits.get("image") if isinstance(limits, dict) else None
    return limit.get("count") if isinstance(limit, dict) else limit

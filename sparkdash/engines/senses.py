"""Senses: whether a launch reads pictures, by its command line and its weights. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sparkdash.domain.profile import ArgValue, EngineKind, Profile
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.argv import lookup

_BY_WEIGHTS = frozenset({EngineKind.VLLM, EngineKind.SGLANG})
_TOWER = ("mmproj", "mmproj-url")
"""llama.cpp keeps the vision tower in a file of its own, and these name it; one that it fetches itself comes with the model."""


def sees(profile: Profile, target: WeightFacts | None) -> bool | None:
    """Does it read pictures? None is not known. `target`: what is known of the target model's weights."""
    args = profile.args
    if profile.engine is EngineKind.LLAMACPP:
        if lookup(args, "no-mmproj"):
            return False
        return bool(lookup(args, *_TOWER)) or (None if lookup(args, "hf-repo") else False)
    if profile.engine not in _BY_WEIGHTS or target is None:
        return None
    return target.sees and not lookup(args, "language-model-only") and _image_limit(args) != 0


def _image_limit(args: Mapping[str, ArgValue]) -> object:
    """vLLM's limit of pictures per prompt, where one is set."""
    limits = lookup(args, "limit-mm-per-prompt")
    if isinstance(limits, str):
        try:
            limits = json.loads(limits)
        except ValueError:
            return None
    return limits.get("image") if isinstance(limits, dict) else None

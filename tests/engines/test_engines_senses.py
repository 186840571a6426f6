"""Launches that read pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkdash.domain.profile import Profile
from sparkdash.domain.weights import WeightBytes, WeightFacts
from sparkdash.engines.registry import adapter_of

EYES = WeightFacts(origin="here", format="safetensors", bytes=WeightBytes(), sees=True)
GEMMA = EYES.model_copy(update={"architecture": "gemma3"})
BLIND = EYES.model_copy(update={"sees": False})


@pytest.mark.parametrize(("fields", "target", "expected"), [
    ({}, EYES, True), ({"engine": "sglang"}, EYES, True), ({}, BLIND, False), ({}, None, None),
    ({"args": {"language-model-only": True}}, EYES, False),
    ({"args": {"limit_mm_per_prompt": {"image": 0, "video": 0}}}, EYES, False),
    ({"args": {"limit-mm-per-prompt": '{"image": 0}'}}, EYES, False),
    ({"args": {"limit-mm-per-prompt": {"image": 4}}}, EYES, True),
    ({"args": {"limit-mm-per-prompt": "image=4"}}, EYES, True),
    ({"args": {"limit-mm-per-prompt": {"image": {"count": 0}}}}, EYES, False),
    ({"args": {"limit-mm-per-prompt.image": 0}}, EYES, False),
    ({"engine": "sglang", "args": {"enable-multimodal": False}}, EYES, False), ({"engine": "sglang"}, GEMMA, False),
    ({"engine": "sglang", "args": {"enable_multimodal": True}}, GEMMA, True), ({}, GEMMA, True),
    ({"engine": "llamacpp", "args": {"mmproj": "/models/mmproj.gguf"}}, None, True),
    ({"engine": "llamacpp", "args": {"mmproj": "/models/mmproj.gguf", "no-mmproj": True}}, None, False),
    ({"engine": "llamacpp"}, BLIND, False), ({"engine": "llamacpp", "args": {"hf-repo": "owner/model"}}, None, None),
    ({"engine": "openai", "url": "http://127.0.0.1:1", "image": None, "models": {}}, None, None),
])  # fmt: skip
def test_by_its_weights_and_its_command_line(
    profile: Callable[..., Profile], fields: dict[str, Any], target: WeightFacts | None, expected: bool | None
) -> None:
    """Flags may leave out what the weights have; None where nobody read the weights."""
    made = profile(**fields)
    assert adapter_of(made).reads_images(made, target) is expected

"""Speculation of Atlas and LuceBox, read from a profile's flags."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.registry import adapter_of


@pytest.mark.parametrize(("kind", "args", "told"), [
    ("atlas", {"speculative": True, "mtp-quantization": "bf16", "num-drafts": 2}, "mtp k=2"),
    ("atlas", {"speculative": True}, "speculative"),
    ("atlas", {"self-speculative": True}, "self-speculative"),
    ("atlas", {"dflash": True, "draft-model": "/d", "dflash-gamma": 4}, "dflash k=4"),
    ("atlas", {"max-seq-len": 8192}, None),
    ("lucebox", {"draft": "/d", "ddtree": True, "ddtree-budget": 22}, "ddtree budget=22"),
    ("lucebox", {"draft": "/d"}, "dflash"),
    ("lucebox", {}, None),
    (None, {"speculative": True}, None),
], ids=str)  # fmt: skip
def test_it_is_told_as_the_flags_say(kind: str | None, args: dict[str, Any], told: str | None) -> None:
    server = {"kind": kind} if kind else {"routes": ["chat"]}
    made = {"name": "x", "engine": "generic", "image": "i", "command": ["x"], "server": server, "args": args}
    profile = Profile.model_validate(made)
    assert profile.engine is EngineKind.GENERIC
    assert adapter_of(profile).speculation(profile) == told

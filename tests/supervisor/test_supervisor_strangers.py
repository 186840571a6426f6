"""Containers that are not ours: who is shown as one."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.container import LABEL_OWNER, LABEL_PROFILE, ContainerInfo, ContainerState, Stranger
from sparkdash.settings import Settings
from sparkdash.supervisor.swap.adopt import as_stranger

SETTINGS = Settings(port=8484, engine_ports=(18000, 18999))


def container(**facts: Any) -> ContainerInfo:
    return ContainerInfo(**{"id": "1", "name": "comfy", "image": "comfyui:1", "state": ContainerState.RUNNING, **facts})


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"gpu": True}, Stranger(name="comfy", image="comfyui:1", gpu=True)),
        ({"labels": {LABEL_PROFILE: "a", LABEL_OWNER: "other"}}, Stranger(name="comfy", image="comfyui:1")),
        ({"ports": (80, 8484, 18999)}, Stranger(name="comfy", image="comfyui:1", ports=(8484, 18999))),
        ({"ports": (80,)}, None),
        ({"gpu": True, "state": ContainerState.EXITED}, None),
        ({"gpu": True, "labels": {LABEL_OWNER: "me"}}, None),
    ],
)
def test_who_takes_of_what_our_engines_need(facts: dict[str, Any], shown: Stranger | None) -> None:
    """A GPU, another sparkdash's memory, a port that is ours to give; one that has ended takes nothing."""
    assert as_stranger(container(**facts), "me", SETTINGS) == shown

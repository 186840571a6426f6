"""Profiles, launches and recorded logs for the dialects' tests."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.node import Link, NodeLaunch
from sparkdash.domain.profile import Profile
from sparkdash.engines.containers import LaunchContext

HEAD = NodeLaunch(
    name="local",
    address="192.168.100.10",
    hf_home="/home/owner/.cache/huggingface",
    cache_dir="/home/owner/.cache/sparkdash",
    link=Link(interface="enp1s0f1np1", hca="rocep1s0f1", gid_index=3),
)
WORKER = NodeLaunch(
    name="spark2",
    address="192.168.100.11",
    hf_home="/home/two/.cache/huggingface",
    cache_dir="/home/two/.cache/sparkdash",
    link=Link(interface="enP2p1s0f1np1", hca="roceP2p1s0f1", gid_index=5),
)
LOGS = Path(__file__).parents[1] / "data" / "engine-logs"


@pytest.fixture
def launch() -> LaunchContext:
    """A container on port 18000, on an owner's box."""
    return LaunchContext(
        port=18000,
        containerised=True,
        hf_home="/home/owner/.cache/huggingface",
        cache_dir="/home/owner/.cache/sparkdash",
        labels={"sparkdash.owner": "cafe"},
    )


@pytest.fixture
def pair(launch: LaunchContext) -> LaunchContext:
    """A launch on two nodes with a free port for their meeting."""
    return replace(launch, nodes=(HEAD, WORKER), master_port=29600)


@pytest.fixture
def bare() -> LaunchContext:
    return LaunchContext(port=18000, containerised=False, hf_home="/home/owner/hf", cache_dir="/home/owner/cache")


@pytest.fixture
def profile() -> Callable[..., Profile]:
    """A small profile; keyword arguments replace its fields."""

    def make(**fields: Any) -> Profile:
        base = {
            "name": "tiny",
            "engine": "vllm",
            "image": "localhost/tiny",
            "models": {"target": {"path": "/models/tiny"}},
        }
        return Profile.model_validate(base | fields)

    return make


@pytest.fixture
def recorded() -> Callable[[str], list[str]]:
    """The lines of a recorded log, split as a runtime splits them."""

    def read(name: str) -> list[str]:
        return [line for line in re.split(r"[\r\n]+", (LOGS / name).read_text()) if line]

    return read

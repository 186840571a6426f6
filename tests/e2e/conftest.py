"""Profiles whose engine is the tiny stand-in."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog import yaml12

HERE = Path(__file__).parent


def profile(name: str, **more: Any) -> str:
    """The YAML of a profile whose engine is a process of this box; `more` are keys of it."""
    base = {
        "profile": name,
        "about": "the tests' stand-in engine",
        "engine": "vllm",
        "command": [os.path.realpath(sys.executable), str(HERE / "tiny_engine.py")],
        "gpu": False,
        "models": {"target": {"path": str(HERE)}},
        "args": {"max-model-len": 4096},
    }
    return yaml12.dump(base | more)


@pytest.fixture(scope="session")
def tiny_process() -> Callable[..., str]:
    return profile


@pytest.fixture(scope="session")
def tiny(hostfs: Any) -> Callable[..., str]:
    """`tiny(name, flag=True, …)` -> the YAML of a profile of that name, for a container."""

    def make(name: str, *, image: str | None = None, more: dict[str, Any] | None = None, **args: Any) -> str:
        image, mounts = image or hostfs.image, hostfs.mounts(HERE)
        return profile(name, image=image, mounts=mounts, args={"max-model-len": 4096, **args}, **(more or {}))

    return make

"""Profiles whose engine is the tiny stand-in, in real containers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog import yaml12

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def tiny(hostfs: Any) -> Any:
    """`tiny(name, flag=True, …)` -> the YAML of a profile of that name."""
    python = os.path.realpath(sys.executable)

    def make(name: str, *, image: str | None = None, **args: Any) -> str:
        profile = {
            "profile": name,
            "about": "the tests' stand-in engine",
            "engine": "vllm",
            "image": image or hostfs.image,
            "command": [python, str(HERE / "tiny_engine.py")],
            "gpu": False,
            "models": {"target": {"path": str(HERE)}},
            "mounts": hostfs.mounts(HERE),
            "args": {"max-model-len": 4096, **args},
        }
        return yaml12.dump(profile)

    return make

"""Folder in which the real vLLMs of the tests keep compiled code from one load to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def kept_cache(engine: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Variables and a mount of a profile, for what each load would find out and compile anew in ten seconds.

    vLLM asks a process of its own about the model's class, and torch compiles some of the sampling. The folder lies
    beside the engine that tests/real/setup.sh made.
    """
    folder = engine / "cache"
    folder.mkdir(exist_ok=True)
    variables = {"VLLM_CACHE_ROOT": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder / "torchinductor")}
    return variables, {"source": str(folder), "target": str(folder), "read_only": False}

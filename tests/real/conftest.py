"""A real vLLM in real podman: an image made on the spot, and two profiles of one tiny model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog import yaml_writer

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def engine() -> Path:
    """Where tests/real/setup.sh put the engine and the model."""
    link = HERE / ".engine"
    if not (link / ".done").exists():
        pytest.skip("no real vLLM: run tests/real/setup.sh")
    return link.resolve()


@pytest.fixture(scope="session")
def tiny_profile(engine: Path, hostfs: Any) -> str:
    """YAML of the profile `tiny` (plain) with the variant `ngram` (speculation by prompt lookup)."""
    python = Path(os.path.realpath(engine / "venv/bin/python")).parents[1]
    profile: dict[str, Any] = {
        "profile": "tiny",
        "about": "a quarter of a million random parameters, for tests",
        "engine": "vllm",
        "engine_version": "0.32",
        "image": hostfs.image,
        "command": [str(engine / "venv/bin/vllm"), "serve"],
        "gpu": False,
        "models": {"target": {"path": str(engine / "tiny-qwen3")}},
        "serves": ["tiny-plain"],
        "mounts": hostfs.mounts(engine, python),
        "tmpfs": ["/scratch"],
        "shm_size": "256m",
        "env": {
            "HOME": "/scratch",
            "TMPDIR": "/scratch",
            "XDG_CACHE_HOME": "/scratch",
            "HF_HOME": "/scratch/hf",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_NUM_THREADS": "1",
        },
        "args": {"max-model-len": 4096, "max-num-seqs": 8, "enforce-eager": True, "block-size": 32},
        "memory": {"weights_gib": 0.1, "kv_gib": 1, "overhead_gib": 2, "source": "measured: 1.4-2.6 GiB in all"},
        "variants": {
            "ngram": {
                "args": {"speculative-config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}}
            }
        },
    }
    target = engine / "tiny.yaml"
    target.write_text(yaml_writer.dump(profile))
    return target.read_text()


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], tiny_profile: str) -> Iterator[Any]:
    """A daemon on real podman that knows the tiny profile."""
    daemon = new_daemon(runtime="podman", reserve_gib=1.0, stop_grace_s=20)
    daemon.write("tiny", tiny_profile)
    return daemon.start()

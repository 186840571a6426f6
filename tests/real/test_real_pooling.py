"""A real vLLM that only embeds: it is proven by an embedding, as it has no chat to be asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_profiles
import yaml

from sparkdash.catalog import yaml12

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.podman, pytest.mark.timeout(420)]


def test_a_vllm_that_only_embeds_loads_and_answers(new_daemon: Callable[..., Any], engine: Path, hostfs: Any) -> None:
    daemon = new_daemon(runtime="podman", reserve_gib=1.0, stop_grace_s=20)
    profile = yaml.safe_load(tiny_profiles.document(engine, hostfs, "tiny-vectors"))
    profile["args"] = {
        "runner": "pooling", "convert": "embed", "max-model-len": 512, "enforce-eager": True,
        "dtype": "float32",  # why: tests/shared/vllm_cache.py
        "distributed-executor-backend": tiny_profiles.IN_CORE,
    }  # fmt: skip
    daemon.write("tiny-vectors", yaml12.dump({**profile, "variants": {}}))
    daemon.start()
    status, answer = daemon.call("POST", "/v1/embeddings", {"model": "tiny-vectors", "input": "one"}, timeout=400)
    assert status == 200, answer
    assert any(answer["data"][0]["embedding"])

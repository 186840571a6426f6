"""The names that telemetry is told to look for exist in what the engines really expose."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from sparkdash.domain.profile import EngineKind
from sparkdash.engines.registry import adapter

NAMES = Path(__file__).parents[1] / "data" / "metric-names"
PATHS = ("path", "slots")


@pytest.mark.parametrize(
    ("kind", "sample", "gone"),
    [
        ("vllm", "vllm-0.32.0", set()),
        ("sim", "vllm-0.32.0", set()),
        ("vllm", "vllm-0.16.0", set()),
        ("sglang", "sglang-0.5.23", set()),
        # The ratio was removed in May 2025.
        ("llamacpp", "llamacpp-0c1e57098", {"kv_used"}),
        ("trtllm", "trtllm-main", set()),
    ],
)
def test_the_first_present_candidate_exists_in_recorded_expositions(kind: str, sample: str, gone: set[str]) -> None:
    """Every entry that has candidates finds one of them, apart from the ones known to be gone."""
    exposed = set((NAMES / f"{sample}.txt").read_text().split())
    exposed |= {name.removesuffix("_bucket") for name in exposed}
    metrics = asdict(adapter(EngineKind(kind)).metrics)
    wanted = {key: names for key, names in metrics.items() if names and key not in PATHS and not key.endswith("_label")}
    assert {key for key, names in wanted.items() if not exposed & set(names)} == gone


def test_a_server_at_a_url_has_no_metrics() -> None:
    """Nothing is scraped and nothing looked for."""
    assert adapter(EngineKind.OPENAI).metrics.path is None


def test_liveness_of_sglang_never_generates() -> None:
    """Its /health runs a token through the model at each call."""
    assert adapter(EngineKind.SGLANG).probes.alive == "/v1/models"

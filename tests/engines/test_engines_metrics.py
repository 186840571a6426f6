"""The names that telemetry is told to look for exist in what the engines really expose."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sparkdash.domain.profile import EngineKind
from sparkdash.engines.registry import adapter, recognise_exposition

NAMES = Path(__file__).parents[1] / "data" / "metric-names"
NO_NAMES = ("path", "copies", "slots", "recognised", "is_live", "health")


@pytest.mark.parametrize(
    ("kind", "sample", "gone"),
    [
        ("vllm", "vllm-0.32.0", set()),
        ("sim", "vllm-0.32.0", set()),
        # Waiting requests are split by reason since 0.20.
        ("vllm", "vllm-0.16.0", {"deferred"}),
        ("sglang", "sglang-0.5.23", set()),
        # The ratio was removed in May 2025.
        ("llamacpp", "llamacpp-0c1e57098", {"kv_used"}),
        ("trtllm", "trtllm-main", set()),
        # Left out where the server does not count them, and read, not run.
        ("tensorfold", "tensorfold-main", set()),
    ],
)
def test_the_first_present_candidate_exists_in_recorded_expositions(kind: str, sample: str, gone: set[str]) -> None:
    """Every entry that has candidates finds one of them, apart from the ones known to be gone."""
    exposed = set((NAMES / f"{sample}.txt").read_text().split())
    exposed |= {name.removesuffix("_bucket") for name in exposed}
    metrics = asdict(adapter(EngineKind(kind)).metrics)
    wanted = {
        key: names for key, names in metrics.items() if names and key not in NO_NAMES and not key.endswith("_label")
    }
    assert {key for key, names in wanted.items() if not exposed & set(names)} == gone


@pytest.mark.parametrize(("kind", "sample"), [
    ("vllm", "vllm-0.32.0"), ("sglang", "sglang-0.5.23"), ("llamacpp", "llamacpp-0c1e57098"), ("trtllm", "trtllm-main"),
    ("tensorfold", "tensorfold-main"),
])  # fmt: skip
def test_a_server_that_is_not_ours_is_known_by_its_names(kind: str, sample: str) -> None:
    """The exposition of each engine is read by its own names, at the path where it was found."""
    text = "\n".join(f"{name} 1" for name in (NAMES / f"{sample}.txt").read_text().split())
    assert adapter(EngineKind.OPENAI).metrics.recognised is False
    names = recognise_exposition("/v1/metrics", f"# HELP something\n{text}\n")
    assert names == replace(adapter(EngineKind(kind)).metrics, path="/v1/metrics")


@pytest.mark.parametrize("text", ["", "process_start_time_seconds 1\nte_request_count 7", '[{"iter": 1}]', "<html>"])
def test_figures_of_an_unknown_server_are_nobodys(text: str) -> None:
    assert recognise_exposition("/metrics", text) is None


def test_liveness_of_sglang_never_generates() -> None:
    """SGLang's /health runs a token through the model at each call."""
    assert adapter(EngineKind.SGLANG).probes.alive == "/v1/models"

"""What an engine exposes and can be asked for: names of its figures, tasks, and whether it reads pictures."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.request import Task
from sparkdash.domain.weights import WeightBytes, WeightFacts
from sparkdash.engines.registry import adapter, adapter_of, recognise_exposition

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


E = EngineKind


@pytest.mark.parametrize(("kind", "args", "tasks"), [
    (E.VLLM, {}, None), (E.VLLM, {"runner": "pooling"}, {Task.EMBED, Task.RERANK}),
    (E.VLLM, {"convert": "embed"}, {Task.EMBED, Task.RERANK}), (E.VLLM, {"task": "score"}, {Task.EMBED, Task.RERANK}),
    (E.VLLM, {"runner": "generate"}, None), (E.SGLANG, {"is-embedding": True}, {Task.EMBED, Task.RERANK}),
    (E.SGLANG, {}, None), (E.LLAMACPP, {}, {Task.GENERATE}), (E.LLAMACPP, {"embeddings": True}, {Task.EMBED}),
    (E.LLAMACPP, {"reranking": True}, {Task.EMBED, Task.RERANK}), (E.OPENAI, {}, None),
])  # fmt: skip
def test_the_command_line_tells_what_it_can_be_asked_for(
    kind: EngineKind, args: dict[str, Any], tasks: set[Task] | None
) -> None:
    assert adapter(kind).tasks(Profile(name="p", engine=kind, args=args), None) == tasks


@pytest.mark.parametrize(("kind", "tasks"), [("xlm-roberta", {Task.EMBED, Task.RERANK}), ("qwen3", None)])
def test_a_model_that_only_reads_writes_nothing(kind: str, tasks: set[Task] | None) -> None:
    """vLLM finds that out by itself, and so needs no flag."""
    facts = WeightFacts.model_construct(architecture=kind)
    assert adapter(E.VLLM).tasks(Profile(name="p", engine=E.VLLM), facts) == tasks


@pytest.mark.parametrize(("kind", "facts", "sizes"), [
    (E.VLLM, {}, True), (E.VLLM, {"args": {"num-gpu-blocks-override": 512}}, True),
    (E.VLLM, {"args": {"kv-cache-memory-bytes": "10G"}}, False), (E.VLLM, {"gpu": False}, False),
    (E.SGLANG, {"args": {"max-total-tokens": 8192}}, True), (E.TRTLLM, {}, True), (E.LLAMACPP, {}, False),
    (E.SIM, {}, False),
])  # fmt: skip
def test_who_sizes_itself_by_what_is_free_while_it_loads(kind: EngineKind, facts: dict[str, Any], sizes: bool) -> None:
    """Such an engine must not see another take memory meanwhile."""
    assert adapter(kind).sizes_by_free_memory(Profile(name="p", engine=kind, **facts)) is sizes


EYES = WeightFacts(origin="here", format="safetensors", bytes=WeightBytes(), sees=True)
GEMMA = EYES.model_copy(update={"architecture": "gemma3"})
BLIND = EYES.model_copy(update={"sees": False})


@pytest.mark.parametrize(("fields", "target", "expected"), [
    ({}, EYES, True), ({"engine": "sglang"}, EYES, True), ({}, BLIND, False), ({}, None, None),
    ({"args": {"language-model-only": True}}, EYES, False),
    ({"args": {"limit_mm_per_prompt": {"image": 0, "video": 0}}}, EYES, False),
    ({"args": {"limit-mm-per-prompt": '{"image": 0}'}}, EYES, False),
    ({"args": {"limit-mm-per-prompt": {"image": 4}}}, EYES, True),
    ({"args": {"limit-mm-per-prompt": "image=4"}}, EYES, True),
    ({"args": {"limit-mm-per-prompt": {"image": {"count": 0}}}}, EYES, False),
    ({"args": {"limit-mm-per-prompt.image": 0}}, EYES, False),
    ({"engine": "sglang", "args": {"enable-multimodal": False}}, EYES, False), ({"engine": "sglang"}, GEMMA, False),
    ({"engine": "sglang", "args": {"enable_multimodal": True}}, GEMMA, True), ({}, GEMMA, True),
    ({"engine": "llamacpp", "args": {"mmproj": "/models/mmproj.gguf"}}, None, True),
    ({"engine": "llamacpp", "args": {"mmproj": "/models/mmproj.gguf", "no-mmproj": True}}, None, False),
    ({"engine": "llamacpp"}, BLIND, False), ({"engine": "llamacpp", "args": {"hf-repo": "owner/model"}}, None, None),
    ({"engine": "openai", "url": "http://127.0.0.1:1", "image": None, "models": {}}, None, None),
])  # fmt: skip
def test_by_its_weights_and_its_command_line(
    profile: Callable[..., Profile], fields: dict[str, Any], target: WeightFacts | None, expected: bool | None
) -> None:
    """Flags may leave out what the weights have; None where nobody read the weights."""
    made = profile(**fields)
    assert adapter_of(made).reads_images(made, target) is expected

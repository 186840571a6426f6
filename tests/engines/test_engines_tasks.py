"""Tasks that an engine can be asked for and whether it reads pictures, by its command line and its model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.request import Task
from sparkdash.domain.weights import WeightBytes, WeightFacts
from sparkdash.engines.registry import adapter, adapter_of

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

"""Flag tables of the engines, and what a profile's args do against them."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.flag_check import FlagComplaint, flag_complaints
from sparkdash.engines.registry import adapter

IMAGES = {
    "vllm": "vllm/vllm-openai:v0.32.0",
    "sglang": "lmsysorg/sglang:v0.5.23",
    "llamacpp": "ghcr.io/ggml-org/llama.cpp:server-cuda13-b10068",
    "trtllm": "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc3",
}


def _told(engine: str, args: dict[str, Any], **more: Any) -> list[FlagComplaint]:
    given: dict[str, Any] = {"image": IMAGES[engine], **more}
    return list(flag_complaints(Profile.model_validate({"name": "x", "engine": engine, "args": args, **given})))


def _one(engine: str, args: dict[str, Any], **more: Any) -> FlagComplaint:
    (found,) = _told(engine, args, **more)
    return found


@pytest.mark.parametrize(("engine", "args", "more", "words", "hint"), [
    ("vllm", {"max-modle-len": 4096}, {}, "vLLM 0.32 has no such flag", "Did you mean max-model-len?"),
    ("llamacpp", {"ctx-sise": 1}, {}, "has no such flag", "Did you mean ctx-size?"),
    ("sglang", {"mem-fraction-statik": 1}, {}, "has no such flag", "Did you mean mem-fraction-static?"),
    ("sglang", {"kv-cache-memory-bytes": 1}, {}, "has no such flag", "Did you mean mem-fraction-static?"),
    ("sglang", {"torch-compile": True}, {}, "takes it for torch-compile-max-bs", "Did you mean enable-torch-compile?"),
    ("llamacpp", {"ngl": 99}, {}, "only -ngl", "Write n-gpu-layers."),
    ("trtllm", {"max-batch-size": 64}, {}, "has no such flag", "Did you mean max_batch_size?"),
    ("vllm", {"task": "embed"}, {}, "no longer has it (until 0.12)", "runner: pooling"),
    ("vllm", {"engram-config": {}}, {"engine_version": "0.16.0"}, "does not have it (since 0.30)", ""),
    ("vllm", {"kv-cache-dtype": "turboquant_k8v4"}, {"engine_version": "0.19.1"},
     "does not take 'turboquant_k8v4' (since 0.20)", ""),
    ("vllm", {"max_num_seqs": 4, "max-num-seqs": 5}, {}, "is the same flag as max_num_seqs", "Keep one of them"),
    ("vllm", {"enable-prefix-caching": True, "no-enable-prefix-caching": True}, {}, "is the same flag", ""),
], ids=str)  # fmt: skip
def test_a_mistake_is_named_with_the_way_out(
    engine: str, args: dict[str, Any], more: dict[str, Any], words: str, hint: str
) -> None:
    """A typing error, another engine's flag, another version's, an abbreviation, one flag twice."""
    found = _one(engine, args, **more)
    assert words in found.message
    assert hint in found.hint
    assert found.certain or engine == "trtllm" or "same flag" in words


@pytest.mark.parametrize("args", [
    {"max-model-len": "128k"}, {"max-model-len": "auto"}, {"max-model-len": -1}, {"max-num-batched-tokens": "8K"},
    {"gpu-memory-utilization": 0.85}, {"gpu-memory-utilization": "0.85"}, {"enable-prefix-caching": True},
    {"no-enable-prefix-caching": True}, {"enforce-eager": False}, {"max_model_len": 4096}, {"kv-cache-dtype": "fp8"},
    {"moe-backend": "FLASHINFER-CUTLASS"}, {"speculative-config": {"method": "mtp", "num_speculative_tokens": 3}},
    {"speculative-config": '{"method": "mtp", "num_speculative_tokens": 3}'}, {"speculative-config.method": "mtp"},
    {"speculative-config": {"method": "dflash", "model": "{drafter}"}}, {"middleware": ["a.b"]}, {"hf-token": True},
    {"default-chat-template-kwargs.enable_thinking": False}, {"served-model-name": ["a", "b"]},
    {"allowed-origins": ["*"]}, {"hf-overrides": {"a": 1}}, {"max-model-le": 4096}, {"port": 8000},
    {"limit-mm-per-prompt": {"image": 1}}, {"tensor-parallel-size": "$TP"}, {"chat-template": "/x.jinja"},
])  # fmt: skip
def test_what_the_parser_takes_is_left_alone(args: dict[str, Any]) -> None:
    assert _told("vllm", args) == []


BETWEEN = "ghcr.io/ggml-org/llama.cpp:server-cuda13-b9445"


@pytest.mark.parametrize(("engine", "args", "more"), [
    *(("llamacpp", args, {}) for args in (
        {"device": "CUDA0"}, {"top-k": "0.0"}, {"flash-attn": "true"}, {"flash-attn": "auto"}, {"pooling": "mean"},
    )),
    ("sglang", {"tp": 2}, {}), ("trtllm", {"max_batch_size": 64}, {}),
    ("vllm", {"mxfp4-backend": "CUTLASS", "load-format": "b12x"}, {"fork_flags": ["mxfp4_backend"]}),
    ("vllm", {"swap-space": 4, "engram-config": {}}, {"image": "localhost/fork:1"}),
    ("llamacpp", {"ctx-size": 4096, "no-mmap": True, "flash-attn": "on"}, {"image": BETWEEN}),
], ids=str)  # fmt: skip
def test_the_ways_of_other_engines_forks_and_builds_are_left_alone(
    engine: str, args: dict[str, Any], more: dict[str, Any]
) -> None:
    """A fork's own flags that the profile names; any version's where none is named; either's of two builds."""
    assert _told(engine, args, **more) == []


@pytest.mark.parametrize(("args", "words"), [
    ({"gpu-memory-utilization": 80}, "not above 0 and at most 1"), ({"max-model-len": -5}, "not at least -1"),
    ({"tensor-parallel-size": "two"}, "not a whole number"), ({"max-num-seqs": 2.5}, "not a whole number"),
    ({"enforce-eager": "true"}, "is a switch and takes no value"),
    ({"no-enable-prefix-caching": 1}, "is a switch and takes no value"), ({"quantization": True}, "needs a value"),
    ({"speculative-config": "eagle3"}, "not a mapping"), ({"speculative-config": ["eagle3"]}, "not a mapping"),
    ({"compilation-config": 3}, "not a mapping"),
])  # fmt: skip
def test_a_value_that_no_version_takes_is_certain_in_a_fork_too(args: dict[str, Any], words: str) -> None:
    found = _one("vllm", args, image="localhost/fork:1")
    assert words in found.message
    assert found.certain


def test_an_unknown_key_of_a_json_value_is_named_with_the_nearest() -> None:
    found = _one("vllm", {"speculative-config": {"num_speculative_token": 3}})
    assert found.path == ("speculative-config", "num_speculative_token")
    assert found.hint == "Did you mean num_speculative_tokens?"


def test_a_secret_in_a_wrong_place_is_not_shown() -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz0123"
    for args in ({"max-num-seqs": secret}, {"kv-cache-dtype": secret}, {"speculative-config": [secret]}):
        found = _one("vllm", args)
        assert secret[:12] not in found.message + found.hint


@pytest.mark.parametrize(
    "more",
    [
        {"image": "localhost/fork:1", "engine_version": "0.32.0"},
        {"image": "vllm/vllm-openai:nightly"},
        {"engine_version": "0.99.0"},
        {"engine_version": "main"},
    ],
)
def test_a_fork_or_an_unknown_version_only_warns(more: dict[str, Any]) -> None:
    assert not _one("vllm", {"mxfp4-backend": "CUTLASS"}, **more).certain


@pytest.mark.parametrize("kind", [EngineKind.VLLM, EngineKind.SGLANG, EngineKind.LLAMACPP, EngineKind.TRTLLM])
def test_every_span_of_a_table_names_its_versions(kind: EngineKind) -> None:
    source = adapter(kind).flag_source
    assert source is not None
    table = source.table
    for flag in table.flags:
        assert flag.spellings
        for place in flag.present:
            assert flag.takes(place) in ("none", "toggle", "one", "optional", "many", "append", "pair"), flag.name
            assert flag.type(place) != "None", flag.name


def test_engines_without_a_table_are_not_judged() -> None:
    assert adapter(EngineKind.SIM).flag_source is None


ODD: list[Any] = [
    True, 0, -1, 10**400, 2.5, 1e308, float("inf"), float("nan"), "", " ", "None", "nan", "1_000", "{}", "[1]", "{", "null",
    "true", "x" * 500, "{drafter}", "$X", [], [[]], [None, {}], {}, {"a": {"b": [1]}}, {"": None}, "ü\u202e\0",
]  # fmt: skip


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "trtllm"])
def test_no_value_of_any_flag_breaks_the_check(engine: str) -> None:
    """Nor an odd key, nor an odd version."""
    source = adapter(EngineKind(engine)).flag_source
    assert source is not None
    table = source.table
    keys = [flag.name for flag in table.flags] + [f"no-{flag.name}" for flag in table.flags if flag.present]
    for version in (None, "999.1", "b99999", "main", table.versions[0]):
        given: dict[str, Any] = {}
        for number, key in enumerate(keys):
            value = ODD[(number + len(str(version))) % len(ODD)]
            given[key] = value
        _told(engine, given | {"": 1, "-": 2, ".": 3, "a.b": 4, "x" * 10**5: 5}, engine_version=version)
    for value in ODD:
        _told(engine, dict.fromkeys([*keys, *(f"{key}.a" for key in keys)], value))

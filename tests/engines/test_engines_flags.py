"""Flag tables of the engines: how they are made of sources, which are never run, and what a profile's args do against them."""

import json
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.flag_check import FlagComplaint, flag_complaints
from sparkdash.engines.registry import adapter
from tests.flag_tables import llamacpp, merge, sglang, trtllm, vllm
from tests.flag_tables.observed import Observed

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


@pytest.mark.parametrize("more", [
    {"image": "localhost/fork:1", "engine_version": "0.32.0"}, {"image": "vllm/vllm-openai:nightly"},
    {"engine_version": "0.99.0"}, {"engine_version": "main"},
])  # fmt: skip
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


ENGINE = """
from vllm.config import CacheConfig, get_kwargs
raise SystemExit("the source was run")
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        kwargs = get_kwargs(CacheConfig)
        group = parser.add_argument_group()
        group.add_argument("--share", **kwargs["share"])
        group.add_argument("--sizes", "-s", **kwargs["sizes"])
        group.add_argument("--kind", **kwargs["kind"])
        group.add_argument("--swap", **{**kwargs["swap"], "default": None})
        group.add_argument("--inner", **kwargs["inner"])
class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser):
        parser = EngineArgs.add_cli_args(parser)
        parser.add_argument("--late", action="store_true")
        return parser
"""
CONFIG = """
from typing import Literal, Optional
Kind = Literal["a", "b"]
@config
class Inner:
    depth: int = 1
    made: int = field(init=False)
@config
class CacheConfig:
    share: float = Field(default=0.9, gt=0, le=1)
    sizes: Optional[list[int]] = None
    kind: Kind = "a"
    swap: bool = False
    inner: Inner | None = None
"""
FRONT = """
from vllm.engine.arg_utils import get_kwargs
@config
class FrontendArgs:
    words: list[str] = field(default_factory=list)
    @classmethod
    def add_cli_args(cls, parser):
        kwargs = get_kwargs(cls)
        kwargs["words"]["action"] = "append"
        for key, value in kwargs.items():
            parser.add_argument(f"--{key.replace('_', '-')}", **value)
def make_arg_parser(parser):
    parser.add_argument("model", nargs="?")
    return parser
"""


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_vllm_s_flags_come_from_the_annotations_of_its_configuration(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "vllm/engine/arg_utils.py": ENGINE,
            "vllm/config/__init__.py": CONFIG,
            "vllm/entrypoints/openai/cli_args.py": FRONT,
        },
    )
    found = {one.names[0]: one for one in vllm.flags(root)}
    assert sorted(found) == ["--help", "--inner", "--kind", "--late", "--share", "--sizes", "--swap", "--words"]
    assert found["--share"].facts() == {"takes": "one", "type": "float", "above": 0, "high": 1}
    assert (found["--sizes"].takes, found["--sizes"].type, found["--sizes"].names) == ("many", "int", ["--sizes", "-s"])
    assert found["--kind"].choices == ["a", "b"]
    assert (found["--swap"].takes, found["--late"].takes, found["--words"].takes) == ("toggle", "none", "append")
    assert (found["--inner"].type, found["--inner"].keys) == ("json", ["depth"])


def test_sglang_s_flags_come_from_its_calls_and_its_annotated_fields(tmp_path: Path) -> None:
    text = """
KINDS = ["x"]
KINDS += ["y"]
class ServerArgs:
    depth: A[Optional[int], Arg(help="", aliases=["--deep"])] = None
    hidden: A[int, Arg(no_cli=True)] = 1
    plain: A[bool, "Help."] = False
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--kind", type=str, choices=["a"] + ["b"])
        parser.add_argument("--old", action="store_true", help="Deprecated. Use --plain.")
        parser.add_argument("--sizes", type=int, nargs="+")
"""
    found = {one.names[0]: one for one in sglang.flags(_tree(tmp_path, {"sglang/srt/server_args.py": text}))}
    assert sorted(found) == ["--depth", "--help", "--kind", "--old", "--plain", "--sizes"]
    assert (found["--depth"].type, found["--depth"].names) == ("int", ["--depth", "--deep"])
    assert (found["--kind"].choices, found["--old"].state, found["--sizes"].takes) == (["a", "b"], "deprecated", "many")


def test_llama_server_s_flags_are_those_of_its_examples(tmp_path: Path) -> None:
    text = """
    add_opt(common_arg(
        {"-c", "--ctx-size"}, "N",
        string_format("size (default: %d, \\"x\\")", 1),
        [](common_params & params, int value) { params.n = value; }
    ));
    add_opt(common_arg(
        {"--mmap"}, {"--no-mmap"}, "map",
        [](common_params & params, bool value) { params.m = value; }
    ).set_env("X"));
    add_opt(common_arg(
        {"--only-cli"}, "x", [](common_params & params) { params.x = true; }
    ).set_examples({LLAMA_EXAMPLE_CLI}));
    add_opt(common_arg(
        {"--mode"}, "{none,layer}", "x", [](common_params & params, const std::string & value) { params.x = value; }
    ).set_examples({LLAMA_EXAMPLE_SERVER}));
    add_opt(common_arg(
        {"--gone"}, "N", "the argument has been removed. use --mode", [](common_params & params, int value) { x(); }
    ));
"""
    found = {one.names[0]: one for one in llamacpp.flags(_tree(tmp_path, {"common/arg.cpp": text}))}
    assert sorted(found) == ["--ctx-size", "--gone", "--mmap", "--mode"]
    assert (found["--ctx-size"].type, found["--mmap"].names) == ("int", ["--mmap", "--no-mmap"])
    assert (found["--mode"].choices, found["--gone"].state) == (["none", "layer"], "removed")


def test_trtllm_s_flags_are_the_options_of_its_command(tmp_path: Path) -> None:
    text = """
@click.command("serve")
@click.argument("model")
@click.option("--backend", type=click.Choice(["a", "b"]))
@click.option("--size", type=int, default=1)
@click.option("--fast", is_flag=True)
def serve(model, backend, size, fast):
    pass
"""
    found = {one.names[0]: one for one in trtllm.flags(_tree(tmp_path, {"tensorrt_llm/commands/serve.py": text}))}
    assert sorted(found) == ["--backend", "--fast", "--help", "--size"]
    assert (found["--backend"].choices, found["--size"].type, found["--fast"].takes) == (["a", "b"], "int", "none")


def test_what_changes_has_its_versions_and_what_does_not_is_said_once() -> None:
    versions = {
        "1": [Observed(["--a", "-a"], type="int"), Observed(["--gone"])],
        "2": [Observed(["--a"], type="float", low=0, choices=["x"])],
        "3": [Observed(["--a", "--b"], type="float", low=0, choices=["x", "y"])],
    }
    a, gone = merge.merged(versions, {"gone": "a"})
    assert a["names"] == ["--a", "--b@3:", "-a@:2"]
    assert (a["takes"], a["type"], a["low"]) == ("one", {"int": ":2", "float": "2:"}, {"0": "2:"})
    assert (a["choices"], a["choices_of"]) == (["x", "y@3:"], "2:")
    assert (gone["names"], gone["instead"]) == (["--gone@:2"], "a")
    assert len(json.loads(merge.dumped("e", "s", list(versions), [a, gone]))["flags"]) == 2

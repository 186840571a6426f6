"""Making of the flag tables: what is read from sources, which are never run."""

from __future__ import annotations

import json
from pathlib import Path

from tests.flag_tables import llamacpp, merge, sglang, trtllm, vllm
from tests.flag_tables.observed import Observed

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

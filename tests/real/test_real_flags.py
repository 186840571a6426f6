"""Shipped profiles' command lines and the flag tables, put to real engines' own argument parsers."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkdash import catalog
from sparkdash.catalog import importers, yaml12
from sparkdash.domain.node import LOCAL, NodeLaunch
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.weights import Attention, KvLayers, WeightBytes, WeightFacts
from sparkdash.engines import argv
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.flag_check import flag_complaints
from sparkdash.engines.proposal import MemoryBudget, OwnerChoices
from sparkdash.engines.registry import adapter
from sparkdash.paths import shipped_profiles
from sparkdash.units import GIB

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(300)]

PARSE = Path(__file__).with_name("parse_argv.py")
LAUNCH = LaunchContext(
    port=18000, containerised=True, hf_home="/home/owner/hf", cache_dir="/home/owner/cache", labels={}
)

TWO_NODES = replace(
    LAUNCH,
    nodes=tuple(
        NodeLaunch(name=name, address=address, hf_home="/home/owner/hf", cache_dir="/home/owner/cache")
        for name, address in ((LOCAL, "192.168.177.11"), ("spark2", "192.168.177.12"))
    ),
    master_port=20001,
)

REFUSED = {
    # 0.19.1 with the recipe's own patch; upstream's types, from 0.20 on, have other names and no metadata file.
    "qwen3.5-122b/mtp-2-turboquant": "turboquant35",
    # Flags of the image's own vLLM, which no other has.
    "gpt-oss-120b/mxfp4-spark": "--mxfp4-backend",
    "glm-5.3-flash/sparkring": "b12x",
    "qwen3.8-flash-next/sparkring": "--gdn-decode-kernel",
    "qwen3.8-flash-next/swift": "--gdn-decode-kernel",
    "qwen3.8-flash-next/two-sparks": "--gdn-decode-kernel",
}
"""Profiles whose flags vLLM 0.32 refuses, with the word that it names."""

# As the document prints it (flash7777's RESULTS_NVFP4.md), after `vllm serve`.
PUBLISHED = [
    "/data/tensordata/Qwen3-Coder-30B-A3B-Instruct-NVFP4",
    *("--host", "0.0.0.0", "--port", "8000"),
    *("--served-model-name", "qwen3-coder"),
    *("--gpu-memory-utilization", "0.05", "--kv-cache-memory-bytes", "10G"),
    *("--max-model-len", "32768"),
    "--trust-remote-code",
]
PUBLISHED_EAGLE3 = [
    *("--speculative-model", "/data/tensordata/Qwen3-Coder-30B-A3B-EAGLE3"),
    *("--speculative-method", "eagle3"),
    *("--num-speculative-tokens", "1"),
]


class Parser:
    """vLLM's own, in one process: to import vLLM takes longer than all that it is asked here."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def says(self, lines: list[list[str]]) -> list[str]:
        """Against each of these command lines; "" when it takes one."""
        return [self._ask(words) for words in lines]

    def table(self) -> list[dict[str, Any]]:
        return self._ask("table")

    def _ask(self, question: list[str] | str) -> Any:
        asked, told = self._process.stdin, self._process.stdout
        assert told is not None
        asked.write(json.dumps(question) + "\n")
        asked.flush()
        return next(json.loads(line)["answer"] for line in told if line.startswith('{"answer"'))


@pytest.fixture(scope="module")
def parser(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parser]:
    """A parser that answers until the module ends."""
    log = tmp_path_factory.mktemp("parser") / "stderr"
    argv = [str(engine / "venv/bin/python"), str(PARSE)]
    with (
        log.open("w") as errors,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        yield Parser(process)


def _shipped(nodes: int) -> list[Profile]:
    profiles = catalog.load_catalog([shipped_profiles()]).profiles.values()
    return [each for each in profiles if each.engine is EngineKind.VLLM and each.image and each.nodes == nodes]


def _lines() -> dict[str, list[str]]:
    vllm = adapter(EngineKind.VLLM)
    return {profile.name: list(vllm.container(profile, LAUNCH).argv)[2:] for profile in _shipped(1)}


def test_vllm_takes_every_shipped_command_line(parser: Parser) -> None:
    """Except those listed, which are refused for the reason that stands there."""
    lines = _lines()
    said = dict(zip(lines, parser.says(list(lines.values())), strict=True))
    assert {name for name, complaint in said.items() if complaint} == set(REFUSED) & set(lines)
    assert all(REFUSED[name] in complaint for name, complaint in said.items() if complaint)
    assert len(said) >= 72


def test_vllm_takes_the_line_of_each_node_of_every_shipped_profile_for_two(parser: Parser) -> None:
    """The one that serves and the headless one; over Ray only the server's, behind the words of a shell."""
    vllm, lines = adapter(EngineKind.VLLM), dict[str, list[str]]()
    for profile in _shipped(2):
        head = vllm.container(profile, TWO_NODES)
        for name, words in ((LOCAL, head.argv), *((worker.node, worker.argv) for worker in head.workers)):
            if "serve" in words:
                lines[f"{profile.name} on {name}"] = list(words[words.index("serve") + 1 :])
    said = dict(zip(lines, parser.says(list(lines.values())), strict=True))
    refused = {name: complaint for name, complaint in said.items() if complaint}
    assert refused.keys() == {name for name in lines if name.partition(" on ")[0] in REFUSED}, refused
    assert all(REFUSED[name.partition(" on ")[0]] in complaint for name, complaint in refused.items())
    assert any("--headless" in words for words in lines.values())
    assert any("ray" in words for words in lines.values())


def test_llama_server_takes_every_shipped_command_line(llama: Path) -> None:
    """All but those of images built from an older llama.cpp; with `--version` it parses and ends."""
    lines = {
        profile.name: adapter(profile.engine).container(profile, LAUNCH).argv[1:]
        for profile in catalog.load_catalog([shipped_profiles()]).profiles.values()
        if profile.engine is EngineKind.LLAMACPP and profile.image and not profile.build
    }
    assert len(lines) >= 6
    said = {
        name: subprocess.run(
            [llama / "bin/llama-server", *words, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
        for name, words in lines.items()
    }
    assert {name: done.stderr for name, done in said.items() if done.returncode} == {}


def test_llama_server_refuses_what_it_does_not_know(llama: Path) -> None:
    line = [llama / "bin/llama-server", "--spec-type", "nonsense", "--version"]
    assert subprocess.run(line, capture_output=True, timeout=60, check=False).returncode == 1


PLATFORM = {"mm-processor-device"}
"""Flags whose choices vLLM makes of the device that it finds."""


def test_the_flag_table_is_the_parser_s_own(parser: Parser) -> None:
    """Every spelling, arity and choice of the real parser of 0.32, and none beyond them."""
    source = adapter(EngineKind.VLLM).flag_source
    table = source.table
    (place,) = table.meant("0.32").places
    seen = set()
    for real in parser.table():
        (facts,) = {table.by_word[name] for name in real["names"]}
        spellings = {name for name, places in facts.spellings.items() if place in places}
        assert {name for name in real["names"] if not name.startswith("--no-") or name in spellings} == spellings
        assert facts.takes(place) == real["takes"], facts.name
        choices = facts.choices(place)
        if facts.name not in PLATFORM:
            assert (sorted(choices) if choices else None) == real["choices"], facts.name
        seen.add(facts)
    assert {facts.name for facts in table.flags if place in facts.present and facts not in seen} == set()


REFUSED_VALUES: list[dict[str, Any]] = [
    {"max-modle-len": 4096}, {"tensor-parallel-size": "two"}, {"max-num-seqs": 2.5}, {"enforce-eager": "true"},
    {"no-enable-prefix-caching": 1}, {"speculative-config": "eagle3"}, {"kv-cache-dtype": "fp9"}, {"tp": 2},
    {"swap-space": 4}, {"compilation-config": {"cudagraph_modee": "FULL"}}, {"moe-backend": "nonsense"},
    {"max-model-len": "many"}, {"quantization-config": "x"},
]  # fmt: skip
TAKEN_VALUES: list[dict[str, Any]] = [
    {"max-model-len": "128k"}, {"max-model-len": "auto"}, {"max-model-len": -1}, {"moe-backend": "FLASHINFER-CUTLASS"},
    {"no-enable-prefix-caching": True}, {"speculative-config": {"method": "mtp"}}, {"hf-token": True},
    {"served-model-name": ["a", "b"]}, {"middleware": ["a.b", "c.d"]}, {"allowed-origins": ["*"]}, {"hf-overrides": {}},
    {"max-num-batched-tokens": "8K"}, {"max-model-le": 4096}, {"compilation-config": {"cudagraph_mode": "FULL"}},
    {"kv-cache-memory-bytes": "10G"}, {"limit-mm-per-prompt": {"image": 1}}, {"performance-mode": "throughput"},
]  # fmt: skip


def test_the_table_refuses_and_takes_what_the_parser_does(parser: Parser) -> None:
    for args, is_taken in [*((one, False) for one in REFUSED_VALUES), *((one, True) for one in TAKEN_VALUES)]:
        profile = Profile.model_validate(
            {"name": "x", "engine": "vllm", "image": "vllm/vllm-openai:v0.32.0", "args": args}
        )
        (said,) = parser.says([["org/x", *argv.flag_words(args, {}, adapter(EngineKind.VLLM).lists)]])
        assert (said == "") is is_taken, (args, said)
        assert ([one.message for one in flag_complaints(profile)] == []) is is_taken, args


def test_vllm_takes_an_imported_line_with_lists(parser: Parser) -> None:
    text = (Path(__file__).parents[1] / "data/imports/lists.sh").read_text()
    (made,) = importers.import_profiles(text).profiles
    (profile,) = importers.load_imported(
        {"x": importers.yaml_text(made, importers.import_profiles(text), "lists.sh")}
    ).profiles.values()
    argv = list(adapter(EngineKind.VLLM).container(profile, LAUNCH).argv)[2:]
    assert parser.says([argv]) == [""]


FULL = KvLayers(kind=Attention.FULL, layers=16, key_elements=1024, value_elements=1024)
HEADERS = {
    "dense": WeightFacts(origin="x", format="safetensors", bytes=WeightBytes(dense=10**10), context=40960, kv=(FULL,)),
    "mtp": WeightFacts(
        origin="x", format="safetensors", bytes=WeightBytes(dense=10**10, draft=10**8), context=262144,
        kv=(FULL, KvLayers(kind=Attention.LINEAR, layers=48, state_bytes=3207168)), kv_dtype="fp8", quantization="nvfp4",
    ),
    "oss": WeightFacts(origin="x", format="safetensors", architecture="gpt_oss", bytes=WeightBytes(dense=6 * 10**10)),
}  # fmt: skip


def test_vllm_takes_every_proposed_command_line(parser: Parser) -> None:
    """Command lines of `profiles new`: the base, and the variant that drafts with the model's own head."""
    box, wish = MemoryBudget(127_600_748 * 1024, 10 * GIB), OwnerChoices(image="x", engine_version="0.32.0")
    texts = {}
    for name, facts in HEADERS.items():
        made = adapter(EngineKind.VLLM).propose(name, {"hf": "org/x"}, facts, box, wish)
        texts[name] = yaml12.annotated_yaml(made.profile, made.reasons, ())
    profiles = importers.load_imported(texts).profiles
    assert sorted(profiles) == ["dense", "mtp", "mtp/mtp", "oss"]
    lines = [list(adapter(EngineKind.VLLM).container(one, LAUNCH).argv)[2:] for one in profiles.values()]
    assert parser.says(lines) == [""] * 4


def test_vllm_refuses_the_published_speculation_flags(parser: Parser) -> None:
    """The document's plain line is right; its three speculation flags are not in any vLLM."""
    plain, eagle3 = parser.says([PUBLISHED, PUBLISHED + PUBLISHED_EAGLE3])
    assert plain == ""
    assert "unrecognized arguments: --speculative-model" in eagle3


@pytest.fixture(scope="module")
def program(llama: Path) -> Path:
    return llama / "bin/llama-server"


def listed(text: str) -> set[str]:
    """The flags that a help text defines: at the beginning of a line, without values, and not marked as removed."""
    found = set()
    for line, below in zip(text.splitlines(), [*text.splitlines()[1:], ""], strict=True):
        if re.match(r" {0,8}--?[A-Za-z]", line):
            defined, _, about = re.sub(r"([,/]) +", r"\1 ", line.strip()).partition("  ")
            if "argument has been removed" not in (about or below):
                found |= set(
                    re.findall(r"(?<![\w.-])--?[A-Za-z][\w.-]*", re.sub(r"\{[^}]*\}|<[^>]*>|\[[^\]]*\]", "", defined))
                )
    return found


def test_the_table_has_the_very_flags_that_the_help_lists(program: Path) -> None:
    """Each spelling, and none beyond them; the newest tree of the table is this program's source."""
    source = adapter(EngineKind.LLAMACPP).flag_source
    told = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    table = source.table
    newest = len(table.versions) - 1
    spellings = {
        table.normal(word)
        for flag in table.flags
        if newest in flag.present
        for word, places in flag.spellings.items()
        if newest in places
    }
    assert spellings == {table.normal(flag) for flag in listed(told)}


@pytest.mark.parametrize(
    "words", [["--ctx-sise", "1"], ["--ctx-size", "many"], ["--ngl", "1"], ["--draft-max", "4"], ["--jinja=1"]]
)
def test_what_the_table_refuses_the_program_refuses(program: Path, words: list[str]) -> None:
    done = subprocess.run([program, *words, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    key, _, value = " ".join(words).lstrip("-").replace("=", " ").partition(" ")
    profile = Profile.model_validate(
        {"name": "x", "engine": "llamacpp", "engine_version": "v0.5.0-dev", "args": {key: value}}
    )
    assert [one.certain for one in flag_complaints(profile)] == [True]

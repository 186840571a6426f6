"""No importer is silent: what a stranger's file says, damaged or not, is in the profile, in the report, or is refused."""

import copy
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkdash.catalog import importers
from sparkdash.catalog.importers.values import Imported
from sparkdash.errors import ProfileError

DATA = Path(__file__).parents[1] / "data" / "imports"
STRANGERS = DATA / "strangers"
FILES = sorted(path for path in DATA.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".sh"]
DOCUMENTS = [path for path in FILES if path.suffix in (".yaml", ".yml")]
NAMED_WHOLE = {"macros", "models", "groups", "matrix"}
"""Mappings of which the report, or the command that uses them, speaks as a whole."""


def got(name: str) -> Imported:
    (file,) = STRANGERS.glob(f"{name}-*")
    return importers.import_profiles(file.read_text())


def said(imported: Imported) -> str:
    return "\n".join([*map(str, imported.remarks), *imported.settings])


def heard(text: str) -> str | None:
    try:
        imported = importers.import_profiles(text)
    except ProfileError:
        return None
    return json.dumps(imported.profiles) + said(imported)


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.stem)
@pytest.mark.parametrize("word", ["--zzz=17 ", "zzzword ", "-Z zzz "])
def test_a_word_put_anywhere_into_a_script_is_kept_or_named(file: Path, word: str) -> None:
    text = file.read_text()
    for spot in re.finditer(r"(?<=[ \n])(?=[^\s#])", text):
        at = spot.start()
        line = text[text.rfind("\n", 0, at) + 1 : at]
        if "#" in line or line.startswith("set ") or line.endswith("sleep "):  # commands that change nothing
            continue
        told = heard(text[:at] + word + text[at:])
        assert told is None or "zzz" in told or "-Z" in told, text[:at][-60:]


def _mappings(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from _mappings(part, (*path, key))


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.stem)
@pytest.mark.parametrize("value", [17, "zzz", ["zzz"], {"zzz": 1}], ids=["number", "text", "list", "mapping"])
def test_a_key_put_anywhere_into_a_document_is_kept_or_named(file: Path, value: Any) -> None:
    data = yaml.safe_load(file.read_text())
    for path in _mappings(data):
        if NAMED_WHOLE & set(path):
            continue
        changed = inner = copy.deepcopy(data)
        for key in path:
            inner = inner[key]
        inner["zzzkey"] = value
        told = heard(json.dumps(changed))
        assert told is None or "zzzkey" in told, path


AS_FLAG = "rewritten: LLAMA_ARG_CTX_SIZE: as the flag --ctx-size"
TOLD: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "a comment in a command that YAML joins ends at the next flag": (
        "A1", {"args": {"jinja": True, "n-gpu-layers": 99, "ctx-size": 131072, "temp": 0.7, "top-p": 0.8}}, ()),
    "so it does in a folded text": (
        "A3", {"args": {"max-model-len": 32768, "gpu-memory-utilization": 0.5}}, ("dropped: # the model: a comment",)),
    "a line without a model is left out alone": (
        "C1", {"profile": "a"}, ("The vllm command names no model: --max-model-len 4096 Left out.",)),
    "a service without a model is left out alone": (
        "F1", {"profile": "coder", "image": "vllm/vllm-openai:v0.27.1", "env": {"VLLM_LOGGING_LEVEL": "INFO"},
            "mounts": [{"source": "~/.cache/huggingface", "target": "/root/.cache/huggingface", "read_only": False}]},
        ("services.vllm-base: The vllm command names no model. Left out.",)),
    "the form of a compose file is told by its keys": ("D1", {"profile": "qwen"}, ("compose file",)),
    "the form of llama-swap too": ("D2", {"profile": "coder"}, ("llama-swap configuration",)),
    "variables that stand for flags become flags": (
        "E1", {"args": {"ctx-size": 65536, "n-gpu-layers": 99}, "env": None,
            "models": {"target": {"path": "/models/qwen.gguf"}}}, (AS_FLAG,)),
    "variables of a container become flags": (
        "E2", {"args": {"ctx-size": 65536, "parallel": 2}, "env": None,
            "models": {"target": {"path": "/models/coder.gguf"}}}, (AS_FLAG,)),
    "a command that serves nothing is no engine": (
        "G1", {"profile": "q"},
        ("its command starts no engine that is known here (bench serve --model); left out",)),
}  # fmt: skip


@pytest.mark.parametrize(("name", "made", "words"), TOLD.values(), ids=TOLD)
def test_a_stranger_s_file_is_read_or_its_loss_told(name: str, made: dict[str, Any], words: tuple[str, ...]) -> None:
    """The one profile has these fields (None: not that one), and the form or the report these words."""
    imported = got(name)
    (profile,) = imported.profiles
    assert {key: profile.get(key) for key in made} == made
    assert not [one for one in words if one not in f"{imported.form}\n{said(imported)}"]


def test_what_starts_the_engine_in_its_own_way_is_named() -> None:
    words = said(got("H1"))
    for starter in ("numactl --interleave=all", "taskset -c 10-19", "nice -n 5", "stdbuf -oL"):
        assert f"dropped: {starter}: " in words
    assert "models.d.cmd: starts no engine" in words


def test_a_model_that_is_never_unloaded_keeps_no_time() -> None:
    assert got("B1").settings == ("", '[policy."big"]', "idle_ttl_s = 900")


def test_each_service_that_starts_no_engine_is_named() -> None:
    """Two of one image behind one script had one remark between them, and neither was in it."""
    command = "command: [bash, run.sh, vllm, serve, a/b]"
    text = f"services:\n  one: {{image: x, {command}}}\n  two: {{image: x, {command}}}\n  q: {{image: vllm/vllm-openai, command: a/b}}"
    words = said(importers.import_profiles(text))
    for service in ("one", "two"):
        assert f"services.{service}: starts no engine that is known here, left out" in words
    assert "services.q: starts no engine" not in words


def test_the_name_that_clients_use_stays_an_alias() -> None:
    """The name of a service without `container_name`, and one where `--name` gives the profile another."""
    text = "services: {chat: {image: vllm/vllm-openai, command: --model a/b --served-model-name qwen}}"
    (profile,) = importers.import_profiles(text).profiles
    assert (profile["profile"], profile["serves"]) == ("chat", ["qwen"])
    (renamed,) = importers.import_profiles("models: {old: {cmd: llama-server -m /m.gguf}}", "new").profiles
    assert (renamed["profile"], renamed["serves"]) == ("new", ["old"])


def test_llama_swap_preloads_a_model_by_its_alias() -> None:
    text = """models: {a: {cmd: llama-server -m /m.gguf, aliases: [x]}}
hooks: {on_startup: {preload: [x]}}
"""
    assert importers.import_profiles(text).settings == ('preload = ["a"]',)


def test_an_alias_of_llama_swap_may_be_a_mapping_and_a_negative_time_is_that_of_all() -> None:
    text = """globalTTL: 900
models:
  a:
    cmd: llama-server -m /m.gguf
    ttl: -1
    aliases: [x, {id: y, name: Why, unlisted: true}]
  b: {cmd: llama-server -m /n.gguf, ttl: 0}
"""
    imported = importers.import_profiles(text)
    assert imported.profiles[0]["serves"] == ["x", "y"]
    assert imported.settings == ("", '[policy."a"]', "idle_ttl_s = 900")
    assert {"models.a.aliases.name", "models.a.aliases.unlisted"} <= {one.what for one in imported.remarks}


UNIT = """[Unit]
Description=The chat model of this box

[Container]
Image=vllm/vllm-openai:v1
AddDevice=-/dev/accel
AddDevice=nvidia.com/gpu=all
Volume=%h/models:/models:ro
EnvironmentFile=%h/keys.env
Exec=--model /models/a \\
# why it is so long
  --max-model-len 4096
a line without a key
"""


def test_a_quadlet_says_all_that_its_lines_say() -> None:
    imported = importers.import_profiles(UNIT)
    (profile,) = imported.profiles
    assert profile["about"] == "The chat model of this box"
    assert profile["args"] == {"max-model-len": 4096}
    assert profile["mounts"] == [{"source": "~/models", "target": "/models"}]
    assert "gpu" not in profile
    for line in ("--device -/dev/accel", "--env-file $HOME/keys.env", "a line without a key"):
        assert line in said(imported)


def test_the_time_of_a_start_is_named_unless_an_export_wrote_it() -> None:
    unit = UNIT + "[Service]\nTimeoutStartSec="
    assert "Service.TimeoutStartSec" in said(importers.import_profiles(f"{unit}90\n"))
    assert "Service.TimeoutStartSec" not in said(importers.import_profiles(f"{unit}1800\n"))


TOKEN, WORD = "hf_" + "Zz9" * 8, "hunter2secret"
HOLDING = {
    "steps": f'curl -H "Authorization: Bearer {TOKEN}" x\nhf login --token {WORD}\nvllm serve a/b',
    "variables": f"docker run -e FOO={TOKEN} -e https_proxy=http://u:{WORD}@h:1 vllm/vllm-openai --model a/b",
    "a line left out": f"vllm serve --api-key {WORD}\nvllm serve a/b --otlp-traces-endpoint http://u:{WORD}@h",
    "a refusal": f"podman run -e HF_TOKEN={TOKEN} -e PASSWORD={WORD} foo --api-key {WORD}",
    "no model": f"vllm serve --seed 5 --api-key {WORD} {TOKEN}",
    "llama-swap": f"""models: {{a: {{cmd: llama-server -m x.gguf, env: [HF_TOKEN={TOKEN}, FOO={TOKEN}]}}}}
peers: {{p: {{proxy: "https://u:{WORD}@x.y/v1", models: [m]}}}}""",
    "quadlet": f"[Container]\nImage=vllm/vllm-openai\nEnvironment=FOO={TOKEN}\nPodmanArgs=--creds u:{WORD}\n"
    f"""Exec=--model a/b --hf-overrides '{{"a": "{TOKEN}"}}'""",
}


@pytest.mark.parametrize("text", HOLDING.values(), ids=HOLDING)
def test_no_import_repeats_a_secret(text: str) -> None:
    try:
        imported = importers.import_profiles(text)
        told = json.dumps(imported.profiles) + said(imported)
        assert "secret" in told or "***" in told
    except ProfileError as error:
        told = f"{error.message} {error.hint}"
    assert TOKEN not in told
    assert WORD not in told


INPUTS = 10_000
YAML_SHARE = 8
"""One in so many is YAML, whose reading is the slow part."""
TRIED_SHARE = 100
PIECES = (
    "'", '"', "\\", "$", "${", "}", "$(", "(", ")", "`", "\n", "#", "--", "-", "=", " ", "<", "|", ";", "&", "*", "&a ", "*a", ": ", "{", "[",
    "]", "!!python/object:os.system", "!!int x", "\t", "é", "\u2028", "\x00", "{model}", "${PORT}", "--a.b.c", "{" * 300, "[" * 300, "null", "1e999",
    "-e", "-v", "a" * 500, "9" * 5000, "<<: *a", "? ", "- ", "--speculative-config", "NaN", "vllm serve",
)  # fmt: skip


def damaged(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 6)):
        at, size = chance.randrange(len(text) + 1), chance.choice((0, 0, 1, 2, 8, 40))
        other = chance.randrange(len(text) + 1)
        piece = chance.choice((chance.choice(PIECES), text[other : other + size], ""))
        text = text[:at] + piece + text[at + size :]
    return text


def test_damaged_inputs_give_a_profile_or_an_error() -> None:
    """No other exception, whatever is cut out, doubled or put in; what is given can be written and tried."""
    chance = random.Random(3)
    scripts = [path.read_text() for path in FILES if path.suffix != ".yaml"]
    documents = [path.read_text() for path in FILES if path.suffix == ".yaml"]
    good = refused = 0
    for number in range(INPUTS):
        text = damaged(chance.choice(scripts if number % YAML_SHARE else documents), chance)
        try:
            imported = importers.import_profiles(text)
        except ProfileError:
            refused += 1
            continue
        good += 1
        assert all(profile["engine"] == "generic" or profile["models"]["target"] for profile in imported.profiles)
        if number % TRIED_SHARE == 0:
            texts = {str(i): importers.yaml_text(one, imported, "x") for i, one in enumerate(imported.profiles)}
            found = importers.load_imported(texts)
            assert found.profiles or found.problems
    assert good + refused == INPUTS
    assert good > 1000
    assert refused > 1000

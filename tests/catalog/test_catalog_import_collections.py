"""Importers: forms of input that public collections have, each in the smallest text that shows it."""

from typing import Any

import pytest

from sparkdash.catalog import importers
from sparkdash.catalog.importers import Imported
from sparkdash.errors import ProfileError

IMAGE = "docker.io/vllm/vllm-openai:v0.27.1"


def said(imported: Imported) -> str:
    return "\n".join(map(str, imported.remarks))


def only(text: str) -> dict[str, Any]:
    (profile,) = importers.import_profiles(text).profiles
    return profile


def test_a_script_is_a_script_though_it_writes_yaml_in_a_here_document() -> None:
    text = f"#!/bin/bash\ncat > c.yaml <<EOF\nmodels:\n  a: 1\nruntime: x\nEOF\npodman run {IMAGE} --model a/b\n"
    assert only(text)["image"] == IMAGE


def test_labels_of_a_case_are_no_steps() -> None:
    text = 'case "$1" in\n  nomic)\n    X="--max-num-seqs 4"\n    ;;\n  a|*) X= ;;\nesac\nvllm serve a/b --dtype auto\n'
    imported = importers.import_profiles(text)
    assert imported.profiles[0]["args"] == {"dtype": "auto"}
    assert "a step beside the engine" not in said(imported)


def test_a_subshell_around_an_engine_is_read() -> None:
    assert only("(cd /x && vllm serve a/b --dtype auto)")["args"] == {"dtype": "auto"}


@pytest.mark.parametrize("word", ['${m[@]+"${m[@]}"}', '${m[@]:+"${m[@]}"}', '"${m[@]:-}"', '"${m[@]-}"', "${m[@]}"])
def test_an_array_that_may_be_empty_gives_its_words(word: str) -> None:
    made = only(f"m=(-v /a:/b)\npodman run {word} {IMAGE} --model a/b\n")
    assert made["image"] == IMAGE
    assert made["mounts"] == [{"source": "/a", "target": "/b", "read_only": False}]


def test_arguments_of_the_script_have_their_defaults() -> None:
    text = 'MODEL=${1:-a/b}\nLEN="${2:-4096}"\nvllm serve "$MODEL" --max-model-len $LEN ${@:+--seed 1} --dtype auto\n'
    made = only(text)
    assert made["models"] == {"target": {"hf": "a/b"}}
    assert made["args"] == {"max-model-len": 4096, "dtype": "auto"}


def test_an_argument_that_must_be_given_stays_one_word() -> None:
    imported = importers.import_profiles("R=${1:?usage: x.sh recipes/<model>.env}\nvllm serve a/b --dtype auto\n")
    assert imported.profiles[0]["args"] == {"dtype": "auto"}
    assert "a step beside the engine" not in said(imported)


@pytest.mark.parametrize("line", [". ./.env", 'source "$HOME/x.env"'])
def test_a_script_that_is_read_in_is_named(line: str) -> None:
    assert "another script, which is not read" in said(importers.import_profiles(f"{line}\nvllm serve a/b\n"))


def test_an_array_that_the_script_never_fills_gives_no_word() -> None:
    imported = importers.import_profiles(f'podman run ${{m[@]+"${{m[@]}}"}} {IMAGE} --model a/b\n')
    assert imported.profiles[0]["image"] == IMAGE
    assert "${m[@]+" in said(imported)


def test_quotes_with_a_dollar_have_their_escapes() -> None:
    made = only(f"podman run {IMAGE} --model a/b --chat-template $'a\\nb\\t\\x41\\'c' --dtype $\"auto\"\n")
    assert made["args"] == {"chat-template": "a\nb\tA'c", "dtype": "auto"}


@pytest.mark.parametrize("escape", ["\\0", "\\x00", "\\ud800", "\\q"])
def test_an_escape_that_stands_for_no_text_stays_as_written(escape: str) -> None:
    assert only(f"podman run {IMAGE} --model a/b --chat-template $'{escape}'")["args"] == {"chat-template": escape}


def test_blanks_behind_a_continuation_do_not_end_the_command() -> None:
    imported = importers.import_profiles(f"podman run \\ \n  {IMAGE} --model a/b \\\t \n --dtype auto\n")
    assert imported.profiles[0]["args"] == {"dtype": "auto"}
    assert "rewritten: \\:" in said(imported)


@pytest.mark.parametrize("program", ["llama-server-latest", "llama-server-cuda13", "llama-server-b6500"])
def test_a_program_with_its_build_behind_its_name_is_known(program: str) -> None:
    assert only(f"/opt/{program} -m /m/a.gguf")["command"] == [f"/opt/{program}"]


def test_a_refused_llama_swap_configuration_names_the_nearest_command() -> None:
    with pytest.raises(ProfileError, match=r"The nearest was: b: /opt/my-vllm --x 1"):
        importers.import_profiles("models:\n  a: {cmd: sleep 1}\n  b: {cmd: '/opt/my-vllm --x 1'}\n")


def test_a_refused_compose_file_names_the_nearest_service() -> None:
    with pytest.raises(ProfileError, match=r"The nearest was: llm: ghcr.io/me/llama-spark:1 --port 8080"):
        importers.import_profiles(
            "services:\n  db: {image: postgres}\n  llm: {image: 'ghcr.io/me/llama-spark:1', command: --port 8080}\n"
        )


def test_a_refused_command_without_a_model_is_named() -> None:
    with pytest.raises(ProfileError, match=r"names no model: --max-model-len 4096"):
        importers.import_profiles("vllm serve --max-model-len 4096")


def test_a_compose_file_s_folder_holds_its_relative_volumes() -> None:
    text = (
        f"services:\n  a:\n    image: {IMAGE}\n    command: --model a/b\n    volumes: [./models:/models, ../x:/x:ro]\n"
    )
    (made,) = importers.import_profiles(text, folder="/srv/stack").profiles
    assert [one["source"] for one in made["mounts"]] == ["/srv/stack/models", "/srv/x"]


def test_aliases_inside_of_anchors_are_read() -> None:
    text = f"""
x-env: &env {{A: "1"}}
x-base: &base
  image: {IMAGE}
  environment: *env
services:
  a: {{<<: *base, command: --model a/b}}
"""
    assert only(text)["env"] == {"A": "1"}


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]" for before, name in zip("abcdef", "bcdefg", strict=True)
    ]
    with pytest.raises(ProfileError, match="larger, deeper or has more aliases"):
        importers.import_profiles("\n".join([*lines, "recipe_version: '2'", "model: a/b"]))


def test_an_alias_of_the_value_around_it_is_refused() -> None:
    with pytest.raises(ProfileError, match="holds itself"):
        importers.import_profiles("runtime: vllm\nmodel: a/b\ndefaults: &d {x: *d}\n")


def test_solo_means_one_rank_for_the_drafter_too() -> None:
    recipe = """
recipe_version: "1"
model: a/b
container: vllm-node
solo_only: true
defaults: {tensor_parallel: 2}
command: |
  vllm serve a/b -tp {tensor_parallel} --speculative-config '{{"method":"dflash","model":"c/d","draft_tensor_parallel_size":{tensor_parallel}}}'
"""
    imported = importers.import_profiles(recipe)
    assert imported.profiles[0]["args"] == {"speculative-config": {"method": "dflash", "model": "{drafter}"}}
    assert "draft_tensor_parallel_size: solo_only" in said(imported)


def test_groups_that_run_together_become_sets() -> None:
    text = """
models:
  A: {cmd: llama-server -m /a.gguf}
  b: {cmd: llama-server -m /b.gguf}
  c: {cmd: sleep 1}
groups:
  both: {swap: false, members: [A, b, c]}
  one: {members: [A, b]}
"""
    imported = importers.import_profiles(text)
    assert imported.settings == ("", "[sets]", 'both = ["A", "b"]')
    assert "groups.one: its members run one at a time" in said(imported)
    assert "groups.both: 'c' is not among the profiles" in said(imported)


def test_sets_of_a_matrix_become_sets() -> None:
    text = """
models:
  long-name: {cmd: llama-server -m /a.gguf}
  b: {cmd: llama-server -m /b.gguf}
matrix:
  vars: {a: long-name, b: b}
  sets: {both: a & b, either: a | b}
"""
    imported = importers.import_profiles(text)
    assert imported.settings == ("", "[sets]", 'both = ["long-name", "b"]')
    assert "matrix.sets.either: names alternatives" in said(imported)

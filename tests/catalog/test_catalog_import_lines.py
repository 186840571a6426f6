"""Command lines and scripts as people write them: nothing that the engine was told is lost in silence."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from sparkdash.catalog import importers
from sparkdash.catalog.importers.values import Imported
from sparkdash.errors import ProfileError
from sparkdash.settings import Settings

IMAGE = "docker.io/vllm/vllm-openai:v0.27.1"


def said(imported: Imported) -> str:
    return "\n".join(map(str, imported.remarks))


def only(text: str) -> dict[str, Any]:
    (profile,) = importers.import_profiles(text).profiles
    return profile


def test_a_script_is_a_script_though_it_writes_yaml_in_a_here_document() -> None:
    text = f"#!/bin/bash\ncat > c.yaml <<EOF\nmodels:\n  a: 1\nruntime: x\nEOF\npodman run {IMAGE} --model a/b\n"
    assert only(text)["image"] == IMAGE


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("(cd /x && vllm serve a/b --dtype auto)", {"dtype": "auto"}),
        (
            'MODEL=${1:-a/b}\nLEN="${2:-4096}"\nvllm serve "$MODEL" --max-model-len $LEN ${@:+--seed 1} --dtype auto\n',
            {"max-model-len": 4096, "dtype": "auto"},
        ),
        (
            "vllm serve a/b --default-chat-template-kwargs.enable_thinking false --x.y null --x.z=true",
            {"default-chat-template-kwargs": {"enable_thinking": False}, "x": {"y": None, "z": True}},
        ),
        (
            "vllm serve a/b -cc.pass_config.fuse=true -cc.partition=false -sc.method mtp",
            {
                "compilation-config": {"pass_config": {"fuse": True}, "partition": False},
                "speculative-config": {"method": "mtp"},
            },
        ),
        (
            "vllm serve a/b --disable-access-log-for-endpoints /health,/metrics --enable-lora",
            {"disable-access-log-for-endpoints": "/health,/metrics", "enable-lora": True},
        ),
        ("vllm serve -dc {} --log-error-stack a/b", {"diffusion-config": {}, "log-error-stack": True}),
        ("sglang serve --model-path a/b --skip-tokenizer-init", {"skip-tokenizer-init": True}),
        ("llama-server -m /m.gguf -dr x -lm mlock -nr", {"docker-repo": "x", "load-mode": "mlock", "no-repack": True}),
        ("llama-server -m /m.gguf -fit on -ndio", {"fit": "on", "no-direct-io": True}),
        (
            "container: img\nmodel: a/b\ndefaults: {max-num-seqs: 16}\ncommand: vllm serve a/b --max-num-seqs {max-num-seqs}\n",
            {"max-num-seqs": 16},
        ),
    ],
)
def test_the_engine_is_told_what_the_line_says(text: str, args: dict[str, Any]) -> None:
    """A subshell, the script's arguments, dotted names, words after a flag, short names, hyphens."""
    made = only(text)
    assert made["args"] == args
    assert made["models"]["target"] in ({"hf": "a/b"}, {"path": "/m.gguf"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "models:\n  a: {cmd: sleep 1}\n  b: {cmd: '/opt/my-vllm --x 1'}\n",
            r"The nearest was: b: /opt/my-vllm --x 1",
        ),
        (
            "services:\n  db: {image: postgres}\n  llm: {image: 'ghcr.io/me/llama-spark:1', command: --port 8080}\n",
            r"The nearest was: llm: ghcr.io/me/llama-spark:1 --port 8080",
        ),
        ("vllm serve --max-model-len 4096", r"names no model: --max-model-len 4096"),
        ("set -e\npodman start my-vllm\nls", r"The nearest was: podman start my-vllm$"),
        ("container: img\nmodel: a/b\nenv: {}\nenv: {}\n", "the key 'env' is given twice"),
    ],
)
def test_what_is_refused_is_named_by_what_came_nearest(text: str, told: str) -> None:
    with pytest.raises(ProfileError, match=told):
        importers.import_profiles(text)


def test_labels_of_a_case_are_no_steps() -> None:
    text = 'case "$1" in\n  nomic)\n    X="--max-num-seqs 4"\n    ;;\n  a|*) X= ;;\nesac\nvllm serve a/b --dtype auto\n'
    imported = importers.import_profiles(text)
    assert imported.profiles[0]["args"] == {"dtype": "auto"}
    assert "a step beside the engine" not in said(imported)


@pytest.mark.parametrize("word", ['${m[@]+"${m[@]}"}', '${m[@]:+"${m[@]}"}', '"${m[@]:-}"', '"${m[@]-}"', "${m[@]}"])
def test_an_array_that_may_be_empty_gives_its_words(word: str) -> None:
    made = only(f"m=(-v /a:/b)\npodman run {word} {IMAGE} --model a/b\n")
    assert made["image"] == IMAGE
    assert made["mounts"] == [{"source": "/a", "target": "/b", "read_only": False}]


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


def test_blanks_behind_a_continuation_do_not_end_the_command() -> None:
    imported = importers.import_profiles(f"podman run \\ \n  {IMAGE} --model a/b \\\t \n --dtype auto\n")
    assert imported.profiles[0]["args"] == {"dtype": "auto"}
    assert "rewritten: \\:" in said(imported)


@pytest.mark.parametrize("program", ["llama-server-latest", "llama-server-cuda13", "llama-server-b6500"])
def test_a_program_with_its_build_behind_its_name_is_known(program: str) -> None:
    assert only(f"/opt/{program} -m /m/a.gguf")["command"] == [f"/opt/{program}"]


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


def test_groups_are_named_and_left_out() -> None:
    text = "models:\n  A: {cmd: llama-server -m /a.gguf}\ngroups:\n  both: {swap: false, members: [A]}\n"
    imported = importers.import_profiles(text)
    assert imported.settings == ()
    assert "groups: sparkdash decides by measured memory what runs together" in said(imported)


@pytest.mark.parametrize("version", ["1", "2"])
def test_doubled_braces_of_a_recipe_are_json(version: str) -> None:
    recipe = (
        f"recipe_version: '{version}'\ncontainer: img\nmodel: a/b\ndefaults: {{port: 1}}\n"
        """command: |\n  vllm serve a/b --media-io-kwargs '{{"video": {{"fps": 2}}}}' --port {port}\n"""
    )
    assert only(recipe)["args"] == {"media-io-kwargs": {"video": {"fps": 2}}}


def test_an_unquoted_variable_is_split_into_words_and_a_quoted_one_is_not() -> None:
    line = (
        'OPTS="-e A=1 --gpus all"\nEXTRA="--max-num-seqs 4 --enforce-eager"\nNONE=\n'
        'podman run $OPTS $NONE img vllm serve a/b $EXTRA --chat-template "a $EXTRA" --x=1$NONE'
    )
    profile = only(line)
    assert profile["env"] == {"A": "1"}
    assert "gpu" not in profile
    assert profile["args"] == {
        "max-num-seqs": 4,
        "enforce-eager": True,
        "chat-template": "a --max-num-seqs 4 --enforce-eager",
        "x": 1,
    }


@pytest.mark.parametrize("line", ["--port 8000${TP:+ --seed $TP}", "$PORT$SEED", "$PORT_AND$NONE--seed 2"])
def test_white_space_at_the_ends_of_an_unquoted_variable_separates_words(line: str) -> None:
    given = 'TP=2\nPORT="--max-num-seqs 4"\nSEED=" --seed 2"\nPORT_AND="--max-num-seqs 4 "\nNONE=\n'
    assert only(f"{given}vllm serve a/b {line}")["args"]["seed"] == 2


def test_short_flags_become_their_long_ones_and_unknown_ones_are_named() -> None:
    llama = only("llama-server -m /m/x.gguf -ot exps=CPU -ot attn=CUDA0 -ts 1,1 --lora a.gguf --lora b.gguf -ncmoe 3")
    assert llama["args"] == {
        "override-tensor": ["exps=CPU", "attn=CUDA0"],
        "tensor-split": "1,1",
        "lora": ["a.gguf", "b.gguf"],
        "n-cpu-moe": 3,
    }
    imported = importers.import_profiles("vllm serve a/b -O3 -dcp 2 -zz 9")
    assert imported.profiles[0]["args"] == {"optimization-level": 3, "decode-context-parallel-size": 2}
    assert "unknown: -zz: a short flag that is not known, left out with its value" in said(imported)


@pytest.mark.parametrize(
    "line",
    [
        "docker run eugr/spark-vllm:1 serve a/b --seed 1",
        'docker run --entrypoint \'["vllm", "serve"]\' img a/b --seed 1',
        "nerdctl run img vllm serve a/b --seed 1",
        "Y=a\npodman run img vllm serve ${X:-$Y/b} --seed ${S:-${T:-1}}",
        "podman run img vllm serve a/b ${DEBUG:+--debug} --seed 1",
        "podman run img bash -c -i 'vllm serve a/b --seed 1'",
        "podman run img bash -i -lc 'exec vllm serve a/b --seed 1'",
        "sudo -E podman run img vllm serve a/b --seed 1",
        "$ podman run img vllm serve a/b --seed 1",
        "uv run --with ray vllm serve a/b --seed 1",
        "cat > note <<'EOF'\n  it's open (\nEOF\nvllm serve a/b --seed 1",
        "python3.12 -m vllm.entrypoints.openai.api_server --model a/b --seed 1",
        "/opt/bin/vllm-0.19.1 serve a/b --seed 1",
    ],
)
def test_common_ways_to_start_an_engine_are_understood(line: str) -> None:
    profile = only(line)
    assert (profile["engine"], profile["models"], profile["args"]) == ("vllm", {"target": {"hf": "a/b"}}, {"seed": 1})


def test_steps_beside_the_engine_are_named() -> None:
    inner = "cd /w && pip install flash-x && export VLLM_A=1 && VLLM_B=2 vllm serve a/b"
    imported = importers.import_profiles(f"podman run img bash -c '{inner}'")
    assert imported.profiles[0]["env"] == {"VLLM_A": "1", "VLLM_B": "2"}
    assert "dropped: pip install flash-x: a step beside the engine" in said(imported)
    assert "cd /w" not in said(imported)


def test_exported_variables_reach_the_engine_and_secrets_only_by_name() -> None:
    imported = importers.import_profiles("export VLLM_A=1 HF_TOKEN=hf_abc\nvllm serve a/b")
    assert (imported.profiles[0]["env"], imported.profiles[0]["env_from"]) == ({"VLLM_A": "1"}, ["HF_TOKEN"])
    assert "hf_abc" not in str(imported)
    named = only("export CACHE=/c HF_TOKEN=hf_abc\npodman run -e CACHE -e HF_TOKEN img vllm serve a/b")
    assert (named["env"], named["env_from"]) == ({"CACHE": "/c"}, ["HF_TOKEN"])


SWAP = """
globalTTL: 600
hooks: {on_startup: {preload: [m, gone]}}
routing: {router: {use: group}}
models:
  m:
    cmd: podman run --device nvidia.com/gpu=all img vllm serve a/b
    concurrencyLimit: 4
    useModelName: a/b
    filters:
      stripParams: "temperature, model, top_p"
      setParams: {seed: 1}
      setParamsByID: {"${MODEL_ID}:high": {chat_template_kwargs: {reasoning_effort: high}}, other: {x: 1}}
peers:
  far: {proxy: "http://192.0.2.1:8080", apiKey: sk-secret, models: [big]}
  cloud: {proxy: "https://example.test/v1", apiKey: "${env.CLOUD_KEY}", models: [z/glm]}
"""


def test_a_whole_llama_swap_configuration_becomes_profiles_and_settings() -> None:
    imported = importers.import_profiles(SWAP)
    local, far, cloud = imported.profiles
    assert local["request_set"] == {"seed": 1}
    assert local["request_strip"] == ["temperature", "top_p"]
    assert local["modes"] == {"high": {"chat_template_kwargs": {"reasoning_effort": "high"}}}
    assert far == {
        "profile": "far-big", "engine": "remote", "url": "http://192.0.2.1:8080/v1", "model_id": "big",
        "key_env": "FAR_API_KEY", "serves": ["far/big"],
    }  # fmt: skip
    assert (cloud["url"], cloud["key_env"]) == ("https://example.test/v1", "CLOUD_KEY")
    assert "sk-secret" not in str(imported)
    text = "\n".join(imported.settings)
    assert tomllib.loads(text) == {
        "preload": ["m"], "idle_ttl_s": 600, "policy": {"m": {"max_concurrency": 4}},
    }  # fmt: skip
    Settings.model_validate(tomllib.loads(text))
    assert "unknown: models.m.filters.setParamsByID.other" in said(imported)
    texts = {one["profile"]: importers.yaml_text(one, imported, "x") for one in imported.profiles}
    assert importers.load_imported(texts).problems == ()


COMPOSE = """
services:
  coder:
    image: ${IMAGE:-vllm/vllm-openai}:v0.27.1
    command: --model a/b --max-model-len 4096 --chat-template '/t/x y.jinja'
    environment: {VLLM_X: 1, HF_TOKEN: "${HF_TOKEN}", FLAG: true}
    volumes:
      - /data:/data:ro
      - {type: bind, source: /cfg, target: /cfg, read_only: true}
    shm_size: 16g
    ports: ["8000:8000"]
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}
    restart: always
  small:
    image: ghcr.io/ggml-org/llama.cpp:server
    entrypoint: ["/app/llama-server"]
    command: ["-m", "/models/x.gguf", "-c", "4096", "--alias", "x$$y"]
  db: {image: postgres}
"""


def test_a_compose_file_gives_a_profile_for_each_service_with_an_engine() -> None:
    imported = importers.import_profiles(COMPOSE)
    coder, small = imported.profiles
    assert (coder["profile"], coder["image"], coder["shm_size"]) == ("coder", "vllm/vllm-openai:v0.27.1", "16g")
    assert coder["args"] == {"max-model-len": 4096, "chat-template": "/t/x y.jinja"}
    assert (coder["env"], coder["env_from"]) == ({"VLLM_X": "1", "FLAG": "true"}, ["HF_TOKEN"])
    assert coder["mounts"] == [{"source": "/data", "target": "/data"}, {"source": "/cfg", "target": "/cfg"}]
    assert "gpu" not in coder
    assert (small["profile"], small["engine"], small["args"]) == ("small", "llamacpp", {"ctx-size": 4096})
    assert "postgres: its command starts no engine" in said(imported)
    texts = {one["profile"]: importers.yaml_text(one, imported, "x") for one in imported.profiles}
    assert importers.load_imported(texts).problems == ()


def test_every_mod_of_a_recipe_is_named_in_the_report_and_in_the_profile() -> None:
    recipe = "container: img\nmodel: a/b\nmods:\n- mods/fix-one\n- '@own/two'\ncommand: vllm serve a/b\n"
    imported = importers.import_profiles(recipe)
    assert [one.what for one in imported.remarks if one.kind == "dropped"] == ["mods: mods/fix-one", "mods: @own/two"]
    text = importers.yaml_text(imported.profiles[0], imported, "x")
    assert "mods/fix-one" in text
    assert "@own/two" in text
    assert "mods" not in said(importers.import_profiles(recipe.replace("- mods/fix-one\n- '@own/two'\n", "# none\n")))


def test_a_recipe_for_one_box_takes_no_second_one_from_its_ranks() -> None:
    recipe = (
        "container: img\nmodel: a/b\nsolo_only: true\ndefaults: {tensor_parallel: 2}\n"
        "command: vllm serve a/b -tp {tensor_parallel} --distributed-executor-backend ray\n"
    )
    imported = importers.import_profiles(recipe)
    assert imported.profiles[0].get("nodes", 1) == 1
    assert not imported.profiles[0].get("args")
    assert "tensor-parallel-size" in said(imported)
    assert "--distributed-executor-backend" in said(imported)


def test_a_word_in_angle_brackets_is_a_redirection_and_is_named() -> None:
    imported = importers.import_profiles("vllm serve a/b --data-parallel-address <leader_ip> --seed 1 2>&1 >/dev/null")
    assert "dropped: <leader_ip: is a redirection" in said(imported)
    assert "/dev/null" not in said(imported)


def test_flags_of_another_branch_are_named() -> None:
    text = (
        'if [ -n "$A" ]; then\nM="--gpu-memory-utilization 0.1 --kv-cache-memory-bytes 10G"\nelse\n'
        'M="--gpu-memory-utilization 0.9"\nfi\nvllm serve a/b $M\n'
    )
    assert only(text)["args"] == {"gpu-memory-utilization": 0.9}
    assert "dropped: $M" in said(importers.import_profiles(text))
    assert "not --gpu-memory-utilization 0.1 --kv-cache-memory-bytes 10G" in said(importers.import_profiles(text))


def test_quotes_in_a_compose_file_s_values_are_characters() -> None:
    text = """
services:
  one:
    image: vllm/vllm-openai:v0.26.0
    command: [org/m, --speculative-config, '{"method":"mtp","n":${N:-3}}', --chat-template, "it's $${X}"]
  two:
    image: img
    command:
    - bash
    - -lc
    - >
      echo "vLLM's own"; M="$$(awk '/^Mem/{print $$2}' /proc/meminfo)";
      exec vllm serve org/m --max-model-len ${L:-4096}
"""
    one, two = importers.import_profiles(text).profiles
    assert one["args"] == {"speculative-config": {"method": "mtp", "n": 3}, "chat-template": "it's ${X}"}
    assert two["args"] == {"max-model-len": 4096}


def test_a_comment_with_a_macro_of_several_lines_is_a_comment() -> None:
    text = (
        "macros:\n  engine: >\n    /opt/llama-server-ec9e0301 --port ${PORT}\n"
        "models:\n  one:\n    cmd: |\n      # ${engine} is above\n      ${engine}\n      --model /m.gguf\n      --ctx-size 8192\n"
    )
    made = only(text)
    assert (made["command"], made["args"]) == (["/opt/llama-server-ec9e0301"], {"ctx-size": 8192})


def test_a_command_s_output_stays_the_name_of_its_variable() -> None:
    """Its own quotes would end those of the words around it."""
    text = (
        "G=$(awk 'BEGIN {\n printf \"%.2f\", 1\n}')\n"
        "docker run --gpus all img bash -c \"exec vllm serve a/b --gpu-memory-utilization '${G}' --max-num-seqs 4\"\n"
    )
    assert only(text)["args"] == {"gpu-memory-utilization": "${G}", "max-num-seqs": 4}


def test_a_shell_around_a_command_is_taken_off() -> None:
    cmd = "/bin/sh -c 'exec env A=/x /opt/llama-server --model /m.gguf -c 8192 2>>/var/log/x'"
    made = only(f"models:\n  one:\n    cmd: {cmd}\n")
    assert (made["command"], made["args"]) == (["/opt/llama-server"], {"ctx-size": 8192})
    assert only('bash -lc "vllm serve a/b --seed 1"')["args"] == {"seed": 1}

"""Command lines and scripts as people write them: nothing that the engine was told is lost in silence."""

import tomllib
from typing import Any

import pytest

from sparkdash.catalog import importers
from sparkdash.settings import Settings
from tests.catalog.conftest import said

IMAGE = "docker.io/vllm/vllm-openai:v0.27.1"


AB = {"target": {"hf": "a/b"}}
NO_WORDS, REDIRECTED = "stands for words that are not in the text", "is a redirection to the shell"
SPACED = 'TP=2\nPORT="--max-num-seqs 4"\nSEED=" --seed 2"\nPORT_AND="--max-num-seqs 4 "\nNONE=\n'
RECIPE = "container: img\nmodel: a/b\n"
SOLO = (
    f"{RECIPE}solo_only: true\ndefaults: {{tensor_parallel: 2}}\ncommand: |\n  vllm serve a/b -tp {{tensor_parallel}} "
)
BRACES = """container: img
model: a/b
defaults: {port: 1}
command: |
  vllm serve a/b --media-io-kwargs '{{"video": {{"fps": 2}}}}' --port {port}
"""
READ: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "a here-document with YAML is a script's": (
        f"#!/bin/bash\ncat > c.yaml <<EOF\nmodels:\n  a: 1\nruntime: x\nEOF\npodman run {IMAGE} --model a/b\n",
        {"image": IMAGE}, ()),
    "a subshell": ("(cd /x && vllm serve a/b --dtype auto)", {"args": {"dtype": "auto"}}, ("!cd /x",)),
    "the script's arguments": (
        'MODEL=${1:-a/b}\nLEN="${2:-4096}"\nvllm serve "$MODEL" --max-model-len $LEN ${@:+--seed 1} --dtype auto\n',
        {"args": {"max-model-len": 4096, "dtype": "auto"}, "models": AB}, ()),
    "dotted names": (
        "vllm serve a/b --default-chat-template-kwargs.enable_thinking false --x.y null --x.z=true",
        {"args": {"default-chat-template-kwargs": {"enable_thinking": False}, "x": {"y": None, "z": True}}}, ()),
    "short dotted names": (
        "vllm serve a/b -cc.pass_config.fuse=true -cc.partition=false -sc.method mtp",
        {"args": {"compilation-config": {"pass_config": {"fuse": True}, "partition": False},
            "speculative-config": {"method": "mtp"}}}, ()),
    "a list in one word": (
        "vllm serve a/b --disable-access-log-for-endpoints /health,/metrics --enable-lora",
        {"args": {"disable-access-log-for-endpoints": "/health,/metrics", "enable-lora": True}}, ()),
    "a switch before the model": (
        "vllm serve -dc {} --log-error-stack a/b",
        {"args": {"diffusion-config": {}, "log-error-stack": True}, "models": AB}, ()),
    "SGLang's own command": ("sglang serve --model-path a/b --skip-tokenizer-init",
        {"args": {"skip-tokenizer-init": True}, "models": AB}, ()),
    "llama.cpp's short flags": (
        "llama-server -m /m.gguf -dr x -lm mlock -nr -fit on -ndio -ot exps=CPU -ot attn=CUDA0 -ts 1,1"
        " --lora a.gguf --lora b.gguf -ncmoe 3",
        {"models": {"target": {"path": "/m.gguf"}}, "args": {
            "docker-repo": "x", "load-mode": "mlock", "no-repack": True, "fit": "on", "no-direct-io": True,
            "tensor-split": "1,1",
            "override-tensor": ["exps=CPU", "attn=CUDA0"], "lora": ["a.gguf", "b.gguf"], "n-cpu-moe": 3}}, ()),
    "vLLM's short flags, and an unknown one": (
        "vllm serve a/b -O3 -dcp 2 -zz 9", {"args": {"optimization-level": 3, "decode-context-parallel-size": 2}},
        ("unknown: -zz: a short flag that is not known, left out with its value",)),
    "a recipe's default with hyphens": (
        f"{RECIPE}defaults: {{max-num-seqs: 16}}\ncommand: vllm serve a/b --max-num-seqs {{max-num-seqs}}\n",
        {"args": {"max-num-seqs": 16}}, ()),
    "doubled braces of a recipe": (f"recipe_version: '1'\n{BRACES}",
        {"args": {"media-io-kwargs": {"video": {"fps": 2}}}}, ()),
    "doubled braces of a later one": (f"recipe_version: '2'\n{BRACES}",
        {"args": {"media-io-kwargs": {"video": {"fps": 2}}}}, ()),
    "a recipe for one box": (
        f"{SOLO}--distributed-executor-backend ray\n", {"args": {}, "nodes": None},
        ("tensor-parallel-size", "--distributed-executor-backend")),
    "a recipe for one box, its drafter too": (
        SOLO + """--speculative-config '{{"method":"dflash","model":"c/d","""
        """"draft_tensor_parallel_size":{tensor_parallel}}}'\n""",
        {"args": {"speculative-config": {"method": "dflash", "model": "{drafter}"}}},
        ("draft_tensor_parallel_size: solo_only",)),
    "labels of a case are no steps": (
        'case "$1" in\n  nomic)\n    X="--max-num-seqs 4"\n    ;;\n  a|*) X= ;;\nesac\nvllm serve a/b --dtype auto\n',
        {"args": {"dtype": "auto"}}, ("!a step beside the engine",)),
    "an argument that must be given is one word": (
        "R=${1:?usage: x.sh recipes/<model>.env}\nvllm serve a/b --dtype auto\n", {"args": {"dtype": "auto"}},
        ("!a step beside the engine",)),
    "an array that the script never fills": (
        f'podman run ${{m[@]+"${{m[@]}}"}} {IMAGE} --model a/b\n', {"image": IMAGE}, ("${m[@]+",)),
    "blanks behind a continuation": (
        f"podman run \\ \n  {IMAGE} --model a/b \\\t \n --dtype auto\n", {"args": {"dtype": "auto"}},
        ("rewritten: \\:",)),
    "aliases inside of anchors": (
        'x-env: &env {A: "1"}\nx-base: &base\n  image: vllm/vllm-openai\n  environment: *env\n'
        "services:\n  a: {<<: *base, command: --model a/b}\n", {"env": {"A": "1"}}, ()),
    "an unquoted variable is split, a quoted one is not": (
        'OPTS="-e A=1 --gpus all"\nEXTRA="--max-num-seqs 4 --enforce-eager"\nNONE=\n'
        'podman run $OPTS $NONE img vllm serve a/b $EXTRA --chat-template "a $EXTRA" --x=1$NONE',
        {"env": {"A": "1"}, "gpu": None, "args": {
            "max-num-seqs": 4, "enforce-eager": True, "chat-template": "a --max-num-seqs 4 --enforce-eager", "x": 1}},
            ()),
    "white space within a variable": (f"{SPACED}vllm serve a/b --x 80${{TP:+ --seed $TP}}",
        {"args": {"x": 80, "seed": 2}}, ()),
    "white space before it": (f"{SPACED}vllm serve a/b $PORT$SEED", {"args": {"max-num-seqs": 4, "seed": 2}}, ()),
    "white space behind it": (f"{SPACED}vllm serve a/b $PORT_AND$NONE--seed 2",
        {"args": {"max-num-seqs": 4, "seed": 2}}, ()),
    "steps beside the engine": (
        "podman run img bash -c 'cd /w && pip install flash-x && export VLLM_A=1 && VLLM_B=2 vllm serve a/b'",
        {"env": {"VLLM_A": "1", "VLLM_B": "2"}}, ("dropped: pip install flash-x: a step beside the engine", "!cd /w")),
    "exported variables, secrets only by name": (
        "export VLLM_A=1 HF_TOKEN=hf_abc\nvllm serve a/b", {"env": {"VLLM_A": "1"}, "env_from": ["HF_TOKEN"]},
        ("!hf_abc",)),
    "a flag that only counts tokens is no secret": (
        "podman run -e HF_TOKEN=hf_abc img vllm serve a/b --api-key sk-abc --max-num-batched-tokens 9",
        {"args": {"max-num-batched-tokens": 9}}, ("!sk-abc",)),
    "exported variables that a container names": (
        "export CACHE=/c HF_TOKEN=hf_abc\npodman run -e CACHE -e HF_TOKEN img vllm serve a/b",
        {"env": {"CACHE": "/c"}, "env_from": ["HF_TOKEN"]}, ("!hf_abc",)),
    "a word in angle brackets is a redirection": (
        "vllm serve a/b --data-parallel-address <leader_ip> --seed 1 2>&1 >/dev/null", {},
        ("dropped: <leader_ip: is a redirection", "!/dev/null")),
    "flags of another branch": (
        'if [ -n "$A" ]; then\nM="--gpu-memory-utilization 0.1 --kv-cache-memory-bytes 10G"\nelse\n'
        'M="--gpu-memory-utilization 0.9"\nfi\nvllm serve a/b $M\n',
        {"args": {"gpu-memory-utilization": 0.9}},
        ("dropped: $M", "not --gpu-memory-utilization 0.1 --kv-cache-memory-bytes 10G")),
    "a comment with a macro of several lines": (
        "macros:\n  engine: >\n    /opt/llama-server-ec9e0301 --port ${PORT}\n"
        "models:\n  one:\n    cmd: |\n      # ${engine} is above\n      ${engine}\n"
        "      --model /m.gguf\n      --ctx-size 8192\n",
        {"command": ["/opt/llama-server-ec9e0301"], "args": {"ctx-size": 8192}}, ()),
    "a command's output stays the name of its variable": (
        "G=$(awk 'BEGIN {\n printf \"%.2f\", 1\n}')\n"
        "docker run --gpus all img bash -c \"exec vllm serve a/b --gpu-memory-utilization '${G}' --max-num-seqs 4\"\n",
        {"args": {"gpu-memory-utilization": "${G}", "max-num-seqs": 4}}, ()),
    "a shell around a command of llama-swap": (
        "models:\n  one:\n"
        "    cmd: /bin/sh -c 'exec env A=/x /opt/llama-server --model /m.gguf -c 8192 2>>/var/log/x'\n",
        {"command": ["/opt/llama-server"], "args": {"ctx-size": 8192}}, ()),
    "groups": (
        "models:\n  A: {cmd: llama-server -m /a.gguf}\ngroups:\n  both: {swap: false, members: [A]}\n",
        {"profile": "A"},
        ("groups: sparkdash decides by measured memory what runs together",)),
    "a model after a flag with one value": ("vllm serve --max-model-len 4096 own/model",
        {"models": {"target": {"hf": "own/model"}}}, ()),
    "a list that is not known to be one": (
        "vllm serve own/model --own-flag a b c", {"args": None},
        ("unknown: --own-flag a b c: has 3 values, and is not known to take a list",)),
    "flags of every shape": (
        "vllm serve --trust-remote-code a/b --max_model_len=5 -tp 2 --a.b.c 1 --a.d x"
        " --j '{\"k\": [1]}' --r 1 --r 2 --n -1",
        {"profile": "b", "models": AB, "nodes": 2, "args": {
            "trust-remote-code": True, "max-model-len": 5, "tensor-parallel-size": 2, "a": {"b": {"c": 1}, "d": "x"},
            "j": {"k": [1]}, "r": 2, "n": -1}}, ()),
    "addresses of ranks, which are found at a start": (
        "vllm serve a/b -tp 2 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29501 --headless",
        {"nodes": 2, "args": {"tensor-parallel-size": 2}}, ("dropped: --master-addr",)),
    "a recipe's default of zero is a flag, null and false are none": (
        "recipe_version: '2'\nmodel: org/x\nruntime: vllm\ncontainer: i:1\n"
        "defaults: {seed: 0, enforce_eager: false, max_num_seqs: null, port: 8000}\n", {"args": {"seed": 0}}, ()),
    "a flag precedes its variable": (
        "docker run -e LLAMA_ARG_CTX_SIZE=1 -e LLAMA_ARG_JINJA=0 ghcr.io/ggml-org/llama.cpp:server -m /m.gguf -c 2",
        {"args": {"ctx-size": 2}}, ()),
    "an array that a branch replaces": (
        """case $1 in
fast) ARGS=(--speculative-config '{"method": "mtp"}' --max-num-seqs 4) ;;
*) ARGS=(--max-num-seqs 8) ;;
esac
podman run img vllm serve a/b "${ARGS[@]}"
""", {"args": {"max-num-seqs": 8}}, ("not --speculative-config",)),
    "an exported text that a branch replaces": (
        "export A=zzz P=/a\nif true; then\n  export A=2 P+=/b\nfi\nvllm serve a/b --seed $A\n",
        {"args": {"seed": 2}, "env": {"A": "2", "P": "/a/b"}},
        ("$A: is assigned more than once and the last text holds, not zzz",)),
    "a text of another branch whose flags are the same": (
        'case "$1" in\n a) M=a/small; D="--seed 1" ;;\n b) M=a/big; D="--seed 2" ;;\nesac\nvllm serve $M $D\n',
        {"models": {"target": {"hf": "a/big"}}},
        ("$M: is assigned more than once and the last text holds, not a/small", "not --seed 1")),
    "arguments of a shell's script": (
        """docker run img sh -c 'exec vllm serve "$1" --max-num-seqs "$2"' sh a/b 4 zzz""",
        {"models": AB, "args": {"max-num-seqs": 4}}, ("unknown: zzz: ",)),
    "all arguments of a shell's script": (
        """docker run img bash -c 'vllm serve a/b "$@"' -- --dtype auto""", {"models": AB, "args": {"dtype": "auto"}},
        ()),
    "an own build of vLLM, by its image and its model": (
        "docker run opea/vllm-gaudi:1.4 --model a/b --dtype auto", {"engine": "vllm", "models": AB}, ()),
    "names of a llama-swap configuration that lead nowhere": (
        """models:
  a: {cmd: llama-server -m /m.gguf, aliases: [ok, "--no alias"], filters: {strip_params: "suffix, top_k"}}
hooks: {on_startup: {preload: [gone], later: 1}, on_end: 1}
""", {"serves": ["ok"], "request_strip": ["suffix", "top_k"]},
        ("--no alias", "hooks.on_startup.preload: 'gone'", "hooks.on_startup.later", "hooks.on_end")),
    "quotes within a quadlet's words, as podman's parser has them": (
        """[Container]
Image=vllm/vllm-openai:v1
PodmanArgs=--health-cmd="curl -sf http://localhost:8080/health || exit 1" --shm-size 4g
Exec=vllm serve a/b --default-chat-template-kwargs='{"a": "b c"}'
""", {"image": "vllm/vllm-openai:v1", "shm_size": "4g", "args": {"default-chat-template-kwargs": {"a": "b c"}}}, ()),
    "a line of a unit that a later one replaces": (
        "[Container]\nImage=vllm/vllm-openai:v1\nExec=--model a/zzz\nExec=--model c/d\n",
        {"models": {"target": {"hf": "c/d"}}},
        ("Container.Exec: is given more than once; the last one holds, not --model a/zzz",)),
    "a text that is evaluated": (
        'C="vllm serve a/b"\nC+=" --seed 5"\neval "$C --dtype auto"\n', {"args": {"seed": 5, "dtype": "auto"}}, ()),
    "a flag of Python's own": ("python3 -u -m vllm.entrypoints.openai.api_server --model a/b", {"models": AB}, ()),
    **{f"lines of a compose command, joined by {style}": (
        f"services:\n  a:\n    image: vllm/vllm-openai:v1\n    command: {style}\n"
        "      --model a/b \\\n      --seed 5\n",
        {"models": AB, "args": {"seed": 5}}, ()) for style in "|>"},
    **{line: (line, {"models": {"target": {"path": "/m.gguf"}}, "args": args}, (told,)) for line, args, told in (
        ("llama-server -m /m.gguf --jinja $MORE", {"jinja": True}, NO_WORDS),
        ("llama-server -m /m.gguf ${MORE}", None, NO_WORDS),
        ("llama-server $MORE -m /m.gguf -c 4096", {"ctx-size": 4096}, NO_WORDS),
        ('llama-server -m /m.gguf -np 2 "$@"', {"parallel": 2}, NO_WORDS),
        ("llama-server -m /m.gguf -np 2 > log 2>&1", {"parallel": 2}, REDIRECTED),
        ("llama-server -m /m.gguf -np 2 \\\n  >log &", {"parallel": 2}, REDIRECTED),
    )},
    **{f"an array that may be empty: {word}": (
        f"m=(-v /a:/b)\npodman run {word} {IMAGE} --model a/b\n",
        {"image": IMAGE, "mounts": [{"source": "/a", "target": "/b", "read_only": False}]}, ())
       for word in ('${m[@]+"${m[@]}"}', '${m[@]:+"${m[@]}"}', '"${m[@]:-}"', '"${m[@]-}"', "${m[@]}")},
    **{line: (f"{line}\nvllm serve a/b\n", {"models": AB},
        ("another script, which is not read",)) for line in (". ./.env", 'source "$HOME/x.env"')},
    **{program: (f"/opt/{program} -m /m/a.gguf", {"command": [f"/opt/{program}"]}, ())
       for program in ("llama-server-latest", "llama-server-cuda13", "llama-server-b6500")},
    **{line: (line, {"engine": "vllm", "models": AB, "args": {"seed": 1}}, ()) for line in (
        "docker run eugr/spark-vllm:1 serve a/b --seed 1", "nerdctl run img vllm serve a/b --seed 1",
        'docker run --entrypoint \'["vllm", "serve"]\' img a/b --seed 1',
        "Y=a\npodman run img vllm serve ${X:-$Y/b} --seed ${S:-${T:-1}}",
        "podman run img vllm serve a/b ${DEBUG:+--debug} --seed 1",
        "podman run img bash -c -i 'vllm serve a/b --seed 1'",
        "podman run img bash -i -lc 'exec vllm serve a/b --seed 1'",
        'bash -lc "vllm serve a/b --seed 1"', "sudo -E podman run img vllm serve a/b --seed 1",
        "$ podman run img vllm serve a/b --seed 1",
        "uv run --with ray vllm serve a/b --seed 1", "cat > note <<'EOF'\n  it's open (\nEOF\nvllm serve a/b --seed 1",
        "python3.12 -m vllm.entrypoints.openai.api_server --model a/b --seed 1",
        "/opt/bin/vllm-0.19.1 serve a/b --seed 1",
    )},
}  # fmt: skip


@pytest.mark.parametrize(("text", "made", "told"), READ.values(), ids=READ)
def test_the_engine_is_told_what_the_text_says(text: str, made: dict[str, Any], told: tuple[str, ...]) -> None:
    """The one profile has these fields (None: not that one), and the report these words (`!`: not those)."""
    imported = importers.import_profiles(text)
    (profile,) = imported.profiles
    assert {key: profile.get(key) for key in made} == made
    assert not [words for words in told if (words.removeprefix("!") in said(imported)) is words.startswith("!")]
    assert "hf_abc" not in str(imported)
    assert imported.settings == ()


def test_a_compose_file_s_folder_holds_its_relative_volumes() -> None:
    text = (
        f"services:\n  a:\n    image: {IMAGE}\n    command: --model a/b\n    volumes: [./models:/models, ../x:/x:ro]\n"
    )
    (made,) = importers.import_profiles(text, folder="/srv/stack").profiles
    assert [one["source"] for one in made["mounts"]] == ["/srv/stack/models", "/srv/x"]


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

"""Importers: scripts, recipes and llama-swap configurations become profiles."""

from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog import importers
from sparkdash.catalog.importers.values import Imported
from sparkdash.errors import ProfileError
from tests.catalog.conftest import said

DATA = Path(__file__).parents[1] / "data" / "imports"


def got(file: str) -> Imported:
    return importers.import_profiles((DATA / file).read_text())


@pytest.mark.parametrize("file", sorted(p.name for p in DATA.iterdir() if p.is_file() and p.name != "llama_swap.yaml"))
def test_every_input_becomes_a_profile_that_loads(file: str) -> None:
    imported = got(file)
    (profile,) = imported.profiles
    found = importers.load_imported({"x": importers.yaml_text(profile, imported, file)})
    assert found.problems == ()
    assert list(found.profiles) == [profile["profile"]]


def test_the_published_line_keeps_what_it_says() -> None:
    """Image, mount, variable and flags are there; what sparkdash decides itself is named in the report."""
    imported = got("turbo_eagle3.sh")
    assert imported.profiles[0] == {
        "profile": "vllm-turbo",
        "engine": "vllm",
        "image": "localhost/vllm-turbo:dual",
        "models": {
            "target": {"path": "/data/tensordata/Qwen3-Coder-30B-A3B-Instruct-NVFP4"},
            "drafter": {"path": "/data/tensordata/Qwen3-Coder-30B-A3B-EAGLE3"},
        },
        "serves": ["qwen3-coder"],
        "args": {
            "gpu-memory-utilization": 0.05,
            "kv-cache-memory-bytes": "10G",
            "max-model-len": 32768,
            "trust-remote-code": True,
            "speculative-config": {"model": "{drafter}", "method": "eagle3", "num_speculative_tokens": 1},
        },
        "env": {"VLLM_USE_FLASHINFER_MOE_FP4": "0"},
        "mounts": [{"source": "/data/tensordata", "target": "/data/tensordata", "read_only": False}],
    }
    assert "rewritten: --speculative-model, --speculative-method, --num-speculative-tokens" in said(imported)
    assert "dropped: --security-opt label=disable" in said(imported)


def test_lists_are_read_as_the_engine_takes_them() -> None:
    """Several words, a flag that is repeated, JSON; where only one is given it stays one."""
    imported = got("lists.sh")
    assert imported.profiles[0]["args"] == {
        "gpu-memory-utilization": 0.8,
        "cudagraph-capture-sizes": [1, 2, 4, 8],
        "lora-modules": [{"name": "sql", "path": "/data/lora"}, "chat=/data/chat"],
        "middleware": ["own.First", "own.Second"],
        "limit-mm-per-prompt": {"image": 2},
        "allowed-origins": ["https://a.example", "https://b.example"],
        "collect-detailed-traces": "model",
    }
    assert imported.profiles[0]["serves"] == ["lists", "small-one"]
    assert imported.remarks == ()


def test_the_written_file_is_readable() -> None:
    """Provenance and report stand above; short mappings stand on one line."""
    imported = got("llamacpp.sh")
    assert importers.yaml_text(imported.profiles[0], imported, "llamacpp.sh") == (
        "# Imported from llamacpp.sh (a command line).\n"
        "#\n"
        "# What it does not say as its source did:\n"
        "#   dropped: --host: sparkdash sets the address itself\n"
        "#   dropped: --port: sparkdash sets the address itself\n"
        "#   dropped: --no-mmap: sparkdash sets it by itself\n"
        "profile: minimax\n"
        "engine: llamacpp\n"
        "image: ghcr.io/ggml-org/llama.cpp:server-cuda\n"
        "command: [/app/llama-server]\n"
        "models:\n"
        "  target: {path: /models/gguf/MiniMax-M2.7-Q3.gguf}\n"
        "  drafter: {path: /models/gguf/draft.gguf}\n"
        "serves: [minimax-m2.7]\n"
        "args:\n"
        "  model-draft: '{drafter}'\n"
        "  ctx-size: 65536\n"
        "  n-gpu-layers: 999\n"
        "  flash-attn: 'on'\n"
        "  jinja: true\n"
    )


def test_variables_of_the_script_are_text_and_those_of_the_environment_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A literal assignment and a default are filled in; $HOME is `~`, never its text, and `'$X'` is no variable."""
    monkeypatch.setenv("HOME", "/secret-home")
    imported = importers.import_profiles(
        "M=/m/x\nF=(--max-num-seqs 2 # two\n --dtype auto)\n"
        'podman run -v $HOME/h:/h:ro -v $DATA/d:/d:ro --name a img vllm serve "$M" "${F[@]}" --seed ${S:-7} --x \'$M\' --y "$(date)" # end'
    )
    profile = imported.profiles[0]
    assert profile["models"] == {"target": {"path": "/m/x"}}
    assert profile["args"] == {"max-num-seqs": 2, "dtype": "auto", "seed": 7, "x": "$M", "y": "$(date)"}
    assert profile["mounts"] == [{"source": "~/h", "target": "/h"}, {"source": "$DATA/d", "target": "/d"}]
    assert "$DATA/d: a folder with a variable in it" in said(imported)
    assert "secret-home" not in said(imported)


def test_several_commands_become_several_profiles() -> None:
    line = "docker run --gpus all --name a img vllm serve x/y --served-model-name z\n"
    assert [(one["profile"], one.get("serves")) for one in importers.import_profiles(line * 2).profiles] == [
        ("a", ["z"]),
        ("a-2", None),
    ]


def test_a_recipe_is_filled_from_its_defaults() -> None:
    two, one, none = got("recipe_v2.yaml"), got("recipe_v1.yaml"), got("recipe_generated.yaml")
    assert two.profiles[0]["models"]["target"] == {"hf": "nvidia/Qwen3.6-35B-A3B-NVFP4", "revision": "abc123"}
    assert two.profiles[0]["args"]["speculative-config"] == {"method": "mtp", "num_speculative_tokens": 2}
    assert "unknown: surprise" in said(two)
    assert "dropped: mods" in said(two)
    assert "HF_TOKEN" not in two.profiles[0]["env"]
    assert one.profiles[0]["profile"] == "Glm-Air-AWQ"
    assert one.profiles[0]["args"] == {"max-model-len": 65536, "override-generation-config": {"top_k": 5}}
    assert none.profiles[0]["args"]["context-length"] == 8192
    assert none.profiles[0]["nodes"] == 2
    assert "cannot_run" not in none.profiles[0]


@pytest.mark.parametrize("file", ["sparkring_rank.yaml", "rank.txt"])
def test_a_file_of_one_rank_becomes_a_profile_for_all_boxes(file: str) -> None:
    """Names and addresses of the recipe's own box are left out, each of them told; a ring stays a ring."""
    found = importers.import_profiles((DATA / file).read_text())
    (made,) = found.profiles
    assert (made["engine"], made["nodes"], made["args"]["tensor-parallel-size"]) == ("vllm", 4, 4)
    env = made.get("env", {})
    assert not {"NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "VLLM_HOST_IP", "B12X_ROCE_PEER_HCA_MAP"} & env.keys()
    for name in ("NCCL_IB_HCA", "VLLM_HOST_IP", "--node-rank", "--headless", "/dev/infiniband"):
        assert any(name in str(remark) and remark.kind == "dropped" for remark in found.remarks), name
    assert not [remark for remark in found.remarks if remark.kind == "unknown"]
    if file.startswith("sparkring"):
        assert (made["topologies"], env["B12X_ROCE_HCA"]) == (["ring"], "{hca}")
        assert made["command"][-2:] == ["/opt/sparkring/toolchain/toolchain.py", "serve"]


OWN_IMAGE = """docker run --name r1 -e NODE_RANK="$RANK" -e NCCL_IB_ADDR_RANGE=192.168.192.0/24 -e NCCL_IB_HCA="$NCCL_IB_HCA" \\
  -e "$key=${!key}" "$IMAGE" "/models/$DIR" --served-model-name ds --tensor-parallel-size 4 --nnodes 4 --node-rank $RANK"""
SPARKRUN_04 = """recipe_version: "2"
model: a/b
runtime: sglang
container: x/y
min_nodes: 4
pull_image: true
defaults: {tensor_parallel: 4, chunked_prefill: 4096}
env: {CHUNK: "{config.chunked_prefill}", NNODES: "{launch.num_nodes}"}
"""


def recipe(topology: str, ranks: int = 2, more: str = "") -> str:
    return (
        f'recipe_version: "2"\nmodel: a/b\ncontainer: localhost/x\n{topology}\ndefaults: {{tensor_parallel: {ranks}}}\n'
        f"command: vllm serve {{model}} -tp {{tensor_parallel}} {more}\n"
    )


SPLIT = {"tensor-parallel-size": 2}
OVER_RAY = SPLIT | {"distributed-executor-backend": "ray"}
SIXTEEN = "it needs 16 nodes, and sparkdash starts an engine on 8 at most"


@pytest.mark.parametrize(("text", "nodes", "kept", "told"), [
    *((recipe(topology), 2, {"args": SPLIT, "cannot_run": None}, ())
      for topology in ("min_nodes: 2", "cluster_only: true", "mode: cluster", "runtime: vllm")),
    (recipe("min_nodes: 2", more="--distributed-executor-backend ray"), 2, {"args": OVER_RAY}, ()),
    (recipe("min_nodes: 2\nruntime: vllm-ray"), 2, {"args": OVER_RAY}, ()),
    (recipe("min_nodes: 4", ranks=4), 4, {"cannot_run": None}, ()),
    (recipe("min_nodes: 16", ranks=16), 16, {"cannot_run": SIXTEEN}, ()),
    (recipe("metadata: {hardware: x, notes: y}", ranks=1), None, {}, ("metadata (hardware, notes): describes the model",)),
    (OWN_IMAGE, 4, {"profile": "ds", "env": {"NODE_RANK": "{rank}"}}, ("-e $key:", "NCCL_IB_HCA=$NCCL_IB_HCA: sparkdash finds",
     "NCCL_IB_ADDR_RANGE=192.168.192.0/24: sparkdash finds", "as {rank}")),
    ("ray start --head --port 6379\nexec vllm serve a/b -tp 3 --distributed-executor-backend ray", 3, {},
     ("note: nodes: 3 boxes", "ray start --head --port 6379: sparkdash starts Ray on each box itself")),
    ("docker exec -it $C /bin/bash -c 'vllm serve a/b --tensor-parallel-size 4'", 4, {"models": {"target": {"hf": "a/b"}}},
     ("add `image`", "note: nodes: 4 boxes")),
    (SPARKRUN_04, 4, {"env": {"CHUNK": "4096"}}, ("NNODES={launch.num_nodes}", "dropped: pull_image")),
    ("llama-server -m /x.gguf --rpc 10.0.0.2:50052,10.0.0.3:50052", None, {"args": {"rpc": "10.0.0.2:50052,10.0.0.3:50052"}},
     ("note: --rpc: sparkdash starts no rpc-server",)),
])  # fmt: skip
def test_a_recipe_for_several_boxes_is_whole_or_tells_each_loss(
    text: str, nodes: int | None, kept: dict[str, Any], told: tuple[str, ...]
) -> None:
    """Forms of public launch scripts for three to eight Sparks (tonyd2wild, jnardiello, rhys101, NVIDIA's playbook)."""
    found = importers.import_profiles(text)
    (made,) = found.profiles
    assert (made.get("nodes"), {key: made.get(key) for key in kept}) == (nodes, kept)
    assert "env_from" not in made
    assert not [words for words in told if words not in said(found)]


def test_a_llama_swap_configuration_gives_a_profile_for_each_model() -> None:
    """Macros are filled in, aliases and filters kept; what has no place is named."""
    imported = got("llama_swap.yaml")
    coder, local = imported.profiles
    assert (coder["profile"], coder["about"]) == ("coder", "the coder")
    assert coder["serves"] == ["gpt-4o", "code"]
    assert (coder["request_set"], coder["request_strip"]) == ({"temperature": 0.2}, ["top_k"])
    assert imported.settings == ("", '[policy."coder"]', "idle_ttl_s = 300")
    assert local["models"] == {"target": {"path": "~/x.gguf"}}
    assert "dropped: groups" in said(imported)


LAUGHS = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
ROUTER = r"names no model.* \(its models are in /x/models\.ini: import that file\)"


@pytest.mark.parametrize(("text", "why"), [
    (f"models: {{}}\na0: &a0 [x, x]\n{LAUGHS}", "more than 20000 values"),
    ("models:\n  a: {cmd: sleep 1}\n  b: {cmd: '/opt/my-vllm --x 1'}\n", r"The nearest was: b: /opt/my-vllm --x 1"),
    ("services:\n  db: {image: postgres}\n  llm: {image: 'ghcr.io/me/llama-spark:1', command: --port 8080}\n",
     r"The nearest was: llm: ghcr.io/me/llama-spark:1 --port 8080"),
    ("vllm serve --max-model-len 4096", r"names no model: --max-model-len 4096"),
    ("set -e\npodman start my-vllm\nls", r"The nearest was: podman start my-vllm$"),
    ("container: img\nmodel: a/b\nenv: {}\nenv: {}\n", "the key 'env' is given twice"),
    ("docker run --entrypoint /bin/bash --rm -it vllm/vllm-openai:v0.27.1", "starts an engine"),
    ("llama-server --models-preset /x/models.ini --models-max 1", ROUTER),
    ("docker run -e LLAMA_ARG_MODELS_PRESET=/x/models.ini ghcr.io/ggml-org/llama.cpp:server --jinja", ROUTER),
    ("profile: a\nengine: llamacpp\nmodels: {target: {path: /m.gguf}}\n", "is a profile of sparkdash already"),
    ("", "empty"), ("ls -l", "No command in the input"), ("podman run img vllm serve 'a/b", "never closed"),
    ("cat <<EOF\npodman run x\nEOF\n", "here-document"), ("podman run img vllm serve --dtype auto", "names no model"),
    ("a\x00b", "control characters"), ("x" * 600_000, "longer than"), ("models: {a: &a [*a]}", "contains itself"),
    ("models:\n  a: " + "[" * 60 + "]" * 60, "nested deeper"), ("models: []", "no `models`"),
    ("container: x\nruntime: tokenary\nmodel: a/b", "'tokenary' is not known"),
    ("[Unit]\n[Service]\nExecStart=/usr/bin/vllm serve a/b\n", "a service of systemd"),
    ("container: [", r"not valid YAML: line 2: did not find expected node content\."),
])  # fmt: skip
def test_what_gives_no_profile_says_why(text: str, why: str) -> None:
    with pytest.raises(ProfileError, match=why) as caught:
        importers.import_profiles(text)
    assert caught.value.code == "import_refused"


@pytest.mark.parametrize(
    "text",
    [
        "A=xxxxxxxx\n" + "A=$A$A\n" * 60 + "podman run img vllm serve $A",
        "F=(x y)\n" + 'F=("${F[@]}" "${F[@]}")\n' * 60,
        "macros:\n  a0: xxxxxxxx\n"
        + "".join(f"  a{i}: {('${a' + str(i - 1) + '}') * 9}\n" for i in range(1, 12))
        + "models: {m: {cmd: x}}",
        f"container: x\ndefaults: {{a: '{'x' * 200_000}'}}\ncommand: \"vllm serve {'{a}' * 50_000}\"",
        'container: x\ndefaults: {a: "{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}"}\ncommand: "{a}"',
    ],
    ids=["variable", "array", "macro", "default", "itself"],
)
def test_text_that_grows_without_end_is_refused(text: str) -> None:
    """Doubling sixty times is noticed before the memory is gone."""
    with pytest.raises(ProfileError, match="longer than"):
        importers.import_profiles(text)


@pytest.mark.parametrize(
    "piece",
    ["$(", "`", "'", '"', "${A", "(", "A=(", "\\\n", "$A ", "a<b ", "--x=[", "-", "{a}", "- ", "[", "? ", "&a ", "9"],
)
@pytest.mark.parametrize("start", ["podman run img vllm serve a/b ", "models:\n  a: "], ids=["script", "yaml"])
def test_long_runs_of_one_thing_end_soon(start: str, piece: str) -> None:
    """A profile or an error within the time a test may take, at the greatest length that is read."""
    text = start + piece * (importers.MAX_CHARACTERS // len(piece) - 20)
    try:
        outcome: object = importers.import_profiles(text)
    except ProfileError as error:
        outcome = error
    assert outcome


PRESETS = """\
version = 1
; for all
[*]
c = 8192
jinja = true
n-gpu-layers = 8

[ggml-org/gemma-3-4b-it-GGUF:Q4_K_M]
n-gpu-layers = 123  ; the last layer too
LLAMA_ARG_CACHE_RAM = 0
load-on-startup = true

[coder]
model = /models/coder.gguf
  model-draft = /models/draft.gguf
cont-batching = off
api-key = sk-0123456789abcdef
port = 9999

[empty]
temp = 0.7
"""


def test_llama_cpps_presets_become_a_profile_for_each_section_over_what_all_share() -> None:
    """By the command that its router would run; what the router decides is named, a secret is not kept."""
    imported = importers.import_profiles(PRESETS)
    gemma, coder = imported.profiles
    name = "ggml-org/gemma-3-4b-it-GGUF:Q4_K_M"
    assert (gemma["profile"], gemma["serves"]) == ("ggml-org-gemma-3-4b-it-GGUF-Q4_K_M", [name])
    assert gemma["models"] == {"target": {"hf": name}}
    assert gemma["args"] == {"ctx-size": 8192, "jinja": True, "n-gpu-layers": 123, "cache-ram": 0}
    assert coder["models"] == {"target": {"path": "/models/coder.gguf"}, "drafter": {"path": "/models/draft.gguf"}}
    assert coder["args"] == {
        "ctx-size": 8192, "jinja": True, "n-gpu-layers": 8, "model-draft": "{drafter}", "no-cont-batching": True,
    }  # fmt: skip
    assert "sk-0123456789abcdef" not in str(imported)
    assert "[empty]: names no model" in said(imported)
    assert "load-on-startup" in said(imported)
    with pytest.raises(ProfileError, match="No section of the presets names a model"):
        importers.import_profiles("[empty]\ntemp = 0.7\n")

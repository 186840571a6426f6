"""Mistakes planted in good files: each is found at its line, and nothing else is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sparkdash import catalog, rules
from sparkdash.paths import shipped_profiles

Write = Callable[..., Path]

GOOD = """\
profile: tiny
engine: vllm
engine_version: "0.22.1"
image: localhost/tiny
models:
  target: {path: /models/Qwen3.5-9B}
env: {OMP_NUM_THREADS: "4"}
memory: {weights_gib: 9}
args:
  gpu-memory-utilization: 0.8
  max-model-len: 4096
  kv-cache-dtype: fp8
  safetensors-load-strategy: eager
"""
FP8 = "kv-cache-dtype: fp8"
MTP = "{method: mtp, num_speculative_tokens: 2}"


def found(folder: Path) -> list[tuple[int | None, str]]:
    read = catalog.load_catalog([folder])
    assert read.problems == ()
    return [(one.problem.line, one.rule) for one in rules.findings(read)]


def test_good_files_are_not_blamed(write: Write) -> None:
    """Neither the one that the mistakes are planted in, nor those that come with sparkdash."""
    assert found(write(file=GOOD)) == []
    assert found(shipped_profiles()) == []


@pytest.mark.parametrize(
    ("changes", "line", "rule"),
    [
        ({FP8: "speculative-model: /draft"}, 12, "unknown-flag"),
        ({FP8: "num_speculative_tokens: 2"}, 12, "unknown-flag"),
        ({"0.22.1": "0.16.0", FP8: "moe-backend: marlin"}, 12, "unknown-flag"),
        ({FP8: "swap-space: 4"}, 12, "unknown-flag"),
        ({"0.22.1": "0.26.0", "OMP_NUM_THREADS": "VLLM_USE_FLASHINFER_MOE_FP4"}, 7, "dead-env"),
        ({"OMP_NUM_THREADS": "VLLM_ATTENTION_BACKEND"}, 7, "dead-attention-env"),
        ({FP8: "enforce-eager: true"}, 12, "enforce-eager"),
        ({"load-strategy: eager": "load-strategy: lazy"}, 9, "mmap-loader"),
        ({FP8: "load-format: b12x"}, 12, "b12x-without-io-uring"),
        ({FP8: "max-num-seqs: 4\n  max-cudagraph-capture-size: 2048"}, 13, "cudagraph-capture-size"),
        ({FP8: "max-num-seqs: 4\n  cudagraph-capture-sizes: [1, 2]"}, 13, "capture-misses-batch"),
        ({"strategy: eager": "strategy: eager\nkeep_kv: {max_gib: 8}"}, 14, "keep-kv-ignored"),
        ({'OMP_NUM_THREADS: "4"': 'MAX_JOBS: "20"'}, 7, "many-compilers"),
        ({FP8: "max-num-batched-tokens: 65536"}, 12, "max-num-batched-tokens"),
        ({FP8: "enable-sleep-mode: true"}, 12, "sleep-mode"),
        ({FP8: "trust-remote-code: true"}, 12, "trust-remote-code"),
        ({"image: localhost/tiny": "starter: {start: [run, '{port}']}"}, 4, "starter-on-host"),
        ({"4096": '"$((4*1024))"'}, 11, "unfilled-variable"),
        ({"4096": "${LENGTH}"}, 11, "unfilled-variable"),
        ({"{path: /models/Qwen3.5-9B}": "{hf: Qwen/Qwen3.5-9B, revision: '${REV}'}"}, 6, "unfilled-variable"),
        ({"/models/Qwen3.5-9B": "/models/$(hostname)/m"}, 6, "unfilled-variable"),
        ({'"4"': "'${THREADS}'"}, 7, "unfilled-variable"),
        ({"Qwen3.5-9B}\n": "m-00002-of-00003.gguf}\n"}, 6, "later-part"),
        ({FP8: "tensor-parallel-size: 4"}, 12, "more-gpus-than-boxes"),
        ({FP8: "data-parallel-size: 2"}, 12, "more-gpus-than-boxes"),
        ({"strategy: eager": "strategy: eager\nrequest: {temperature: hot}"}, 14, "request-key"),
        ({"strategy: eager": "strategy: eager\nrequest: {temprature: 0.5}"}, 14, "request-key"),
        ({"strategy: eager": "strategy: eager\nmodes: {calm: {top-p: 0.5}}"}, 14, "request-key"),
        ({"  gpu-memory-utilization: 0.8\n": ""}, 9, "no-gpu-memory-utilization"),
        ({"0.8\n": "0.95\n"}, 10, "high-gpu-memory-utilization"),
        ({FP8: "kv-cache-memory-bytes: 200G"}, 12, "kv-more-than-box"),
        ({FP8: "kv_cache_memory_bytes: 200000000000"}, 12, "kv-more-than-box"),
        ({FP8: "kv-cache-memory-bytes: 10g"}, 12, "kv-small-unit"),
        ({FP8: "kv-cache-memory-bytes: 1.5g"}, 12, "kv-small-unit"),
        ({"weights_gib: 9": "weights_gib: 130"}, 8, "more-than-box"),
        ({FP8: "attention-backend: flash_attn\n  kv-cache-dtype: fp8_e4m3"}, 12, "fp8-kv-backend"),
        ({"Qwen3.5-9B}\n": "gpt-oss-20b}\n", FP8: "attention-backend: FLASH_ATTN"}, 12, "fp8-kv-backend"),
        ({FP8: "kv-cache-dtype: turboquant_9bit"}, 12, "flag-value"),
        ({"0.22.1": "0.19.1", FP8: "speculative-config: {method: dflash, num_speculative_tokens: 4}\n  max-num-seqs: 4"}, 12, "dflash-too-new"),
        ({"Qwen3.5-9B": "Qwen3-Coder-30B-A3B", FP8: f"speculative-config: {MTP}\n  max-num-seqs: 4"}, 12, "mtp-without-head"),
        ({FP8: f"kv-cache-dtype: turboquant_4bit_nc\n  max-num-seqs: 4\n  speculative-config: {MTP}"}, 12, "turboquant-mtp"),
        ({FP8: f"max-num-seqs: 128\n  speculative-config: {MTP}"}, 12, "too-many-drafts"),
        ({FP8: f"speculative-config: {MTP}"}, 12, "too-many-drafts"),
        ({FP8: "max-num-seqs: 4\n  speculative-config: {method: qwen3_next_mtp, num_speculative_tokens: 2}"}, 13, "mtp-old-name"),
        ({FP8: "max-num-sqs: 4"}, 12, "unknown-flag"),
        ({FP8: "kv-cache-dtype: fp9"}, 12, "flag-value"),
        ({FP8: "max-num-seqs: two"}, 12, "flag-value"),
        ({FP8: "max_model_len: 4096"}, 12, "flag-twice"),
        ({FP8: "ipc: host"}, 12, "ipc-and-shm"),
        ({FP8: "restart: always"}, 12, "restart-policy"),
        ({FP8: "privileged: true"}, 12, "runtime-flag"),
        ({"localhost/tiny": "ghcr.io/a/tiny:v1-amd64"}, 4, "image-arch"),
        ({"localhost/tiny": "vllm/vllm-openai:cu130-nightly"}, 4, "unpinned-image"),
        ({"localhost/tiny": "vllm/vllm-openai"}, 4, "unpinned-image"),
        ({'"4"': "hf_abcdefghijklmnopqrstuv"}, 7, "secret-literal"),
        ({FP8: "api-key: sk-abcdefghijklmnopqrstuv"}, 12, "secret-literal"),
        ({FP8: "api-key: correct-horse"}, 12, "secret-literal"),
        ({"args:": "silence: {enforce-eagre: because}\nargs:"}, 9, "silence"),
        ({"args:": "silence: {enforce-eager: ' '}\nargs:"}, 9, "silence"),
    ],
    ids=str,
)  # fmt: skip
def test_a_planted_mistake_is_found_at_its_line(write: Write, changes: dict[str, str], line: int, rule: str) -> None:
    """Once, alone, and with the words to write instead."""
    text = GOOD
    for old, new in changes.items():
        text = text.replace(old, new)
    folder = write(file=text)
    assert found(folder) == [(line, rule)]
    assert all(one.problem.hint for one in rules.findings(catalog.load_catalog([folder])))


@pytest.mark.parametrize(("engine", "arg", "rule"), [
    ("llamacpp", "no-mmap: false", "llamacpp-mmap"),
    ("llamacpp", "sleep-idle-seconds: 600", "llamacpp-sleep"),
    ("sglang", "enable-metrics: false", "sglang-metrics"),
    ("sglang", "weight-loader-disable-mmap: false", "sglang-mmap"),
    ("sglang", "mem-fraction-static: 80", "no-share-of-memory"),
    ("trtllm", "kv_cache_free_gpu_memory_fraction: 0", "no-share-of-memory"),
])  # fmt: skip
def test_other_engines_have_rules_of_their_own(write: Write, engine: str, arg: str, rule: str) -> None:
    text = GOOD.replace("vllm", engine).replace(FP8, arg)
    text = text.replace("  gpu-memory-utilization: 0.8\n", "").replace("  max-model-len: 4096\n", "")
    reads = "  weight-loader-disable-mmap: true\n" if engine == "sglang" and rule != "sglang-mmap" else ""
    text = text.replace("  safetensors-load-strategy: eager\n", reads)
    assert found(write(file=text)) == [(10, rule)]


TWO = GOOD.replace("args:\n", "nodes: 2\nargs:\n  tensor-parallel-size: 2\n")
RAY = "distributed-executor-backend: ray"


@pytest.mark.parametrize(("old", "new", "line", "rule"), [
    ("OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", 7, "pinned-link"),
    ("OMP_NUM_THREADS", "UCX_NET_DEVICES", 7, "pinned-link"),
    ("OMP_NUM_THREADS", "NCCL_IB_GID_INDEX", 7, "pinned-gid-index"),
    ("OMP_NUM_THREADS", "VLLM_HOST_IP", 7, "pinned-address"),
    ('OMP_NUM_THREADS: "4"', 'NCCL_IB_DISABLE: "1"', 7, "nccl-without-rdma"),
    ('OMP_NUM_THREADS: "4"', "NCCL_NET: Socket", 7, "nccl-without-rdma"),
    ('OMP_NUM_THREADS: "4"', 'VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS: "15"', 7, "short-step-limit"),
    (FP8, "load-format: runai_streamer", 14, "streamer-without-limit"),
    ("nodes: 2", "nodes: 4", 11, "ranks-mismatch"),
    ("nodes: 2\nargs:\n  tensor-parallel-size: 2\n", "nodes: 3\nparallel: {tp: 3, dcp: 1}\nargs:\n", 11, "padded-ranks"),
])  # fmt: skip
def test_a_mistake_of_two_boxes_is_none_of_one(write: Write, old: str, new: str, line: int, rule: str) -> None:
    assert found(write(file=TWO.replace(old, new))) == [(line, rule)]
    assert found(write(file=GOOD.replace(old, new))) == []


def test_a_word_that_each_node_fills_in_is_no_name_for_all(write: Write) -> None:
    assert found(write(file=TWO.replace('OMP_NUM_THREADS: "4"', 'NCCL_IB_HCA: "{hca}"'))) == []


def test_parallel_becomes_the_engines_own_flags_and_contradicts_none(write: Write) -> None:
    split = GOOD.replace("args:\n", "nodes: 4\nparallel: {tp: 2, pp: 2, ep: 2, dcp: 1}\nargs:\n")
    (profile,) = catalog.load_catalog([write(file=split)]).profiles.values()
    assert [profile.args[flag] for flag in ("tensor-parallel-size", "pipeline-parallel-size")] == [2, 2]
    assert profile.args["enable-expert-parallel"] is True
    for wrong, words in (
        (split.replace("args:\n", "args:\n  tensor-parallel-size: 4\n"), "differs from `tensor-parallel-size`"),
        (split.replace("engine: vllm", "engine: sglang"), "sglang has no flag for it"),
    ):
        assert words in str(catalog.load_catalog([write(file=wrong)]).problems)


def test_a_profile_for_several_numbers_of_nodes_says_the_sizes_of_each(write: Write) -> None:
    text = GOOD.replace("args:\n", "nodes: [2, 4]\nparallel: {tp: 2, pp: [1, 2]}\nargs:\n")
    (profile,) = catalog.load_catalog([write(file=text)]).profiles.values()
    sizes = [(one.nodes, one.args["pipeline-parallel-size"], one.fingerprint) for one in profile.launches]
    alone = [text.replace("[2, 4]", str(count)).replace("[1, 2]", str(size)) for count, size in ((4, 2), (2, 1))]
    _, two = (next(iter(catalog.load_catalog([write(file=one)]).profiles.values())).fingerprint for one in alone)
    assert [size[:2] for size in sizes] == [(4, 2), (2, 1)]
    assert (sizes[1][2], sizes[0][2] != two) == (two, True)
    assert found(write(file=text)) == []
    assert found(write(file=text.replace("pp: [1, 2]", "pp: 1"))) == [(11, "ranks-mismatch")]
    for wrong, words in (
        (text.replace("[1, 2]", "[1]"), "has 1 sizes, and `nodes` 2 numbers. Give one size for each of 2, 4"),
        (text.replace("[2, 4]", "[]"), "has no number"),
        (text.replace("[2, 4]", "[2, four]"), "nodes: must be a whole number, not 'four'"),
    ):
        assert words in str(catalog.load_catalog([write(file=wrong)]).problems[0])


def test_a_value_for_one_node_is_the_owners_choice_unless_it_turns_rdma_off(write: Write) -> None:
    by_node = TWO + "env_by_node: {spark2: {NCCL_IB_GID_INDEX: '5', NCCL_SOCKET_IFNAME: enp1s0f0np0}}\n"
    assert found(write(file=by_node)) == []
    off = TWO + "env_by_node: {spark2: {NCCL_IB_DISABLE: '1'}}\n"
    assert [rule for _, rule in found(write(file=off))] == ["nccl-without-rdma"]


def test_rays_memory_monitor_matters_only_over_ray(write: Write) -> None:
    text = TWO.replace('OMP_NUM_THREADS: "4"', 'RAY_memory_monitor_refresh_ms: "250"')
    assert found(write(file=text)) == []
    assert found(write(file=text.replace(FP8, RAY))) == [(7, "ray-memory-monitor")]
    assert found(write(file=text.replace(FP8, RAY).replace('"250"', '"0"'))) == []


def test_what_a_variant_inherits_is_told_once_and_can_be_silenced(write: Write) -> None:
    """A reason in the base holds for its variants; one in a variant for that variant alone."""
    bad = GOOD.replace(FP8, "enforce-eager: true") + "variants: {a: {about: x}}\n"
    assert found(write(file=bad)) == [(12, "enforce-eager")]
    assert found(write(file=bad + "silence: {enforce-eager: to compare}\n")) == []
    partly = bad.replace("{about: x}", "{silence: {enforce-eager: to compare}}")
    assert found(write(file=partly)) == [(12, "enforce-eager")]

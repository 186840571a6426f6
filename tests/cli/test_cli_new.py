"""`sparkdash profiles new`: a first profile out of a model's headers."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.cli import local

Run = Callable[..., Any]
Checkpoint = Callable[..., Path]

QWEN = {
    "model_type": "qwen3", "num_hidden_layers": 4, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
}  # fmt: skip
TENSORS = {
    "model.embed_tokens.weight": ("BF16", [150_000, 1024]),
    "model.layers.0.mlp.up_proj.weight": ("BF16", [1024, 4096]),
    "lm_head.weight": ("BF16", [150_000, 1024]),
}
MTP = TENSORS | {"mtp.layers.0.mlp.up_proj.weight": ("BF16", [1024, 4096])}


@pytest.fixture(autouse=True)
def spark(own_folders: Path, monkeypatch: pytest.MonkeyPatch, nobody: None) -> None:
    """The memory of a Spark, an empty cache, and no profiles but the owner's."""
    monkeypatch.setattr(local, "box_bytes", lambda: 127_600_748 * 1024)
    (own_folders / "config" / "config.toml").write_text(f'shipped_profiles = false\nhf_home = "{own_folders / "hf"}"\n')


def test_a_folder_becomes_a_profile_with_its_reasons(sparkdash: Run, checkpoint: Checkpoint) -> None:
    done = sparkdash("profiles", "new", str(checkpoint(TENSORS, QWEN)), "--name", "small")
    assert done.code == 0
    for line in (
        "# 0.3 billion parameters in 0.6 GiB (bfloat16), 4 layers (4 full), context 41k. A token keeps 16 KiB in a",
        "# need            10.6 GiB, estimated\n",
        "#   kv              3.0 GiB  --kv-cache-memory-bytes\n",
        "profile: small\n",
        "image: nvcr.io/nvidia/vllm:26.04-py3\n",
        "  # The model's own.\n  max-model-len: 40960\n",
        "  kv-cache-memory-bytes: 3G\n",
        "  gpu-memory-utilization: 0.09\n",
        "  max-num-seqs: 4\n",
    ):
        assert line in done.out
    assert "variants" not in done.out, "there is no MTP head to draft with"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_is_written_passes_the_check(
    sparkdash: Run, checkpoint: Checkpoint, own_folders: Path, engine: str
) -> None:
    model = str(checkpoint(MTP, QWEN))
    done = sparkdash("profiles", "new", model, "--name", "small", "--engine", engine, "--write")
    file = own_folders / "config" / "profiles" / "small.yaml"
    assert f"Wrote {file}" in done.err
    assert "need            " in done.out
    expected = ["small", "small/mtp"] if engine == "vllm" else ["small"]
    told = sparkdash("profiles", "check", "--json").json()
    assert (told["profiles"], told["findings"]) == (expected, [])
    text = file.read_text()
    again = sparkdash("profiles", "new", model, "--name", "small", "--context", "1000", "--write")
    assert (again.code, "The profile small exists already" in again.err, file.read_text()) == (2, True, text)


def test_json_gives_facts_need_and_profile(sparkdash: Run, checkpoint: Checkpoint) -> None:
    told = sparkdash("profiles", "new", str(checkpoint(MTP, QWEN)), "--context", "8192", "--json").json()
    assert told["profile"]["args"]["max-model-len"] == 8192
    assert told["facts"]["bytes"]["draft"] == 1024 * 4096 * 2
    assert [term["name"] for term in told["need"]["terms"]] == ["weights", "kv", "overhead"]
    assert (told["written"], told["warnings"]) == (None, [])


def test_the_context_shrinks_to_what_fits_and_says_so(sparkdash: Run, checkpoint: Checkpoint) -> None:
    large = QWEN | {"num_hidden_layers": 96, "max_position_embeddings": 1_048_576}
    folder = str(checkpoint(TENSORS, large))
    told = sparkdash("profiles", "new", folder, "--name", "large").out
    assert "# The model's own is 1M, of which this is what fits.\n  max-model-len: 131072\n" in told
    asked = sparkdash("profiles", "new", folder, "--name", "large", "--context", "262144")
    assert "max-model-len: 262144" in asked.out
    assert "sparkdash will refuse to start it" in asked.err
    beyond = sparkdash("profiles", "new", folder, "--name", "large", "--context", "1000000")
    assert (beyond.code, "422 GiB of KV cache, and a box has 121.7" in beyond.err) == (2, True)


@pytest.mark.parametrize(
    ("change", "told", "not_told"),
    [
        ({"max_position_embeddings": 4096}, "# 16.4k tokens, ", "variants"),
        ({"layer_types": ["odd"] * 4}, "gpu-memory-utilization: 0.85\n", "kv-cache-memory-bytes"),
    ],
    ids=["a short context has a cache for four requests", "unknown layers get a share of the box"],
)
def test_the_cache_follows_what_is_known_of_the_model(
    sparkdash: Run, checkpoint: Checkpoint, change: dict[str, Any], told: str, not_told: str
) -> None:
    done = sparkdash("profiles", "new", str(checkpoint(TENSORS, QWEN | change)), "--name", "m")
    assert told in done.out
    assert not_told not in done.out


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_box_that_is_too_small_is_told_so(
    sparkdash: Run, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr(local, "box_bytes", lambda: 8 * 2**30)
    done = sparkdash("profiles", "new", str(checkpoint(TENSORS, QWEN)), "--engine", engine)
    assert (done.code, "sparkdash will refuse to start it" in done.err) == (0, True)


@pytest.mark.parametrize(("config", "tensors", "backend"), [
    ({"model_type": "gpt_oss"}, TENSORS, "TRITON_ATTN"),
    ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}, TENSORS, "FLASHINFER"),
    ({}, TENSORS, None),
])  # fmt: skip
def test_attention_on_sm121_follows_sinks_and_cache(
    sparkdash: Run, checkpoint: Checkpoint, config: dict[str, Any], tensors: Any, backend: str | None
) -> None:
    """FLASH_ATTN has neither sinks nor an fp8 cache there."""
    args = sparkdash("profiles", "new", str(checkpoint(tensors, QWEN | config)), "--json").json()["profile"]["args"]
    assert args.get("attention-backend") == backend


def test_the_fast_loader_needs_a_vllm_that_brings_it(sparkdash: Run, checkpoint: Checkpoint) -> None:
    """A flag with 0.22 and newer, a hint before."""
    folder = str(checkpoint(TENSORS, QWEN))
    assert "  load-format: fastsafetensors\n" not in sparkdash("profiles", "new", folder).out
    newer = sparkdash("profiles", "new", folder, "--image", "localhost/vllm:x", "--engine-version", "0.26.0").out
    assert "  load-format: fastsafetensors\n" in newer
    assert "engine_version: 0.26.0\n" in newer


def write_gguf(file: Path, architecture: bytes) -> None:
    """A header that tells the architecture and no more."""
    key = b"general.architecture"
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(architecture)) + architecture
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry + bytes(64))


def test_a_gguf_file_is_for_llamacpp_and_its_image_is_the_owners(sparkdash: Run, tmp_path: Path) -> None:
    """No image of llama.cpp with CUDA for arm64 is known, so none is made up."""
    file = tmp_path / "Tiny-Q8_0.gguf"
    write_gguf(file, b"tiny")
    bare = sparkdash("profiles", "new", str(file))
    assert (bare.code, "Name one with --image" in bare.err) == (2, True)
    done = sparkdash("profiles", "new", str(file), "--image", "localhost/llama.cpp:cuda13")
    assert (done.code, "profile: tiny-q8_0\n" in done.out, "n-gpu-layers: 999\n" in done.out) == (0, True, True)
    wrong = sparkdash("profiles", "new", str(file), "--engine", "vllm")
    assert (wrong.code, "use --engine llamacpp" in wrong.err) == (2, True)


def test_a_cached_model_is_named_as_the_hub_does(sparkdash: Run, checkpoint: Checkpoint, own_folders: Path) -> None:
    home = own_folders / "hf" / "hub" / "models--org--Tiny"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("c0ffee")
    checkpoint(TENSORS, QWEN, home / "snapshots" / "c0ffee")
    told = sparkdash("profiles", "new", "org/Tiny", "--json").json()
    assert told["profile"]["models"]["target"] == {"path": None, "hf": "org/Tiny", "revision": None}
    assert told["profile"]["name"] == "tiny"
    slip = sparkdash("profiles", "new", "org/Tiyn", "--offline")
    assert (slip.code, "Did you mean org/Tiny?" in slip.err) == (2, True)


@pytest.mark.parametrize(("argv", "code", "told"), [
    (("org/absent", "--offline"), 2, "Leave out --offline to read the headers from the hub"),
    (("absent",), 2, "absent is not on this box, and it is not an owner/name of the hub"),
    (("/nowhere/x",), 2, "/nowhere/x is not on this box"),
    (("./x.gguf",), 2, "./x.gguf is not on this box"),
    (("a/b/c",), 2, "a/b/c is not on this box"),
    ((".",), 2, "config.json cannot be read"),
], ids=str)  # fmt: skip
def test_what_cannot_be_read_is_a_clear_error(
    sparkdash: Run, argv: tuple[str, ...], code: int, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = sparkdash("profiles", "new", *argv)
    assert (done.code, told in done.err, done.out) == (code, True, "")
    assert json.loads(sparkdash("profiles", "new", *argv, "--json").out)["error"]["message"]


def test_a_split_model_is_named_by_its_first_part(sparkdash: Run, own_folders: Path) -> None:
    """llama.cpp refuses any other part; the number of a part is nothing of the model's name."""
    for number in (1, 2, 3):
        write_gguf(own_folders / f"Tiny-UD-Q4_K_XL-{number:05d}-of-00003.gguf", b"qwen3")
    second = own_folders / "Tiny-UD-Q4_K_XL-00002-of-00003.gguf"
    done = sparkdash("profiles", "new", str(second), "--image", "ghcr.io/ggml-org/llama.cpp:server-cuda")
    assert done.code == 0
    assert "profile: tiny-ud-q4_k_xl\n" in done.out
    assert f"path: {own_folders}/Tiny-UD-Q4_K_XL-00001-of-00003.gguf" in done.out

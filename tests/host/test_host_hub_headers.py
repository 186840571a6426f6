"""A model's headers from a hub: over real HTTP, with ranges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod

import pytest
from fake_hub import FakeHub, Repo

from sparkdash.errors import HostError, ProfileError
from sparkdash.host import hub_download

CONFIG = {
    "model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "max_position_embeddings": 2048,
}  # fmt: skip


def shard(**tensors: list[int]) -> bytes:
    """The first bytes of a safetensors file; the hub has more, which nobody may ask for."""
    entries, at = {}, 0
    for name, shape in tensors.items():
        end = at + 2 * prod(shape)
        entries[name.replace("__", ".")] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


MANY = {f"model__layers__0__w{number}": [4, 4] for number in range(2000)}
FILES = {
    "org/one": {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": shard(lm_head__weight=[1000, 64])},
    "org/two": {
        "config.json": json.dumps(CONFIG).encode(),
        "hf_quant_config.json": b'{"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}',
        "model.safetensors.index.json": json.dumps({"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}).encode(),
        "a.safetensors": shard(lm_head__weight=[1000, 64]),
        "b.safetensors": shard(**MANY),
    },
    "org/bare": {"README.md": b"# nothing"},
    "org/half": {"config.json": json.dumps(CONFIG).encode()},
    "org/torn": {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": (99).to_bytes(8, "little") + b"{"},
    "org/odd": {"config.json": b"[1]"},
}  # fmt: skip


REFUSALS = {"/org/gated/": (403, {"X-Error-Code": "GatedRepo"}), "/org/broken/": (500, dict[str, str]())}


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    with FakeHub({name: Repo(files) for name, files in FILES.items()}, REFUSALS) as made:
        yield made.url


def test_one_file_is_read_from_its_header(hub: str) -> None:
    """The weights behind it are not there, so they cannot have been asked for."""
    found = hub_download.read_weight_headers("org/one", endpoint=hub)
    assert (found.origin, found.bytes.head, found.parameters) == ("org/one", 128000, 64000)
    assert found.kv_bytes_per_token() == 2 * 2 * 2 * 16 * 2


def test_all_shards_of_an_index_are_read_with_their_quantization(hub: str) -> None:
    """A header beyond the first 100 kB is asked for again; the sidecar counts."""
    found = hub_download.read_weight_headers("org/two", endpoint=hub)
    assert (found.bytes.head, found.bytes.dense) == (128000, 2000 * 32)
    assert (found.quantization, found.kv_dtype) == ("nvfp4", "fp8")


@pytest.mark.parametrize(("name", "code", "told"), [
    ("org/nosuch", "weights_unknown", "The hub has no model org/nosuch"),
    ("org/gated", "weights_gated", "org/gated is gated"),
    ("org/broken", "hub_unreachable", "answered 500 for org/broken"),
    ("org/bare", "weights_unreadable", "org/bare has no config.json"),
    ("org/half", "weights_unreadable", "org/half has no model.safetensors"),
    ("org/torn", "weights_unreadable", "malformed header"),
    ("org/odd", "weights_unreadable", "config.json of org/odd holds no JSON object"),
    ("not a name", "weights_unknown", "cannot be the name of a model on the hub"),
])  # fmt: skip
def test_what_the_hub_does_not_give_is_said_in_our_words(hub: str, name: str, code: str, told: str) -> None:
    with pytest.raises((HostError, ProfileError), match=told) as error:
        hub_download.read_weight_headers(name, endpoint=hub)
    assert error.value.code == code
    assert "http" not in error.value.text()


def test_no_hub_is_told_at_once() -> None:
    """A port where nobody listens."""
    with pytest.raises(HostError, match="The hub cannot be reached"):
        hub_download.read_weight_headers("org/one", endpoint="http://127.0.0.1:1")

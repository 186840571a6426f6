"""Weights and their headers from a hub over real HTTP: what comes, what is kept when it is cut, what goes wrong."""

import errno
import fcntl
import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import aclosing
from math import prod
from pathlib import Path
from typing import Any

import pytest
from fake_hub import FakeHub, Repo
from huggingface_hub import constants
from refusals import refused

from sparkdash.domain.profile import ModelRef
from sparkdash.errors import HostError
from sparkdash.host import hub_download
from sparkdash.host.hub_download import DownloadMeter, Hub, as_host_error, wanted_files
from sparkdash.host.local_weights import find_weights
from sparkdash.host.memory.page_cache import cached_bytes

REF = ModelRef(hf="org/big")
TOKEN = "hf_neverToBeSeen"
SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
MEGABYTE = bytes(range(256)) * 4096
FILES = {
    "config.json": b"{}",
    "model.safetensors.index.json": json.dumps({"weight_map": dict(zip("ab", SHARDS, strict=True))}).encode(),
    SHARDS[0]: MEGABYTE,
    SHARDS[1]: b"s" * 5000,
    "original/consolidated.pth": b"o" * 7000,
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one repository; files come in small pieces."""
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 64 * 1024)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with FakeHub({"org/big": Repo(dict(FILES))}) as made:
        yield made


@pytest.fixture
def mine(hub: FakeHub, tmp_path: Path) -> Hub:
    """The hub as the owner of an empty cache sees it."""
    return Hub(tmp_path, endpoint=hub.url)


async def fetched(mine: Hub, *refs: ModelRef) -> list[Any]:
    return [step async for step in mine.fetch(await mine.plan(refs or [REF]))]


def bytes_of(home: Path, name: str) -> bytes:
    (snapshot,) = (home / "hub/models--org--big/snapshots").iterdir()
    return (snapshot / name).read_bytes()


async def cut(mine: Hub, hub: FakeHub, after: int) -> None:
    """Fetch until the hub falls silent after so many bytes, leave, and wait until the threads have seen it."""
    hub.silent_after = after
    async with aclosing(mine.fetch(await mine.plan([REF]))) as steps:
        async for step in steps:
            if step.came_bytes >= 64 * 1024:
                break
    hub.go.set()
    hub.silent_after = None
    for thread in threading.enumerate():
        if thread.name == "sparkdash-work":
            thread.join(20)


async def test_what_an_engine_reads_comes_and_is_then_here(hub: FakeHub, mine: Hub, tmp_path: Path) -> None:
    plan = await mine.plan([REF, REF, ModelRef(path="/data/x")])
    assert [file.path for file in plan[0].files] == sorted(set(FILES) - {"original/consolidated.pth"})
    assert plan[0].missing == plan[0].size == sum(len(FILES[file.path]) for file in plan[0].files)
    steps = [step async for step in mine.fetch(plan)]
    assert (steps[-1].done, steps[-1].came_bytes) == (True, plan[0].size)
    assert bytes_of(tmp_path, SHARDS[0]) == MEGABYTE
    found = find_weights(REF, tmp_path)
    assert (found.here, found.size) == (True, plan[0].size)
    assert (await mine.plan([REF]))[0].missing == 0


async def test_the_token_goes_to_the_hub_and_not_to_its_storage(hub: FakeHub, mine: Hub) -> None:
    """The storage is another host, whose addresses are signed."""
    await fetched(mine)
    assert {one.authorization for one in hub.got("GET", "/api/")} == {f"Bearer {TOKEN}"}
    assert {one.authorization for one in hub.got("GET", "/cdn/")} == {None}


async def test_what_is_here_is_not_fetched_twice(hub: FakeHub, mine: Hub) -> None:
    await fetched(mine)
    hub.asked.clear()
    hub.repos["org/big"] = Repo({**FILES, "config.json": b'{"new": 1}'}, commit="b" * 40)
    plan = await mine.plan([REF])
    assert plan[0].missing == len(b'{"new": 1}')
    assert [step.done async for step in mine.fetch(plan)][-1]
    assert hub.got("GET", "/cdn/") == []


async def test_a_cut_download_goes_on_where_it_ended(hub: FakeHub, mine: Hub, tmp_path: Path) -> None:
    await cut(mine, hub, after=500_000)
    found = find_weights(REF, tmp_path)
    assert (found.here, found.lacks) == (False, "not in the cache")
    plan = await mine.plan([REF])
    came = plan[0].size - plan[0].missing
    assert 64 * 1024 <= came <= 500_000 + 5000
    hub.asked.clear()
    steps = [step async for step in mine.fetch(plan)]
    assert steps[0].came_bytes == came
    (resumed,) = [one.range for one in hub.got("GET", "/cdn/") if one.range]
    assert int(resumed.removeprefix("bytes=").rstrip("-")) >= 64 * 1024
    assert bytes_of(tmp_path, SHARDS[0]) == MEGABYTE


async def test_a_storage_that_does_not_resume_begins_again(hub: FakeHub, mine: Hub, tmp_path: Path) -> None:
    await cut(mine, hub, after=500_000)
    hub.ranges = False
    steps = await fetched(mine)
    assert max(step.came_bytes for step in steps) == steps[-1].total_bytes
    assert bytes_of(tmp_path, SHARDS[0]) == MEGABYTE


async def test_a_beginning_that_is_not_the_files_is_thrown_away(hub: FakeHub, mine: Hub, tmp_path: Path) -> None:
    await cut(mine, hub, after=500_000)
    (part,) = (p for p in (tmp_path / "hub/models--org--big/blobs").glob("*.incomplete") if p.stat().st_size > 9000)
    with part.open("r+b") as file:
        file.write(b"not these bytes")
    with refused("weights_damaged", "arrived damaged"):
        await fetched(mine)
    await fetched(mine)
    assert bytes_of(tmp_path, SHARDS[0]) == MEGABYTE


async def test_a_file_too_big_for_plain_http_is_the_librarys(
    hub: FakeHub, mine: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkdash.host.hub_download.OVER_HTTP", 500_000)
    steps = await fetched(mine)
    assert steps[-1].done
    assert bytes_of(tmp_path, SHARDS[0]) == MEGABYTE
    assert find_weights(REF, tmp_path).here


async def test_without_xet_such_a_file_is_refused_with_the_reason(
    hub: FakeHub, mine: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkdash.host.hub_download.OVER_HTTP", 500_000)
    monkeypatch.setattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", 500_000)
    with refused("xet_missing", "which the hub serves through xet only"):
        await fetched(mine)


@pytest.mark.parametrize("begun", [b"", MEGABYTE[:300_000]])
async def test_what_came_is_not_left_in_the_page_cache(hub: FakeHub, begun: bytes) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        mine = Hub(Path(folder), endpoint=hub.url)
        (big,) = (file for file in (await mine.plan([REF]))[0].files if file.path == SHARDS[0])
        blob = Path(folder) / f"hub/models--org--big/blobs/{big.sha256}"
        blob.parent.mkdir(parents=True)
        blob.with_name(f"{blob.name}.incomplete").write_bytes(begun)
        await fetched(mine)
        with blob.open("rb") as opened:
            if (left := cached_bytes(opened.fileno())) is None:
                pytest.skip("this kernel does not count cached pages")
            assert left == 0
            assert opened.read() == MEGABYTE


async def test_two_programs_do_not_fetch_the_same_file(hub: FakeHub, mine: Hub, tmp_path: Path) -> None:
    (big,) = (file for file in (await mine.plan([REF]))[0].files if file.path == SHARDS[0])
    part = tmp_path / f"hub/models--org--big/blobs/{big.sha256}.incomplete"
    part.parent.mkdir(parents=True)
    with part.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with refused("weights_busy", "already fetching org/big"):
            await fetched(mine)


@pytest.mark.parametrize(("where", "status", "headers", "code", "told"), [
    ("/api/models/org/big", 401, {"X-Error-Code": "GatedRepo"}, "weights_gated", "Accept its terms"),
    ("/org/big/resolve", 403, {"X-Error-Code": "GatedRepo"}, "weights_gated", "Accept its terms"),
    ("/api/models", 404, {"X-Error-Code": "RepoNotFound"}, "weights_unknown", "The hub has no model org/big"),
    ("/api/models", 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, "token_refused", "401"),
    ("/api/models", 403, {}, "token_refused", "Make a new token"),
    ("/api/models", 500, {}, "hub_unreachable", "The hub answered 500"),
    ("/cdn", 500, {}, "hub_unreachable", "the same command resumes"),
], ids=str)  # fmt: skip
async def test_a_refusal_is_one_sentence_and_what_to_do(
    hub: FakeHub, mine: Hub, where: str, status: int, headers: dict[str, str], code: str, told: str
) -> None:
    hub.refusals[where] = (status, headers)
    with refused(code) as caught:
        await fetched(mine)
    text = caught.value.text()
    assert told in text
    assert TOKEN not in text
    assert "http" not in text


@pytest.mark.parametrize(("ref", "told"), [
    (ModelRef(hf="org/big", revision="v9"), "org/big has no revision v9"),
    (ModelRef(hf="a/b/c"), "cannot be the name of a model on the hub"),
], ids=str)  # fmt: skip
async def test_a_model_that_no_hub_can_have(mine: Hub, ref: ModelRef, told: str) -> None:
    with pytest.raises(HostError, match=told):
        await fetched(mine, ref)


async def test_without_a_network(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="The hub cannot be reached") as caught:
        await Hub(tmp_path, endpoint="http://127.0.0.1:1").plan([REF])
    assert "--offline" in (caught.value.hint or "")


async def test_what_does_not_fit_is_refused_before_anything_comes(hub: FakeHub, tmp_path: Path) -> None:
    mine = Hub(tmp_path, endpoint=hub.url, free=lambda _: 1000)
    with refused("disk_full", r"MiB of weights are missing, but the disk of .* has only 1 KiB free"):
        mine.check_space(await mine.plan([REF]))
    Hub(tmp_path, endpoint=hub.url).check_space(await mine.plan([REF]))
    assert hub.got("GET", "/resolve/") == []


@pytest.mark.parametrize(("error", "code"), [
    (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
    (PermissionError(errno.EACCES, "Permission denied", "/cache/hub"), "cache_unusable"),
    (OSError("Consistency check failed: https://cdn/signed"), "hub_unreachable"),
], ids=str)  # fmt: skip
def test_the_disks_own_troubles(error: OSError, code: str) -> None:
    with refused(code) as caught, as_host_error("org/big", "main"):
        raise error
    assert "signed" not in caught.value.text()


def test_which_files_an_engine_reads() -> None:
    both = ["config.json", "model.safetensors", "metal/model.bin", "original/a.safetensors", "pytorch_model.bin"]
    assert wanted_files(both) == ["config.json", "model.safetensors"]
    ggufs = ["a-Q4_K_M.gguf", "a-Q8_0.gguf", "README.md"]
    assert wanted_files(ggufs) == sorted(ggufs)
    assert wanted_files(ggufs, "q4_k_m") == ["README.md", "a-Q4_K_M.gguf"]
    assert wanted_files(["pytorch_model.bin", "config.json"]) == ["config.json", "pytorch_model.bin"]


def test_the_rate_is_of_the_last_seconds() -> None:
    now = [0.0]
    meter = DownloadMeter(1000, 600, lambda: now[0])
    assert (meter.now().came_bytes, meter.now().bytes_per_s) == (400, None)
    bar = meter.bar(0)
    for _ in range(20):
        now[0] += 1
        bar.update(10)
    told = meter.now()
    assert (told.came_bytes, told.bytes_per_s, told.eta_s) == (600, 10.0, 40.0)


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
MODELS = {
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
def header_hub() -> Iterator[str]:
    with FakeHub({name: Repo(files) for name, files in MODELS.items()}, REFUSALS) as made:
        yield made.url


def test_one_file_is_read_from_its_header(header_hub: str) -> None:
    """The weights behind it are not there, so they cannot have been asked for."""
    found = hub_download.read_weight_headers("org/one", endpoint=header_hub)
    assert (found.origin, found.bytes.head, found.parameters) == ("org/one", 128000, 64000)
    assert found.kv_bytes_per_token() == 2 * 2 * 2 * 16 * 2


def test_all_shards_of_an_index_are_read_with_their_quantization(header_hub: str) -> None:
    found = hub_download.read_weight_headers("org/two", endpoint=header_hub)
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
def test_what_the_hub_does_not_give_is_said_in_our_words(header_hub: str, name: str, code: str, told: str) -> None:
    with refused(code, told) as error:
        hub_download.read_weight_headers(name, endpoint=header_hub)
    assert "http" not in error.value.text()


def test_no_hub_is_told_at_once() -> None:
    with pytest.raises(HostError, match="The hub cannot be reached"):
        hub_download.read_weight_headers("org/one", endpoint="http://127.0.0.1:1")

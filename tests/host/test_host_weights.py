"""Weights, images and compile caches that are on this box."""

import json
import os
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from copied_trees import cached_model
from fake_daemon import summary

from sparkdash.daemon import control_actions
from sparkdash.domain.images import Inventory, Item, Stock
from sparkdash.domain.profile import ModelRef, ProfileSummary
from sparkdash.errors import HostError
from sparkdash.host.compile_caches import CompileCache, list_caches, remove
from sparkdash.host.local_weights import Presence, find_weights, how_to_fix, missing_parts, sum_presence
from sparkdash.settings import Settings

COMMIT = "c" * 40


def cached(home: Path, files: dict[str, bytes], *, gone: tuple[str, ...] = ()) -> Path:
    """A repository org/m in the cache; of `gone` only the links are there."""
    place = cached_model(home, "org/m", files, COMMIT)
    for name in gone:
        (place / "snapshots" / COMMIT / name).resolve().unlink()
    return place


INDEX = json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}).encode()


def test_a_whole_snapshot_is_here_with_its_size(tmp_path: Path) -> None:
    cached(tmp_path, {"config.json": b"{}", "a.safetensors": b"a" * 10, "b.safetensors": b"b" * 20})
    assert find_weights(ModelRef(hf="org/m"), tmp_path) == Presence("org/m", here=True, size=32)
    assert find_weights(ModelRef(hf="org/m", revision=COMMIT), tmp_path).here
    assert not find_weights(ModelRef(hf="org/m", revision="v2"), tmp_path).here


@pytest.mark.parametrize(("files", "gone", "lacks"), [
    ({"config.json": b"{}"}, (), "no weights"),
    ({"a.safetensors": b"a", "model.safetensors.index.json": INDEX}, (), "1 of its weight files"),
    ({"a.safetensors": b"a", "b.safetensors": b"b", "model.safetensors.index.json": INDEX}, ("b.safetensors",), "1 of its weight files"),
    ({"m-00001-of-00003.safetensors": b"1"}, (), "2 of its weight files"),
], ids=["no weights", "an indexed shard", "a dead link", "a numbered shard"])  # fmt: skip
def test_half_a_download_is_not_here(
    tmp_path: Path, files: dict[str, bytes], gone: tuple[str, ...], lacks: str
) -> None:
    cached(tmp_path, files, gone=gone)
    came = sum(len(data) for name, data in files.items() if name not in gone)
    assert find_weights(ModelRef(hf="org/m"), tmp_path) == Presence("org/m", here=False, size=came, lacks=lacks)


def test_a_download_that_was_cut_early_is_not_here(tmp_path: Path) -> None:
    (cached(tmp_path, {"a.safetensors": b"a" * 10}) / "refs/main").unlink()
    cut = Presence("org/m", here=False, size=10, lacks="not in the cache")
    assert find_weights(ModelRef(hf="org/m"), tmp_path) == cut
    assert find_weights(ModelRef(hf="org/other"), tmp_path).size == 0


def test_a_quantisation_is_looked_for_by_name(tmp_path: Path) -> None:
    cached(tmp_path, {"m-Q4_K_M.gguf": b"4444"})
    assert find_weights(ModelRef(hf="org/m:Q4_K_M"), tmp_path).here
    assert find_weights(ModelRef(hf="org/m:Q8_0"), tmp_path).lacks == "no weights"


def test_paths(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    at = ModelRef(path=str(folder))
    assert find_weights(at, tmp_path).lacks == "no weights"
    (folder / "rank0.engine").write_bytes(b"123")
    assert find_weights(at, tmp_path) == Presence(str(folder), here=True, size=3)
    (folder / "m-00001-of-00002.gguf").write_bytes(b"12")
    assert find_weights(at, tmp_path).lacks == "1 of its weight files"
    first = ModelRef(path=str(folder / "m-00001-of-00002.gguf"))
    assert find_weights(first, tmp_path).lacks == "1 of its parts"
    (folder / "m-00002-of-00002.gguf").write_bytes(b"12")
    assert find_weights(first, tmp_path) == Presence(first.ref, here=True, size=4)
    assert find_weights(ModelRef(path=str(folder / "nothing")), tmp_path).lacks == "no such file or folder"


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 123\n" % 0
TENSOR = b'{"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
TENSORS = len(TENSOR).to_bytes(8, "little") + TENSOR + b"abcd"


def gguf(data: int) -> bytes:
    """One with a vocabulary, two tensors of Q8_0 and this many bytes of their data."""
    text = lambda word: struct.pack("<Q", len(word)) + word  # noqa: E731
    words = struct.pack("<IIQ", 9, 8, 3) + text(b"a") + text(b"bc") + text(b"")
    entries = text(b"tokens") + words + text(b"general.alignment") + struct.pack("<II", 4, 64)
    tensors = [text(name) + struct.pack("<IQIQ", 1, 32, 8, offset) for name, offset in ((b"a", 0), (b"b", 64))]
    head = struct.pack("<4sIQQ", b"GGUF", 3, 2, 2) + entries + b"".join(tensors)
    return head + bytes(-len(head) % 64 + data)


@pytest.mark.parametrize(("name", "content", "lacks"), [
    ("model.safetensors", LFS, "model.safetensors is a Git LFS pointer, not the weights"),
    ("model.safetensors", b"", "model.safetensors is empty"),
    ("model.safetensors", TENSORS[:-1], f"model.safetensors is cut: {len(TENSORS) - 1} of {len(TENSORS)} bytes"),
    ("model.safetensors", TENSORS[:20], "model.safetensors is cut: 20 of 63 bytes"),
    ("model.safetensors", TENSORS, None),
    ("m.gguf", gguf(97), "m.gguf is cut: 289 of 290 bytes"),
    ("m.gguf", gguf(98)[:60], "m.gguf is cut within its header"),
    ("m.gguf", gguf(98), None),
    ("m.gguf", gguf(98).replace(b"GGUF\x03", b"GGUF\x04", 1), None),
    ("m.gguf", struct.pack("<4sIQQQ", b"GGUF", 3, 1, 1, 2**62), "m.gguf is cut within its header"),
    ("m.gguf", struct.pack("<4sIQQQ3sIIQ", b"GGUF", 3, 1, 1, 3, b"abc", 9, 99, 2**60), "m.gguf is cut within its header"),
])  # fmt: skip
def test_a_file_that_is_there_and_not_whole_is_told(
    tmp_path: Path, name: str, content: bytes, lacks: str | None
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / name).write_bytes(content)
    cached(tmp_path, {name: content})
    for ref in (ModelRef(path=str(tmp_path / "m")), ModelRef(hf="org/m"), ModelRef(path=str(tmp_path / "m" / name))):
        found = find_weights(ref, tmp_path)
        assert (found.here, found.lacks, found.broken) == (lacks is None, lacks, lacks is not None)
    assert how_to_fix(ModelRef(path="/w")).endswith("`hf download OWNER/NAME --local-dir /w`.")
    assert how_to_fix(ModelRef(path="/w/m.gguf")).endswith("`hf download OWNER/NAME m.gguf --local-dir /w`.")


def test_a_cache_whose_links_lead_out_of_it_is_told_for_containers_alone(tmp_path: Path) -> None:
    """Blobs moved to another disk, or links written anew by a copy: a container sees the cache at another path."""
    snapshot = cached(tmp_path, {"config.json": b"{}", "model.safetensors": TENSORS}) / "snapshots" / COMMIT
    assert find_weights(ModelRef(hf="org/m"), tmp_path).here
    for link in snapshot.iterdir():
        target = link.resolve()
        link.unlink()
        link.symlink_to(target)
    found = find_weights(ModelRef(hf="org/m"), tmp_path)
    assert (found.here, found.broken) == (False, True)
    assert found.lacks == "config.json is a link to an absolute path, which leads nowhere in a container"
    assert find_weights(ModelRef(hf="org/m"), tmp_path, contained=False).here


@pytest.mark.parametrize("name", [".model.safetensors.aB3dEf", ".sparkdash-part/model.safetensors"])
def test_a_folder_that_another_box_is_copying_here_is_not_complete(tmp_path: Path, name: str) -> None:
    """Else a folder of unknown files is an engine's own format."""
    (tmp_path / "m" / name).parent.mkdir(parents=True)
    (tmp_path / "m/config.json").write_text("{}")
    (tmp_path / "m" / name).write_text("")
    assert find_weights(ModelRef(path=str(tmp_path / "m")), tmp_path).lacks == "the rest of a copy"


def test_all_models_of_a_profile_as_one() -> None:
    a, b = Presence("a", here=True, size=5), Presence("b", here=False, size=1, lacks="no weights")
    assert sum_presence([a, a]) == a
    assert sum_presence([a, b]) == Presence("a, b", here=False, size=6, lacks="b: no weights")
    assert sum_presence([]) is None


def test_other_files_do_not_count() -> None:
    assert missing_parts(["model.safetensors", "README.md"]) is None


class Runtime:
    """One that has these images, or is ill."""

    def __init__(self, images: dict[str, int] | None, *, containerised: bool = True, name: str = "sh") -> None:
        self.name = name
        self.containerised = containerised
        self._images = images
        self.asked: list[list[str]] = []

    async def images(self, names: list[str]) -> dict[str, int]:
        self.asked.append(names)
        if self._images is None:
            raise HostError("podman does not answer.")
        return {name: self._images[name] for name in names if name in self._images}


def profile(name: str, image: str = "a:1", **more: Any) -> ProfileSummary:
    return summary(name, image=image, **more)


async def inventory(runtime: Runtime, hf_home: Path, *profiles: Any) -> Inventory:
    supervisor = SimpleNamespace(settings=Settings(hf_home=hf_home))
    return await control_actions.stock_of_profiles(
        cast("Any", SimpleNamespace(supervisor=supervisor, parts=SimpleNamespace(runtime=runtime), others=None)),
        profiles,
    )


async def test_one_call_tells_all_images_and_simulated_profiles_need_none(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "a-00001-of-00002.safetensors").write_bytes(b"x" * 7)
    runtime = Runtime({"a:1": 5})
    half = (ModelRef(path=str(tmp_path / "m")),)
    profiles = (profile("p"), profile("q", "b:1", weights=half), profile("s", simulated=True))
    told = await inventory(runtime, tmp_path, *profiles)
    assert told.stock == {
        "p": Stock(image=Item(here=True, size=5)),
        "q": Stock(image=Item(here=False), weights=Item(here=False, size=7)),
    }
    assert runtime.asked == [["a:1", "b:1"]]


@pytest.mark.parametrize("runtime", [Runtime(None), Runtime({}, containerised=False)], ids=["ill", "plain processes"])
async def test_what_a_runtime_does_not_tell_is_not_known(runtime: Runtime, tmp_path: Path) -> None:
    assert (await inventory(runtime, tmp_path, profile("p"))).stock == {"p": Stock()}


async def test_a_runtime_that_is_not_installed_has_no_image(tmp_path: Path) -> None:
    told = await inventory(Runtime(None, name="podman-of-nowhere"), tmp_path, profile("p"))
    assert told.stock == {"p": Stock(image=Item(here=False))}


NEW, OLD = 2_000_000_000.0, 1_000_000_000.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "engines").mkdir()
    return tmp_path / "engines"


def make(root: Path, name: str, at: float) -> Path:
    folder = root / name
    (folder / "triton").mkdir(parents=True)
    (folder / "triton" / "kernel").write_bytes(b"k" * 8192)
    os.utime(folder, (at, at))
    return folder


def test_each_cache_is_listed_with_its_image_its_model_and_its_last_start(root: Path) -> None:
    used = make(root, "vllm-v1@0123456789ab@org-model", NEW)
    make(root, "vllm-v0", OLD)
    first, second = list_caches(root, {str(used)})
    assert (first.image, first.image_id, first.weights, first.in_use) == ("vllm-v1", "0123456789ab", "org-model", True)
    assert (second.image, second.image_id, second.weights, second.in_use) == ("vllm-v0", None, None, False)
    assert (first.bytes, first.started_at, second.started_at) == (8192, NEW, OLD)
    assert list_caches(root / "none", ()) == []


@pytest.mark.parametrize("starts_after_the_list", [True, False])
def test_a_cache_of_an_engine_that_starts_meanwhile_or_may_not_be_listed_yet_stays(
    root: Path, starts_after_the_list: bool
) -> None:
    folder = make(root, "a", OLD if starts_after_the_list else time.time() - 100)
    (listed,) = list_caches(root, ())
    if starts_after_the_list:
        os.utime(folder, (NEW, NEW))
    assert remove(listed) == "an engine has just started with it"
    assert (folder / "triton" / "kernel").exists()


def test_an_old_cache_is_removed_whole(root: Path) -> None:
    make(root, "a", OLD)
    (listed,) = list_caches(root, ())
    assert remove(listed) is None
    assert list(root.iterdir()) == []


def test_a_cache_that_cannot_be_removed_says_why(root: Path) -> None:
    gone = CompileCache(root / "gone", "a", None, None, 0, OLD)
    assert remove(gone) == f"No such file or directory ({root / 'gone'})"

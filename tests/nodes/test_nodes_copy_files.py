"""Copy of files to a node by a real rsync: cut anywhere and resumed, what is equal and not sent, and its errors."""

import contextlib
import itertools
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from copied_trees import FolderNode, cached_model, contents, weights_copy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from sparkdash.domain.images import CopyStep
from sparkdash.domain.profile import ModelRef
from sparkdash.errors import HostError
from sparkdash.host.hub_download import Stopped
from sparkdash.nodes.shipping import child, drop_pages, weights
from sparkdash.nodes.shipping.shipper import NodeShipper
from sparkdash.nodes.shipping.weights import MissingFiles, ModelFiles, model_files

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync (tests/two_hosts/setup.sh)")
MIB = 1 << 20
RANDOM = random.Random(1)
LARGE = RANDOM.randbytes(2 * MIB + 17)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PAUSES_S", ())


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    cached_model(
        folder, "owner/model", {"model.safetensors": LARGE, "config.json": b"{}", "sub/tokenizer.json": b"[1]" * 1000}
    )
    return folder


@pytest.fixture
def node(tmp_path: Path) -> Path:
    home = tmp_path / "node"
    home.mkdir()
    return home


@pytest.fixture
def plain(node: Path, tmp_path: Path) -> ModelFiles:
    """A folder of weights here, and where it is to be on the node: there is one, which is empty."""
    (tmp_path / "model").mkdir()
    (node / "there").mkdir()
    return ModelFiles("m", tmp_path / "model", str(node / "there"))


def files_of(here: Path) -> ModelFiles:
    return model_files(ModelRef(hf="owner/model"), here, "~/hf")


def copy_all(home: Path, here: Path, cuts: tuple[int, ...] = ()) -> int:
    """Copy the model in one go; return the bytes that were missing."""
    copy = weights_copy(home, cuts)
    missing = copy.compare(files_of(here), any_content=False)
    copy.send(files_of(here), missing)
    return missing.size


def test_a_model_of_the_cache_arrives_with_its_blobs_links_and_revision(here: Path, node: Path) -> None:
    copy_all(node, here)
    assert contents(node / "hf") == contents(here)


def test_after_a_copy_nothing_is_missing_and_nothing_is_hashed(here: Path, node: Path) -> None:
    copy_all(node, here)
    copy = weights_copy(node)
    missing = copy.compare(files_of(here), any_content=False)
    assert (missing.names, missing.size, missing.total > len(LARGE)) == ((), 0, True)
    assert copy._meter.now().total_bytes == 0


def test_equal_files_of_unknown_origin_are_hashed_once_and_not_sent(node: Path, plain: ModelFiles) -> None:
    (plain.folder / "a.safetensors").write_bytes(LARGE)
    (node / "there" / "a.safetensors").write_bytes(LARGE)
    first, second = weights_copy(node), weights_copy(node)
    os.utime(node / "there" / "a.safetensors", (1, 1))
    assert first.compare(plain, any_content=False).names == ()
    assert first._meter.now().total_bytes == len(LARGE)
    assert second.compare(plain, any_content=False).names == ()
    assert second._meter.now().total_bytes == 0


def test_a_file_of_the_same_size_with_other_content_is_sent_unless_any_content_will_do(
    node: Path, plain: ModelFiles
) -> None:
    (plain.folder / "a.safetensors").write_bytes(LARGE)
    (node / "there" / "a.safetensors").write_bytes(LARGE[::-1])
    os.utime(node / "there" / "a.safetensors", (1, 1))
    assert weights_copy(node).compare(plain, any_content=True).names == ()
    missing = weights_copy(node).compare(plain, any_content=False)
    assert (missing.names, missing.size) == (("a.safetensors",), len(LARGE))
    weights_copy(node).send(plain, missing)
    assert contents(node / "there") == contents(plain.folder)


def test_a_blob_is_known_by_its_name_and_a_revision_by_its_content(here: Path, node: Path) -> None:
    shutil.copytree(here, node / "hf", symlinks=True)
    for path in (node / "hf").rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (1, 1))
    ref = node / "hf/hub/models--owner--model/refs/main"
    ref.write_text("facade")
    os.utime(ref, (1, 1))
    assert weights_copy(node).compare(files_of(here), any_content=False).names == ("refs/main",)
    copy_all(node, here)
    assert contents(node / "hf") == contents(here)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 2 * MIB + 10_000), min_size=1, max_size=4))
def test_any_interruptions_then_a_resume_give_equal_trees(here: Path, cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for at in cuts:
            with contextlib.suppress(HostError):
                copy_all(home, here, (10**9, at))
            found = {name: each for name, each in contents(home / "hf").items() if "/blobs/." not in name}
            wanted = contents(here)
            assert all(wanted[name] == each for name, each in found.items())  # nothing is visible by half
        copy_all(home, here)
        left = {name: each for name, each in contents(home / "hf").items() if "/blobs/." not in name}
        assert left == contents(here)


def test_a_cut_link_is_tried_again_by_itself(here: Path, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PAUSES_S", (0.01, 0.01))
    copy = weights_copy(node, (10**9, MIB, MIB + MIB // 2))
    missing = copy.compare(files_of(here), any_content=False)
    copy.send(files_of(here), missing)
    assert contents(node / "hf") == contents(here)
    now = copy._meter.now()
    assert (now.step, now.total_bytes) == (CopyStep.SEND, missing.total)


def test_links_modes_times_and_empty_files_of_a_folder_arrive(node: Path, tmp_path: Path) -> None:
    folder, outside = tmp_path / "model", tmp_path / "elsewhere.bin"
    (folder / "sub").mkdir(parents=True)
    outside.write_bytes(b"outside")
    (folder / "a.gguf").write_bytes(b"weights")
    (folder / "b.gguf.incomplete").write_bytes(b"half")
    (folder / "empty").touch()
    (folder / "sub" / "inside").symlink_to("../a.gguf")
    (folder / "outside").symlink_to(outside)
    (folder / "sub" / "circle").symlink_to("..")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "Grüße.json").write_text("1")
    there = node / "there"
    files = ModelFiles("m", folder, str(there))
    copy = weights_copy(node)
    copy.send(files, copy.compare(files, any_content=False))
    assert contents(there) == {
        "a.gguf": b"weights", "empty": b"", "sub/inside": "-> ../a.gguf", "sub/circle": "-> ..", "outside": b"outside", "run.sh": b"#!/bin/sh\n", "Grüße.json": b"1",
    }  # fmt: skip
    assert os.access(there / "run.sh", os.X_OK)
    assert int((there / "a.gguf").stat().st_mtime) == int((folder / "a.gguf").stat().st_mtime)


def test_a_disk_without_room_is_named_before_anything_is_sent(here: Path, node: Path) -> None:
    copy = weights_copy(node)
    found = copy.compare(files_of(here), any_content=False)
    with refused("disk_full") as failure:
        copy.send(files_of(here), MissingFiles(found.names, 10**15, 10**15))
    assert "on spark2" in failure.value.message
    assert "Free" in (failure.value.hint or "")
    assert contents(node) == {}


def test_a_folder_in_the_way_of_a_file_is_told_in_rsyncs_words(node: Path, plain: ModelFiles) -> None:
    (plain.folder / "a.gguf").write_bytes(b"weights")
    (node / "there" / "a.gguf" / "full").mkdir(parents=True)
    copy = weights_copy(node)
    with refused("copy_refused", r"cannot be copied to .*a\.gguf"):
        copy.send(plain, copy.compare(plain, any_content=False))


def test_a_node_without_rsync_is_told_how_to_get_it(here: Path, node: Path) -> None:
    with pytest.raises(HostError, match="There is no rsync on spark2") as failure:
        weights_copy(node, path="/nowhere").compare(files_of(here), any_content=False)
    assert "sudo apt-get install rsync" in (failure.value.hint or "")


def test_a_box_without_rsync_is_told_how_to_get_it(here: Path, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostError, match="There is no rsync on this box"):
        weights_copy(node).compare(files_of(here), any_content=False)


def test_a_second_copy_of_the_same_model_is_told_that_another_one_is_at_it(node: Path, tmp_path: Path) -> None:
    one, other = (NodeShipper(FolderNode(node), tmp_path, tmp_path / "locks", images=False) for _ in range(2))
    again = other._locked("spark2", "owner/model")
    with one._locked("spark2", "owner/model"), other._locked("spark2", "owner/other"), refused("copy_busy"), again:
        pass


def test_a_stopped_copy_ends_its_commands(node: Path) -> None:
    copy = weights_copy(node)
    looks = itertools.count()

    def look(_: str) -> None:
        if next(looks) == 1:
            copy._meter.stop()

    with pytest.raises(Stopped):
        child.run_watched(["sleep", "60"], copy._meter, look)
    with pytest.raises(Stopped):
        child.run_piped(["cat", "/dev/zero"], ["cat"], copy._meter)


def test_the_output_of_one_command_reaches_another_and_is_counted() -> None:
    meter = weights_copy(Path())._meter
    meter.begin(CopyStep.SEND, MIB)
    saved, loaded = child.run_piped(["head", "-c", str(MIB), "/dev/zero"], ["wc", "-c"], meter)
    assert (saved.code, loaded.code, int(loaded.out)) == (0, 0, MIB)
    assert meter.now().step is CopyStep.LOAD


def test_pages_are_dropped_of_large_files_alone_and_unreadable_places_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small").write_bytes(b"1")
    (tmp_path / "large").write_bytes(LARGE)
    (tmp_path / "link").symlink_to("large")
    monkeypatch.setattr(drop_pages, "LEAST", MIB)
    dropped = []
    monkeypatch.setattr(drop_pages.os, "posix_fadvise", lambda opened, *_: dropped.append(os.fstat(opened).st_size))
    drop_pages.drop(str(tmp_path))
    drop_pages.drop(str(tmp_path / "none"))
    assert dropped == [len(LARGE)]

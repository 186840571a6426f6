"""Copy of files to a node: a receiver as a process of its own, cut anywhere, resumed, and refused what is hostile."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from copied_trees import cached_model, contents, context, receiver, tree_copy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkdash.domain.profile import ModelRef
from sparkdash.errors import HostError
from sparkdash.nodes.shipping.copy_context import CopyContext, Sessions
from sparkdash.nodes.shipping.file_lane import file_ident
from sparkdash.nodes.shipping.receiver_session import ReceiverRefusal, ReceiverSession
from sparkdash.nodes.shipping.source_files import model_tree
from sparkdash.nodes.shipping.tree_copy import TreeCopy

MIB = 1 << 20
RANDOM = random.Random(1)
LARGE = RANDOM.randbytes(2 * MIB + 17)


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


def copy_all(home: Path, sums: Path, here: Path, cuts: tuple[int, ...] = ()) -> int:
    """Copy the model in one go; return the bytes that were missing."""
    copy = tree_copy(home, sums, cuts)
    missing = copy.compare(model_tree(ModelRef(hf="owner/model"), here, "~/hf"))
    copy.send(missing)
    return missing.missing_bytes


def test_a_model_of_the_cache_arrives_with_its_blobs_links_and_revision(here: Path, node: Path, tmp_path: Path) -> None:
    copy_all(node, tmp_path / "sums.json", here)
    assert contents(node / "hf") == contents(here)


def test_a_second_copy_sends_and_hashes_nothing(here: Path, node: Path, tmp_path: Path) -> None:
    copy_all(node, tmp_path / "sums.json", here)
    copy = tree_copy(node, tmp_path / "sums.json")
    missing = copy.compare(model_tree(ModelRef(hf="owner/model"), here, "~/hf"))
    assert (missing.files, missing.links, copy._context.meter.now().total_bytes) == ((), (), 0)


def test_equal_files_of_unknown_origin_are_hashed_once_and_not_sent(here: Path, node: Path, tmp_path: Path) -> None:
    shutil.copytree(here, node / "hf", symlinks=True)
    copy = tree_copy(node, tmp_path / "sums.json")
    tree = model_tree(ModelRef(hf="owner/model"), here, "~/hf")
    assert copy.compare(tree).files == ()
    assert copy._context.meter.now().total_bytes > len(LARGE)
    again = tree_copy(node, tmp_path / "sums.json")
    assert (again.compare(tree).files, again._context.meter.now().total_bytes) == ((), 0)


def test_a_file_of_the_same_size_with_other_content_is_sent(here: Path, node: Path, tmp_path: Path) -> None:
    shutil.copytree(here, node / "hf", symlinks=True)
    blob = next(path for path in (node / "hf").rglob("blobs/*") if path.stat().st_size == len(LARGE))
    blob.write_bytes(LARGE[::-1])
    assert copy_all(node, tmp_path / "sums.json", here) == len(LARGE)
    assert contents(node / "hf") == contents(here)


def _cuts() -> st.SearchStrategy[int]:
    """Bytes after which a connection is cut: in the program, in a request, in a frame, around the end of a file."""
    edges = [edge + near for edge in (len(LARGE), MIB, 2 * MIB) for near in (-70, -1, 0, 1, 3, 4, 5, 64, 68, 69, 4000)]
    return st.one_of(
        st.integers(0, 30_000), st.integers(0, 3 * MIB), st.sampled_from(edges).map(lambda at: at + 17_800)
    )


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(_cuts(), min_size=1, max_size=6))
def test_any_interruptions_then_a_resume_give_equal_trees(here: Path, cuts: list[int]) -> None:
    with _folder() as home:
        for at in cuts:
            with contextlib.suppress(HostError):
                copy_all(home, home / "sums.json", here, (10**9, 10**9, at))
            whole = {name: each for name, each in contents(home / "hf").items() if not name.endswith("-part")}
            wanted = contents(here)
            assert all(wanted[name] == each for name, each in whole.items())  # nothing is visible by half
        copy_all(home, home / "sums.json", here)
        assert contents(home / "hf") == contents(here)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_a_cut_link_is_resumed_by_itself_and_bytes_that_arrived_are_not_sent_again(
    here: Path, node: Path, tmp_path: Path
) -> None:
    cuts = (10**9, 10**9, 10**9, MIB + 60_000, MIB // 2 + 60_000)
    copy = tree_copy(node, tmp_path / "sums.json", cuts, pauses_s=(0.01,))
    missing = copy.compare(model_tree(ModelRef(hf="owner/model"), here, "~/hf"))
    copy.send(missing)
    assert contents(node / "hf") == contents(here)
    meter = copy._context.meter
    assert meter.now().came_bytes == meter.now().total_bytes
    assert meter._bytes._received < missing.missing_bytes + 300_000  # what was on its way when it broke


def test_a_part_of_a_file_that_has_changed_is_not_taken_for_its_beginning(node: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a.safetensors").write_bytes(LARGE)
    ref = ModelRef(path=str(folder))
    tree = model_tree(ref, tmp_path, "~/hf")
    there = node / "there"
    tree = _at(tree, there)
    cut = tree_copy(node, tmp_path / "sums.json", (10**9, 10**9, MIB))
    missing = cut.compare(tree)
    with pytest.raises(HostError, match="broke"):
        cut.send(missing)
    assert [name for name in contents(there) if name.endswith(".sparkdash-part")]
    (folder / "a.safetensors").write_bytes(LARGE[::-1])
    copy = tree_copy(node, tmp_path / "sums.json")
    changed = _at(model_tree(ref, tmp_path, "~/hf"), there)
    copy.send(copy.compare(changed))
    assert contents(there) == contents(folder)


def _at(tree, root: Path):  # type: ignore[no-untyped-def]
    return type(tree)(tree.model, str(root), tree.files, tree.links)


def test_links_modes_and_empty_files_of_a_folder_arrive_and_broken_links_stay(node: Path, tmp_path: Path) -> None:
    folder, outside = tmp_path / "model", tmp_path / "elsewhere.bin"
    (folder / "sub").mkdir(parents=True)
    outside.write_bytes(b"outside")
    (folder / "a.gguf").write_bytes(b"weights")
    (folder / "empty").touch()
    (folder / "sub" / "inside").symlink_to("../a.gguf")
    (folder / "outside").symlink_to(outside)
    (folder / "broken").symlink_to("nothing")
    (folder / "sub" / "circle").symlink_to("..")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    tree = _at(model_tree(ModelRef(path=str(folder)), tmp_path, "~/hf"), node / "there")
    copy = tree_copy(node, tmp_path / "sums.json")
    copy.send(copy.compare(tree))
    assert contents(node / "there") == {
        "a.gguf": b"weights", "empty": b"", "sub/inside": "-> ../a.gguf", "sub/circle": "-> ..", "outside": b"outside", "run.sh": b"#!/bin/sh\n",
    }  # fmt: skip
    assert os.access(node / "there" / "run.sh", os.X_OK)
    assert (node / "there" / "a.gguf").stat().st_mtime_ns == (folder / "a.gguf").stat().st_mtime_ns


@pytest.mark.parametrize(
    "name",
    ["../x", "/x", "a/../x", "a//x", "", ".", "x" * 256, "a\nb", "/".join("d" * 70), "x.sparkdash-part", "\ud800"],
)
def test_the_receiver_refuses_a_name_that_is_hostile_or_huge(name: str, node: Path) -> None:
    with ReceiverSession(receiver(node)) as session, pytest.raises(ReceiverRefusal, match="bad_name"):
        session.ask("put", root="~/r", name=name, ident="1", size=1, mode=0o644, mtime_ns=0)
    assert contents(node) == {}


@pytest.mark.parametrize(
    ("name", "target"), [("a", "/etc/passwd"), ("a", ".."), ("d/a", "../../x"), ("a", "b/../../c")]
)
def test_the_receiver_makes_no_link_that_leads_out_of_its_folder(name: str, target: str, node: Path) -> None:
    with ReceiverSession(receiver(node)) as session, pytest.raises(ReceiverRefusal, match="bad_name"):
        session.ask("link", root="~/r", name=name, target=target)
    assert contents(node) == {}


def test_the_receiver_follows_no_link_out_of_its_folder(node: Path, tmp_path: Path) -> None:
    (node / "r").mkdir()
    (node / "r" / "out").symlink_to(tmp_path)
    with ReceiverSession(receiver(node)) as session, pytest.raises(ReceiverRefusal, match="bad_name"):
        session.ask("put", root="~/r", name="out/x", ident="1", size=1, mode=0o644, mtime_ns=0)
    assert not (tmp_path / "x").exists()


def test_the_receiver_removes_no_folder_but_its_own(node: Path) -> None:
    (node / "precious").mkdir()
    with ReceiverSession(receiver(node)) as session, pytest.raises(ReceiverRefusal, match="bad_name"):
        session.ask("remove", root="~/precious")
    assert (node / "precious").exists()


def test_a_disk_without_room_is_named_before_anything_is_sent(here: Path, node: Path, tmp_path: Path) -> None:
    copy = tree_copy(node, tmp_path / "sums.json")
    missing = copy.compare(model_tree(ModelRef(hf="owner/model"), here, "~/hf"))
    huge = type(missing)(
        missing.tree, tuple((type(f)(f.name, f.source, 10**15, 0, 0o644), 0) for f, _ in missing.files), ()
    )
    with pytest.raises(HostError) as failure:
        copy.send(huge)
    assert failure.value.code == "disk_full"
    assert "on spark2" in failure.value.message
    assert "Free" in (failure.value.hint or "")
    assert contents(node) == {}


def test_a_second_sender_of_the_same_file_is_told_that_another_one_is_at_it(
    here: Path, node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkdash.nodes.shipping.file_lane.BUSY_S", 0.0)
    tree = model_tree(ModelRef(hf="owner/model"), here, "~/hf")
    file = tree.files[0]
    facts = {"name": file.name, "ident": file_ident(file), "size": file.size, "mode": 0o644, "mtime_ns": 0}
    with ReceiverSession(receiver(node)) as first:
        first.ask("put", root=tree.root, **facts)
        copy = tree_copy(node, tmp_path / "sums.json")
        missing = copy.compare(tree)
        with pytest.raises(HostError) as failure:
            copy.send(missing)
    assert failure.value.code == "copy_busy"


def test_a_node_without_python_is_named(here: Path, node: Path, tmp_path: Path) -> None:
    plain = context(node, tmp_path / "sums.json")
    broken = Sessions(lambda: ["sh", "-c", "echo 'bash: python3: command not found' >&2; exit 127"])
    copy = TreeCopy(CopyContext(plain.node, broken, plain.sums, plain.meter))
    with pytest.raises(HostError, match="spark2 has no python3"):
        copy.compare(model_tree(ModelRef(hf="owner/model"), here, "~/hf"))

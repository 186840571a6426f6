"""Compile caches on disk: what is listed, and what a removal never takes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sparkdash.host.compile_caches import CompileCache, list_caches, remove

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
    """Last started first; a folder of an older version has a name and no more."""
    used = make(root, "vllm-v1@0123456789ab@org-model", NEW)
    make(root, "vllm-v0", OLD)
    first, second = list_caches(root, {str(used)})
    assert (first.image, first.image_id, first.weights, first.in_use) == ("vllm-v1", "0123456789ab", "org-model", True)
    assert (second.image, second.image_id, second.weights, second.in_use) == ("vllm-v0", None, None, False)
    assert (first.bytes, first.started_at, second.started_at) == (8192, NEW, OLD)
    assert list_caches(root / "none", ()) == []


def test_a_cache_with_which_an_engine_starts_meanwhile_stays(root: Path) -> None:
    folder = make(root, "a", OLD)
    (listed,) = list_caches(root, ())
    os.utime(folder, (NEW, NEW))
    assert remove(listed) == "an engine has just started with it"
    assert (folder / "triton" / "kernel").exists()


def test_a_cache_of_a_start_whose_container_may_not_be_listed_yet_stays(root: Path) -> None:
    folder = make(root, "a", time.time() - 100)
    (listed,) = list_caches(root, ())
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

"""Cached weights are let go of: after a stop where the owner wants that, and before a load that would meet a full cache."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.event import Level
from sparkdash.domain.metric import Memory
from sparkdash.domain.profile import ModelRef
from sparkdash.host.files import page_cache
from sparkdash.host.files.page_cache import ForgottenFiles
from sparkdash.host.hub import local_weights
from sparkdash.supervisor.memory import cache_eviction
from sparkdash.units import GIB


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that the kernel was advised of."""
    names: list[str] = []

    def let_go(files: list[Path], _limit_s: float) -> ForgottenFiles:
        names.extend(file.name for file in files)
        return ForgottenFiles(len(files), 60 * GIB, 0)

    monkeypatch.setattr(page_cache, "forget_files", let_go)
    return names


def models(folder: Path, **names: str) -> dict[str, Any]:
    """Models at paths that exist, by role, each used by the command line."""
    for name in names.values():
        (folder / name).write_bytes(b"w")
    found = {role: ModelRef(path=str(folder / name)) for role, name in names.items()}
    return {"models": found, "args": {f"use-{role}": f"{{{role}}}" for role in names}}


async def test_the_weights_of_who_left_are_let_go(
    house: Any, make_profile: Any, advised: list[str], tmp_path: Path
) -> None:
    """Not those that the engine beside it, or the one that comes, reads too. What was cached is told."""
    old = models(tmp_path, target="old.gguf", drafter="drafter.gguf", other="shared.gguf")
    await house.open(
        make_profile("old", gib=60, **old),
        make_profile("beside", gib=10, **models(tmp_path, target="shared.gguf")),
        make_profile("new", gib=70, **models(tmp_path, target="new.gguf", drafter="drafter.gguf")),
        drop_page_cache=True,
    )
    house.reader.page_cache = 30 * GIB
    await house.leased("old")
    await house.leased("beside")
    await house.leased("new")
    assert house.runtime.running() == ["beside", "new"]
    assert advised == ["old.gguf"]
    (notice,) = house.notices()
    assert (notice.code, notice.level, notice.profile) == ("page_cache_dropped", Level.INFO, "old")
    assert "1 weight file of old (60.0 GiB)" in notice.text
    assert "Cached on the box: 30.0 GiB before, 30.0 GiB after" in notice.text


async def test_nothing_is_let_go_unless_wanted(
    house: Any, make_profile: Any, advised: list[str], tmp_path: Path
) -> None:
    """The kernel does well without."""
    await house.open(make_profile("old", **models(tmp_path, target="old.gguf")))
    await house.leased("old")
    await house.clock.drive(house.supervisor.stop("old"))
    assert advised == []
    assert house.notices() == []


async def test_it_never_fails_a_swap(
    house: Any, make_profile: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A disk that hangs, or fails, costs a word."""
    monkeypatch.setattr(cache_eviction, "LET_GO_S", 0.0)
    await house.open(
        make_profile("a", **models(tmp_path, target="a.gguf")),
        make_profile("b", **models(tmp_path, target="b.gguf")),
        drop_page_cache=True,
    )
    await house.leased("a")
    await house.leased("b")

    def broken(_files: list[Path], _limit_s: float) -> ForgottenFiles:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(cache_eviction, "LET_GO_S", 30.0)
    monkeypatch.setattr(page_cache, "forget_files", broken)
    await house.leased("a")
    assert house.runtime.running() == ["a"]
    assert [notice.code for notice in house.notices()] == ["page_cache_slow", "page_cache_kept"]


async def test_room_is_made_of_weights_that_nobody_uses(
    house: Any, make_profile: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What no profile knows goes first; what runs or is named stays. It is told, and so is how much."""
    blobs = tmp_path / "hub/models--org--m/blobs"
    blobs.mkdir(parents=True)
    for name in ("a" * 64, f"{'b' * 64}.incomplete"):
        (blobs / name).write_bytes(b"")
        os.truncate(blobs / name, local_weights.SMALL)
    await house.open(
        make_profile("runs", **models(tmp_path, target="runs.gguf")),
        make_profile("other", **models(tmp_path, target="other.gguf", drafter="runs.gguf")),
        make_profile("comes", **models(tmp_path, target="comes.gguf")),
        hf_home=tmp_path,
    )
    await house.leased("runs")
    asked: list[tuple[list[str], int]] = []

    def forget(files: list[Path], wanted: int, _limit_s: float) -> int:
        asked.append(([file.name for file in files], wanted))
        return 3 * GIB

    monkeypatch.setattr(page_cache, "forget_up_to", forget)
    tools = house.supervisor._tools
    keep = await cache_eviction.weight_files(tools, house.supervisor.catalog.find("comes"))
    assert await cache_eviction.evict_weights(tools, 2 * GIB, keep=keep) == 3 * GIB
    assert asked == [(["a" * 64, "other.gguf"], 2 * GIB)]
    assert [notice.text for notice in house.notices()] == ["Let 3.0 GiB of cached weights go before the load."]


async def test_a_disk_that_hangs_holds_no_load_up(
    house: Any, make_profile: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither where the newcomer's files are looked for, nor where the others' are."""
    hangs = threading.Event()

    def files(_ref: ModelRef, _hf_home: Path) -> frozenset[Path]:
        hangs.wait()
        return frozenset()

    for name in ("LET_GO_S", "LATE_S"):
        monkeypatch.setattr(cache_eviction, name, 0.01)
    monkeypatch.setattr(local_weights, "weight_files_of", files)
    await house.open(make_profile("a", gib=100, **models(tmp_path, target="a.gguf")), hf_home=tmp_path)
    memory = Memory(total=128 * GIB, available=120 * GIB, free=20 * GIB, page_cache=100 * GIB)
    monkeypatch.setattr(house.reader, "memory", lambda: memory)
    try:
        async with asyncio.timeout(5):
            assert (
                await cache_eviction.evict_before_load(house.supervisor._tools, house.supervisor.catalog.find("a")) == 0
            )
    finally:
        hangs.set()


@pytest.mark.parametrize("failing", [OSError(5, "Input/output error"), None])
async def test_room_that_cannot_be_made_costs_nothing(
    house: Any, make_profile: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: OSError | None
) -> None:
    """A disk that fails; and a count that the kernel refuses, where the box's own figure is taken."""

    def forget(_files: list[Path], _wanted: int, _limit_s: float) -> int | None:
        if failing:
            raise failing
        house.reader.page_cache = 20 * GIB

    monkeypatch.setattr(page_cache, "forget_up_to", forget)
    await house.open(make_profile("a", **models(tmp_path, target="a.gguf")), hf_home=tmp_path)
    house.reader.page_cache = 30 * GIB
    gone = await cache_eviction.evict_weights(house.supervisor._tools, 2 * GIB)
    assert gone == (0 if failing else 10 * GIB)

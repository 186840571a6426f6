"""`drop_page_cache`: after a stop the kernel is told which weights are not needed, once the owner wants that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.event import Level
from sparkdash.domain.profile import ModelRef
from sparkdash.host import pagecache
from sparkdash.host.pagecache import LetGo
from sparkdash.supervisor import stopping
from sparkdash.units import GIB


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that the kernel was advised of."""
    names: list[str] = []

    def let_go(files: list[Path], _limit_s: float) -> LetGo:
        names.extend(file.name for file in files)
        return LetGo(len(files), 60 * GIB, 0)

    monkeypatch.setattr(pagecache, "let_go", let_go)
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
    monkeypatch.setattr(stopping, "LET_GO_S", 0.0)
    await house.open(
        make_profile("a", **models(tmp_path, target="a.gguf")),
        make_profile("b", **models(tmp_path, target="b.gguf")),
        drop_page_cache=True,
    )
    await house.leased("a")
    await house.leased("b")

    def broken(_files: list[Path], _limit_s: float) -> LetGo:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(stopping, "LET_GO_S", 30.0)
    monkeypatch.setattr(pagecache, "let_go", broken)
    await house.leased("a")
    assert house.runtime.running() == ["a"]
    assert [notice.code for notice in house.notices()] == ["page_cache_slow", "page_cache_kept"]

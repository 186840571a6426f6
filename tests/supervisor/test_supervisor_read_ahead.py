"""The next profile's weights in the page cache before its engine starts: how much, and when they go again."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from surroundings.house import make_profile

from sparkdash.domain.metric import Memory
from sparkdash.engines.registry import adapter_of
from sparkdash.host.memory import page_cache
from sparkdash.supervisor.memory.read_ahead import PIECE, ReadAhead, room
from sparkdash.units import GIB

SIZE = 3 * PIECE
PLENTY = Memory(total=100 * GIB, available=60 * GIB, free=60 * GIB, page_cache=0)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file that is on the disk, and not in memory."""
    file = tmp_path / "model.gguf"
    with file.open("wb") as written:
        written.write(bytes(SIZE))
        os.fsync(written.fileno())
        if page_cache.forget_range(written.fileno(), 0, SIZE) is None:
            pytest.skip("this kernel does not count cached pages")
    return file


def cached(file: Path) -> int:
    with file.open("rb") as opened:
        return page_cache.cached_bytes(opened.fileno()) or 0


class Box:
    """Stand-in for the tools that a read-ahead uses; `looks` counts how often the guard was asked."""

    def __init__(self, weights: Path, *, warns_after: int = 10**9, **profile: Any) -> None:
        given = {"engine": "llamacpp", "gpu": False, "models": {"target": {"path": str(weights)}}}
        self.profile = make_profile("next", **(given | profile))
        self.told: list[str] = []
        self.looks = 0
        self._warns_after = warns_after
        self.tools: Any = SimpleNamespace(
            adapter=adapter_of,
            guarded=SimpleNamespace(warns=self._warns),
            reader=SimpleNamespace(memory=lambda: PLENTY),
            needs=lambda _profile: SimpleNamespace(room_bytes=GIB),
            reserve_bytes=0,
            settings=SimpleNamespace(hf_home=weights.parent),
            runtime=SimpleNamespace(containerised=False),
            registry=SimpleNamespace(engines={}, notice=lambda _level, _code, text, _profile: self.told.append(text)),
            catalog=SimpleNamespace(profiles={}),
        )

    def _warns(self) -> bool:
        self.looks += 1
        return self.looks > self._warns_after

    async def switch(self, *, fails: bool = False) -> None:
        """A switch in which the old engine takes long enough to leave."""
        async with ReadAhead(self.tools, self.profile) as ahead:
            if ahead._task is not None:
                await ahead._task
            if fails:
                raise TimeoutError


async def test_weights_are_in_memory_before_the_engine_starts(weights: Path) -> None:
    box = Box(weights)
    await box.switch()
    assert cached(weights) == SIZE
    assert box.told[0].startswith("0.05 GiB of weights of next were read ahead in")


async def test_what_was_read_for_a_switch_that_fails_goes_again(weights: Path) -> None:
    with pytest.raises(TimeoutError):
        await Box(weights).switch(fails=True)
    assert cached(weights) == 0


async def test_the_guards_warning_ends_it_and_lets_go(weights: Path) -> None:
    box = Box(weights, warns_after=1)
    await box.switch()
    assert (cached(weights), box.told) == (0, [])
    assert box.looks == 3  # before each of two pieces, and at the end


@pytest.mark.parametrize(
    "change", [{"args": {"load-mode": "dio"}}, {"engine": "vllm", "args": {"load-format": "b12x"}}]
)
async def test_a_loader_that_reads_around_the_cache_gets_none(weights: Path, change: dict[str, Any]) -> None:
    await Box(weights, **change).switch()
    assert cached(weights) == 0


def test_only_what_fits_now_and_beside_the_engine_later_is_read() -> None:
    """A need that is not known has no room."""
    box = Memory(total=120 * GIB, available=30 * GIB, free=5 * GIB)
    assert room(box, 60 * GIB, 10 * GIB) == 20 * GIB
    assert room(box, 100 * GIB, 10 * GIB) == 10 * GIB
    assert room(box, 115 * GIB, 10 * GIB) == 0
    assert room(box, None, 0) == 0

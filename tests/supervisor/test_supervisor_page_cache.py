"""Weights in the page cache: read ahead of an engine, let go behind it where memory is short, and else left alone."""

import asyncio
import mmap
import os
import shutil
import sys
import tempfile
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from surroundings.house import make_profile

from sparkdash.domain.event import Level
from sparkdash.domain.metric import Memory
from sparkdash.domain.profile import EngineKind, ModelRef
from sparkdash.engines.registry import adapter_of
from sparkdash.host import local_weights
from sparkdash.host.memory import page_cache
from sparkdash.supervisor.memory import cache_eviction
from sparkdash.supervisor.memory.cache_eviction import LOOK_S, MARGIN, QUICKEST, STEP, BehindReader, ReadFiles
from sparkdash.supervisor.memory.read_ahead import ReadAhead, room
from sparkdash.units import GIB, MIB


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def let_go(files: list[Path], _wanted: int, _limit_s: float) -> int:
        names.extend(file.name for file in files)
        return 60 * GIB

    monkeypatch.setattr(page_cache, "forget_up_to", let_go)
    return names


def models(folder: Path, **names: str) -> dict[str, Any]:
    """Models at paths that exist, by role, each used by the command line."""
    for name in names.values():
        (folder / name).write_bytes(b"w")
    found = {role: ModelRef(path=str(folder / name)) for role, name in names.items()}
    return {"models": found, "args": {f"use-{role}": f"{{{role}}}" for role in names}}


async def test_the_weights_of_who_left_are_let_go(house: Any, advised: list[str], tmp_path: Path) -> None:
    old = models(tmp_path, target="old.gguf", drafter="drafter.gguf", other="shared.gguf")
    await house.open(
        make_profile("old", gib=60, **old),
        make_profile("beside", gib=10, **models(tmp_path, target="shared.gguf")),
        make_profile("new", gib=70, **models(tmp_path, target="new.gguf", drafter="drafter.gguf")),
        drop_page_cache=True,
    )
    await house.leased("old")
    await house.leased("beside")
    await house.leased("new")
    assert house.runtime.running() == ["beside", "new"]
    assert advised == ["old.gguf"]
    (notice,) = house.notices()
    assert (notice.code, notice.level, notice.profile) == ("page_cache_dropped", Level.INFO, "old")
    assert notice.text == "Let 60.0 GiB of cached weights of old go."


async def test_nothing_is_let_go_unless_wanted(house: Any, advised: list[str], tmp_path: Path) -> None:
    """The kernel does well without."""
    await house.served(make_profile("old", **models(tmp_path, target="old.gguf")))
    await house.stopped("old")
    assert advised == []
    assert house.notices() == []


@pytest.mark.parametrize(
    ("error", "why"), [(OSError(5, "Input/output error"), "Input/output error"), (TimeoutError(), "did not answer")]
)
async def test_it_never_fails_a_swap(
    house: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: OSError, why: str
) -> None:
    def broken(*_: object) -> int:
        raise error

    monkeypatch.setattr(page_cache, "forget_up_to", broken)
    await house.served(
        make_profile("a", **models(tmp_path, target="a.gguf")),
        make_profile("b", **models(tmp_path, target="b.gguf")),
        drop_page_cache=True,
    )
    await house.leased("b")
    assert house.runtime.running() == ["b"]
    (notice,) = house.notices()
    assert notice.code == "page_cache_kept"
    assert why in notice.text


async def test_room_is_made_of_weights_that_nobody_uses(
    house: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blobs = tmp_path / "hub/models--org--m/blobs"
    blobs.mkdir(parents=True)
    for name in ("a" * 64, f"{'b' * 64}.incomplete"):
        (blobs / name).write_bytes(b"")
        os.truncate(blobs / name, local_weights.SMALL)
    await house.served(
        make_profile("runs", **models(tmp_path, target="runs.gguf")),
        make_profile("other", **models(tmp_path, target="other.gguf", drafter="runs.gguf")),
        make_profile("comes", **models(tmp_path, target="comes.gguf")),
        hf_home=tmp_path,
    )
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


async def test_a_disk_that_hangs_holds_no_load_up(house: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    house: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: OSError | None
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


SIZE = 160 * MIB
SHARD = 4 * GIB
LONG = 2 * SHARD / QUICKEST


def test_a_shard_is_behind_once_it_was_open_long_enough_and_is_closed() -> None:
    files = ReadFiles({1: SHARD, 2: SHARD})
    files.opened(1, at=0.0)
    files.closed(1, at=0.001)
    assert files.behind({}) == []
    files.opened(1, at=1.0)
    files.opened(2, at=1.0)
    assert files.has_open
    assert files.behind({}) == []
    files.closed(1, at=1.0 + LONG)
    assert files.behind({}) == [(1, 0, SHARD)]
    assert files.behind({}) == []
    assert files.everything() == [(1, 0, SHARD), (2, 0, SHARD)]


def test_a_header_that_is_read_once_more_does_not_hide_what_was_read() -> None:
    files = ReadFiles({1: SHARD})
    files.opened(1, at=0.0)
    files.closed(1, at=LONG)
    files.opened(1, at=9.0)
    assert files.behind({}) == []
    files.closed(1, at=9.001)
    assert files.behind({}) == [(1, 0, SHARD)]


def test_a_shard_that_is_read_again_is_let_go_again() -> None:
    files = ReadFiles({1: SHARD})
    for at in (0.0, 9.0):
        files.opened(1, at=at)
        files.opened(1, at=at + LONG)
        files.closed(1, at=at + LONG)
        files.closed(1, at=at + LONG)
        assert not files.has_open
        assert files.behind({}) == [(1, 0, SHARD)]


def test_of_an_open_file_what_two_looks_have_passed_is_behind() -> None:
    """A look at the end of the file and back, as llama.cpp's, is one look; a file that is mapped stands at 0."""
    files = ReadFiles({1: SHARD})
    files.opened(1, at=0.0)
    assert files.behind({1: SHARD - 1}) == []
    assert files.behind({1: 10 * MIB}) == []
    assert files.behind({1: GIB}) == []
    assert files.behind({1: 2 * GIB}) == [(1, 0, GIB - MARGIN)]
    assert files.behind({1: 2 * GIB}) == [(1, GIB - MARGIN, 2 * GIB - MARGIN)]
    assert files.behind({1: 2 * GIB + STEP // 2}) == []
    assert files.behind({}) == []
    assert files.behind({1: 3 * GIB}) == []
    files.closed(1, at=9.0)
    assert files.behind({}) == [(1, 0, SHARD)]


def test_reports_that_were_lost_count_for_nothing() -> None:
    files = ReadFiles({1: SHARD})
    files.opened(1, at=0.0)
    files.forget()
    assert not files.has_open
    assert files.behind({1: GIB}) == []
    files.closed(1, at=9.0)
    assert files.behind({}) == [(1, 0, SHARD)]


MOVES = st.lists(st.tuples(st.sampled_from(["open", "close", "look"]), st.integers(0, 1), st.integers(0, SHARD)))


@given(MOVES)
def test_nothing_ahead_of_a_reader_is_told(moves: list[tuple[str, int, int]]) -> None:
    """For any report of the kernel, in any order; and of a file that nobody opened or closed nothing at all."""
    files, is_open, closed = ReadFiles({0: SHARD, 1: SHARD}), [False, False], [False, False]
    for at, (move, number, position) in enumerate(moves):
        if move == "open":
            is_open[number] = True
            files.opened(number, float(at))
        elif move == "close":
            is_open[number], closed[number] = False, True
            files.closed(number, float(at))
        else:
            for found, start, end in files.behind({number: position}):
                assert 0 <= start < end <= SHARD
                assert end <= position - MARGIN if is_open[found] else closed[found]
            assert files.behind({}) == []


@pytest.mark.parametrize(
    ("free", "cached", "takes", "short"),
    [(110, 10, 85, 0), (90, 20, 85, 5), (40, 60, 85, 55), (5, 20, 85, 20), (9, 60, 0, 1), (11, 60, 0, 0)],
)
def test_the_cache_is_in_the_way_by_what_free_memory_lacks(free: int, cached: int, takes: int, short: int) -> None:
    """Memory that the load still takes, and the reserve of 10; never more than is cached."""
    memory = Memory(total=128 * GIB, available=(free + cached) * GIB, free=free * GIB, page_cache=cached * GIB)
    assert cache_eviction.shortage(memory, takes * GIB, 10 * GIB) == short * GIB
    unknown = Memory(total=128 * GIB, available=free * GIB, free=free * GIB)
    assert cache_eviction.shortage(unknown, takes * GIB, 10 * GIB) == 0


@pytest.fixture
def weights() -> Iterator[Path]:
    """A file of weights whose pages the kernel can count and let go of, none of them in memory."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    file = folder / "big.gguf"
    file.write_bytes(os.urandom(MIB) * (SIZE // MIB))
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())
        if page_cache.forget_range(opened.fileno(), 0, SIZE) is None or page_cache.cached_bytes(opened.fileno()):
            pytest.skip("this kernel, or this file system, does not tell or keeps its pages")
    with file.open("rb") as opened:
        OPENED[file] = opened.fileno()
        yield file
    shutil.rmtree(folder)


OPENED: dict[Path, int] = {}
"""A descriptor of each file: opening it to look would be seen."""


def cached(file: Path) -> int:
    found = page_cache.cached_bytes(OPENED[file])
    assert found is not None
    return found


@asynccontextmanager
async def reader(file: Path, size: int) -> AsyncIterator[None]:
    """A process of its own that has read so much of the file, and holds it open."""
    program = f"f = open({str(file)!r}, 'rb', 0); n = {size}\nwhile n > 0: n -= len(f.read(min(n, 1 << 20)))"
    program += "\nprint(flush=True); open(0).read()"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=PIPE, stdout=PIPE)
    PIDS.add(child.pid)
    assert child.stdin
    assert child.stdout
    await child.stdout.readline()
    try:
        yield
    finally:
        PIDS.clear()
        child.stdin.close()
        await child.wait()


PIDS: set[int] = set()


class Load:
    """A load of one profile in a supervisor whose box has `free` bytes of free memory; the test is the engine."""

    def __init__(self, house: Any, profile: Any, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
        self.house, self.profile = house, profile
        memory = Memory(total=128 * GIB, available=100 * GIB, free=free, page_cache=60 * GIB)
        monkeypatch.setattr(house.reader, "memory", lambda: memory)
        self.behind = BehindReader(house.supervisor._tools, profile, "engine")
        self.watching = asyncio.Event()
        self.may_look = asyncio.Event()
        self.may_look.set()

        async def pids(_container: str) -> set[int]:
            return set(PIDS)

        async def sleep(seconds: float) -> None:
            if seconds == LOOK_S:  # the watch of the files, and nobody else in the supervisor
                self.watching.set()
                await self.may_look.wait()
            await asyncio.sleep(0.01)

        monkeypatch.setattr(house.runtime, "pids", pids)
        monkeypatch.setattr(house.clock, "sleep", sleep)

    async def __aenter__(self) -> "Load":
        await self.behind.__aenter__()
        await self.watching.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.behind.__aexit__(None, None, None)


async def shrinks(file: Path, below: int) -> None:
    async with asyncio.timeout(20):
        while cached(file) >= below:  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.01)


@pytest.fixture
async def profile(house: Any, weights: Path) -> Any:
    made = make_profile("big", gib=80, models={"target": ModelRef(path=str(weights))}, args={"model": "{target}"})
    await house.open(made)
    return made


async def test_what_is_read_leaves_while_the_load_goes_on(
    house: Any, profile: Any, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Load(house, profile, monkeypatch, free=5 * GIB)
    load.may_look.clear()
    async with load:
        async with reader(weights, SIZE - 8 * MIB):
            assert cached(weights) >= SIZE - 8 * MIB
            load.may_look.set()
            await shrinks(weights, SIZE - STEP // 4)
            assert cached(weights) > MARGIN // 2
        await shrinks(weights, MIB)
    (notice,) = house.notices()
    assert notice.code == "page_cache_dropped"
    assert "of cached weights of big were let go of while it loaded." in notice.text


async def test_a_size_that_nobody_may_count_is_not_made_up(
    house: Any, profile: Any, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "forget_range", lambda _file, _start, _end: None)
    async with Load(house, profile, monkeypatch, free=5 * GIB), reader(weights, SIZE):
        pass
    assert [notice.text for notice in house.notices()] == ["Cached weights of big were let go of while it loaded."]
    load = Load(house, profile, monkeypatch, free=5 * GIB)
    await load.behind.__aenter__()
    await load.watching.wait()
    await load.behind.__aexit__(OSError, None, None)
    assert len(house.notices()) == 1


async def test_what_is_mapped_stays_until_it_is_unmapped(
    house: Any, profile: Any, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Load(house, profile, monkeypatch, free=5 * GIB) as load:
        with weights.open("rb") as opened:
            mapped = mmap.mmap(opened.fileno(), SIZE, prot=mmap.PROT_READ)
        assert sum(mapped[::4096]) >= 0
        for _ in range(3):
            load.watching.clear()
            await load.watching.wait()
        assert cached(weights) == SIZE
        mapped.close()
        await shrinks(weights, MIB)


async def test_a_loader_that_fills_the_cache_first_is_left_alone(house: Any, weights: Path) -> None:
    """vLLM's prefetch reads each file twice, the second time from memory."""
    made = make_profile(
        "big",
        engine=EngineKind.VLLM,
        models={"target": ModelRef(path=str(weights))},
        args={"model": "{target}", "safetensors-load-strategy": "prefetch"},
    )
    await house.open(made)
    async with BehindReader(house.supervisor._tools, made, "engine") as behind:
        assert behind._task is None


PLENTY = Memory(total=100 * GIB, available=60 * GIB, free=60 * GIB, page_cache=0)


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
    assert box.told[0].startswith("0.2 GiB of weights of next were read ahead in")


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

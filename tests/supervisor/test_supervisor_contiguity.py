"""Loads when free memory lies in small pieces: refused with the figures, won back, and warned of."""

from pathlib import Path
from typing import Any

import pytest
from surroundings.box import Behaviour
from surroundings.house import make_profile

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import Level, SwapChanged
from sparkdash.domain.memory import BLOCK, Contiguity
from sparkdash.domain.metric import Gpu
from sparkdash.errors import AdmissionError
from sparkdash.host.box import GpuReading
from sparkdash.host.memory import contiguity as host
from sparkdash.host.memory.helper import HelperResult
from sparkdash.supervisor.decide.contiguity import blocks_for, enough
from sparkdash.supervisor.memory import cache_eviction
from sparkdash.units import GIB

RECORDED = Path(__file__).parent.parent / "data/contiguity"
SPARK = GpuReading(Gpu(name="NVIDIA GB10"))


def blocks(count: int) -> Contiguity:
    """A look that finds so many free blocks of 32 MiB."""
    return Contiguity(free_bytes=90 * GIB, free_2m_bytes=count * BLOCK, free_32m_bytes=count * BLOCK)


def recorded(name: str) -> Contiguity:
    head, *parts = (RECORDED / f"{name}.txt").read_text().split("== ")
    files = {path: text for path, _, text in (part.partition("\n") for part in parts)}
    found = host.parse_contiguity(files["/proc/buddyinfo"], files["/proc/vmstat"], int(head.partition("# page: ")[2]))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("gib", "wanted"), [(118, 200), (100, 200), (80, 160), (20, 40), (8, 16), (7.9, 0), (None, 200)]
)
def test_a_load_asks_for_blocks_by_its_size(gib: float | None, wanted: int) -> None:
    """200 for those that fill a Spark, in proportion below, none for small ones."""
    assert blocks_for(None if gib is None else int(gib * GIB)).blocks == wanted


@pytest.mark.parametrize(("name", "well"), [
    ("gb10-fresh", True), ("gb10-7-days", False), ("gb10-after-drop", False), ("gb10-serving", False),
    ("gb10-64k-pages", True), ("x86-6.18", True),
])  # fmt: skip
def test_recorded_boxes_are_told_apart(name: str, well: bool) -> None:
    """A box just started from one that needs a restart, for a load of 100 GiB."""
    assert enough(recorded(name).blocks, blocks_for(100 * GIB)) is well


async def test_a_load_that_meets_too_few_blocks_is_refused_with_the_figures(house: Any) -> None:
    await house.open(make_profile("a", gib=100))
    house.reader.reading, house.reader.contiguities = SPARK, [blocks(140)]
    error = await house.refused("a")
    assert error.code == "fragmented"
    assert "fragmented: 140 of 200 free 32 MiB blocks" in error.message
    assert "reboot" in (error.hint or "")
    assert house.runtime.running() == []
    house.reader.contiguities = [blocks(200)]
    await house.used("a")
    assert house.state("a") is EngineState.READY


@pytest.mark.parametrize(("facts", "settings", "reading"), [
    ({"gib": 100}, {}, GpuReading(Gpu(name="NVIDIA GeForce RTX 5090"))), ({"gib": 100}, {}, GpuReading(None)),
    ({"gib": 100}, {"contiguity": "off"}, SPARK), ({"gib": 7}, {}, SPARK), ({"gib": 60, "gpu": False}, {}, SPARK),
], ids=["another GPU", "no GPU known", "the owner's wish", "a small load", "a load without GPU"])  # fmt: skip
async def test_nothing_is_refused_where_no_blocks_are_needed(
    house: Any, facts: Any, settings: Any, reading: GpuReading
) -> None:
    await house.open(make_profile("a", **facts), **settings)
    house.reader.reading, house.reader.contiguities = reading, [blocks(0)]
    await house.leased("a")
    assert house.notices() == []


async def test_a_warning_is_given_once_also_when_another_engine_leaves_first(house: Any) -> None:
    await house.open(make_profile("a", gib=100), make_profile("tiny", gib=3), side_by_side=False, contiguity="warn")
    house.reader.contiguities = [blocks(0)]
    await house.leased("tiny")
    await house.leased("a")
    (notice,) = house.notices()
    assert (notice.code, notice.level) == ("fragmented", Level.WARNING)
    assert "0 of 200" in notice.text


async def test_a_load_waits_for_another_when_large_blocks_do_not_do_for_both(house: Any) -> None:
    fixed = {"kv-cache-memory-bytes": "1G"}
    house.runtime.zoo["long"] = Behaviour(load_s=15)
    await house.open(
        make_profile("long", gib=30, args=fixed), make_profile("short", gib=20, args=fixed), contiguity="refuse"
    )
    house.reader.contiguities = [blocks(80)]
    coming, asking = house.ask("long"), house.ask("short")
    await house.loads("long")
    await house.clock.drive(coming.granted())
    assert house.state("short") is None
    await house.clock.drive(asking.granted())
    assert [swap.target for swap in house.swaps()] == ["long", "short"]


class Helper:
    """An installed memory helper that wins nothing by itself."""

    def __init__(self, why: str | None = None) -> None:
        self.why = why
        self.runs = 0

    def available(self) -> bool:
        return True

    async def run(self) -> HelperResult:
        self.runs += 1
        return HelperResult(ok=self.why is None, took_s=1.0, why=self.why)


@pytest.fixture
def evicted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that cached weights were asked for, one after the other."""
    asked_for: list[int] = []

    async def evict(_tools: Any, wanted: int, *, keep: Any = ()) -> int:
        asked_for.append(wanted)
        return 20 * GIB

    monkeypatch.setattr(cache_eviction, "evict_weights", evict)
    return asked_for


@pytest.mark.parametrize(
    ("looks", "evictions", "runs"),
    [((50, 300), 1, 0), ((50, 60, 300), 2, 0), ((50, 60, 60, 300), 3, 0), ((50, 60, 60, 60, 300), 3, 1)],
)
async def test_blocks_are_won_back_by_what_costs_least_first(
    house: Any, evicted: list[int], looks: tuple[int, ...], evictions: int, runs: int
) -> None:
    helper = Helper()
    await house.open(make_profile("a", gib=100), memory_helper=helper)
    house.reader.reading, house.reader.page_cache = SPARK, 60 * GIB
    house.reader.contiguities = [blocks(count) for count in looks]
    await house.leased("a")
    waits = [fact.swap.waits_for for fact in house.facts if isinstance(fact, SwapChanged)]
    assert "large blocks of memory (50 of 200)" in waits
    assert waits[-1] is None
    assert (len(evicted), helper.runs) == (evictions, runs)
    assert evicted[0] == 150 * BLOCK * 4
    (notice,) = house.notices()
    assert notice.code == "blocks_won"
    assert "from 50 to 300" in notice.text


@pytest.mark.parametrize(("cached", "why", "said", "hint"), [
    (GIB, None, "memory compacted", "Reboot the box."),
    (None, "a password is required", "The memory helper failed: a password is required", "Drop caches"),
])  # fmt: skip
async def test_what_was_tried_in_vain_is_told_and_what_may_still_work_by_hand(
    house: Any, evicted: list[int], cached: int | None, why: str | None, said: str, hint: str
) -> None:
    helper = Helper(why)
    await house.open(make_profile("a", gib=100), memory_helper=helper)
    house.reader.reading, house.reader.page_cache, house.reader.contiguities = SPARK, cached, [blocks(11)]
    error = await house.refused("a")
    assert said in error.message
    assert (error.hint or "").startswith(hint)
    assert (evicted, helper.runs) == ([], 1)


async def test_an_engine_is_not_stopped_for_a_load_that_would_be_refused_all_the_same(house: Any) -> None:
    await house.open(make_profile("a", gib=100), make_profile("tiny", gib=3), side_by_side=False)
    house.reader.reading, house.reader.contiguities = SPARK, [blocks(20)]
    await house.leased("tiny")
    with pytest.raises(AdmissionError, match="fragmented"):
        await house.leased("a")
    assert house.runtime.running() == ["tiny"]


async def test_an_engine_whose_memory_may_be_enough_is_stopped_and_what_it_gave_back_is_looked_at(house: Any) -> None:
    """80 GiB come back, in blocks or not."""
    await house.open(make_profile("a", gib=100), make_profile("b", gib=80), contiguity="refuse")
    house.reader.contiguities = [blocks(300)]
    await house.leased("b")
    house.reader.contiguities = [blocks(20), blocks(900)]
    await house.leased("a")
    assert house.runtime.running() == ["a"]

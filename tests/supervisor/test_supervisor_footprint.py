"""Memory of a load is measured, kept, and only believed when it can be nobody else's."""

import asyncio
import zlib
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from surroundings.house import make_profile

from sparkdash import catalog
from sparkdash.domain.engine import EngineState
from sparkdash.domain.memory import Basis, Measure
from sparkdash.domain.node import LOCAL
from sparkdash.engines.memory_terms import BOX_BYTES
from sparkdash.engines.registry import adapter_of, estimate_launch
from sparkdash.errors import HostError
from sparkdash.host.box import GpuReading
from sparkdash.paths import shipped_profiles
from sparkdash.settings import Settings
from sparkdash.store import Store
from sparkdash.supervisor.decide.fit import BoxMemory, Occupant, choose
from sparkdash.supervisor.memory.footprint import FootprintMeter, MemoryReading, NodeMeter, held_memory, why_spoilt
from sparkdash.units import GIB, MIB

PROFILES = catalog.load_catalog([shipped_profiles()]).profiles
STRONG, QUICK = "gpt-oss-120b/gguf", "gpt-oss-20b"
OTHERS = 9 * GIB
"""Taken for a desktop and other programs."""


def engine(name: str) -> Occupant:
    return Occupant(name, estimate_launch(PROFILES[name], {}, BOX_BYTES))


@pytest.mark.parametrize(("first", "second"), [(STRONG, QUICK), (QUICK, STRONG)])
def test_the_second_of_the_pair_comes_and_nobody_leaves(first: str, second: str) -> None:
    resident, comer = engine(first), engine(second)
    assert (resident.need.basis, comer.need.basis) == (Basis.DECLARED, Basis.DECLARED)
    available = BOX_BYTES - OTHERS - (resident.need.total_bytes or 0)
    reserve = int(Settings().reserve_gib * GIB)
    box = BoxMemory(total=BOX_BYTES, available=available, reserve=reserve)
    choice = choose(comer, [resident], {LOCAL: box}, person=False)
    assert (choice.fits, choice.names) == (True, ())


def test_the_pair_is_one_image_loads_at_the_same_time_and_each_has_a_published_rate() -> None:
    strong, quick = PROFILES[STRONG], PROFILES[QUICK]
    assert strong.image == quick.image
    assert not any(adapter_of(each).sizes_by_free_memory(each) for each in (strong, quick))
    rates = [max(row.decode_tok_s or 0 for row in one.published) for one in (strong, quick)]
    assert 0 < rates[0] < rates[1]


def pid(profile: str) -> int:
    return zlib.crc32(profile.encode())


@pytest.fixture
def store() -> Store:
    """Without a file: it learns, and keeps nothing."""
    return Store(lambda _: None)


@pytest.fixture
def kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    records: list[Any] = []
    monkeypatch.setattr(store, "record_load", lambda seen, *_: records.append(seen))
    return records


async def learned(house: Any, name: str) -> tuple[int, int, Measure]:
    """Steady and peak bytes, and their measure, after a load of this profile."""
    await house.leased(name)
    return await footprint(house, name)


async def footprint(house: Any, name: str) -> tuple[int, int, Measure]:
    await house.settled()
    await house.clock.rest()
    found = house.supervisor._tools.store.learned.footprint(house.supervisor.engines[name].fingerprint)
    return found.steady_bytes, found.peak_bytes, found.measure


async def test_what_a_load_takes_is_learned_from_memavailable(house: Any, store: Store) -> None:
    """The fake box knows no processes: 40 GiB fell, 40 GiB are learned, and the next load is held against them."""
    await house.open(make_profile("a", gib=40), store=store)
    assert await learned(house, "a") == (40 * GIB, 40 * GIB, Measure.AVAILABLE)


async def test_the_peak_is_the_dip_below_what_is_left_when_ready(house: Any, store: Store) -> None:
    """6 GiB that were taken for a while and given back count for the peak alone."""
    await house.open(make_profile("a", gib=40), store=store)
    asking = await house.loading("a")
    house.reader.others = 6 * GIB
    until = house.clock.time + 2.0  # four looks
    await house.clock.until(lambda: house.clock.time >= until)
    house.reader.others = 0
    await house.clock.drive(asking.granted())
    await asking.leave()
    assert (await footprint(house, "a"))[:2] == (40 * GIB, 46 * GIB)


async def test_the_engine_s_own_processes_are_believed_over_the_box_s_noise(house: Any, store: Store) -> None:
    """NVML tells 39.5 GiB and MemAvailable fell by 40: less than a GiB apart is noise; more is memory no process shows."""
    house.reader.reading = GpuReading(None, {pid("a"): 39 * GIB, pid("b"): 39 * GIB})
    house.reader.own = 39 * GIB + 512 * MIB
    await house.open(make_profile("a", gib=40), make_profile("b", gib=75), store=store)
    assert (await learned(house, "a"))[::2] == (39 * GIB + 512 * MIB, Measure.PROCESSES)
    assert (await learned(house, "b"))[::2] == (75 * GIB, Measure.AVAILABLE)


async def test_an_engine_that_is_stopped_while_it_is_weighed_teaches_nothing(
    house: Any, store: Store, kept: list[Any]
) -> None:
    told = asyncio.Event()

    async def slow() -> GpuReading:
        if house.state("a") is EngineState.READY:
            await told.wait()
        return GpuReading(None)

    house.reader.gpu = slow
    await house.open(make_profile("a"), store=store)
    await house.leased("a")
    house.reader.blind = True
    stopping = asyncio.ensure_future(house.supervisor.stop("a"))
    await house.clock.rest()
    assert house.state("a") is not EngineState.READY
    told.set()
    await house.clock.drive(stopping)
    await house.clock.rest()
    assert kept == []


async def test_a_box_that_cannot_be_looked_at_stops_no_start(house: Any, store: Store, kept: list[Any]) -> None:  # fmt: skip
    async def silent() -> GpuReading:
        raise HostError("NVML is gone.", code="nvml_failed")

    house.reader.gpu = silent
    await house.open(make_profile("a", gib=40), store=store)
    await house.leased("a")
    await house.settled()
    await house.clock.rest()
    assert kept == []


def look(
    available: int, own: int | None = None, *, others: int = 0, beside: str = "", blind: bool = False, moved: int = 0
) -> MemoryReading:
    """In GiB; `beside` names a neighbour."""
    neighbours = frozenset({(beside, "c")}) if beside else frozenset()
    return MemoryReading(
        available * GIB, own if own is None else own * GIB, others * GIB, neighbours, blind, moved * GIB
    )


async def test_the_dip_of_this_box_is_its_own_where_another_one_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a row of boxes whose middle one this is."""
    scale = FootprintMeter(MagicMock(), make_profile("a"), ("spark-2", LOCAL))
    looks = [MemoryReading(GIB * size, own=None, others=0, beside=frozenset(), blind=False) for size in (100, 60)]
    monkeypatch.setattr(scale, "_look", AsyncMock(side_effect=looks))
    monkeypatch.setattr(NodeMeter, "_look", AsyncMock(side_effect=[30 * GIB, 20 * GIB]))
    await scale.before()
    for node, available in (("spark-2", 15), (LOCAL, 55)):
        scale.note(available * GIB, node)
    seen = await scale.after("1", MagicMock(ready_at=1.0))
    assert seen is not None
    assert (seen.steady_bytes, seen.peak_bytes) == (40 * GIB, 45 * GIB)


@pytest.mark.parametrize(
    ("zero", "now", "gpu", "held"),
    [
        (look(80), look(30, 40), True, (50, Measure.AVAILABLE)),
        (look(80), look(30, 40), False, (40, Measure.PROCESSES)),
        (look(80, moved=5), look(30, 40, moved=5), True, (40, Measure.PROCESSES)),
        (look(80, beside="x"), look(30, 40, beside="x"), True, (40, Measure.PROCESSES)),
        (look(80, others=20, beside="x"), look(30, others=30, beside="x"), True, (40, Measure.AVAILABLE)),
        (look(80, others=3), look(35, others=8), True, (40, Measure.AVAILABLE)),
        (look(60), look(70, 5), True, (5, Measure.PROCESSES)),
        (look(60), look(60), True, (None, None)),
        (look(60), look(70), True, (None, None)),
    ],
    ids=[
        "on the GPU what no process shows counts", "without a GPU it does not", "what moved meanwhile does not",
        "beside another its own processes count", "or the driver's figures, less the other's growth",
        "what other programs took meanwhile does not", "memory came back", "nothing is seen", "only other memory came back",
    ],
)  # fmt: skip
def test_memory_is_an_engines_where_it_can_be_nobody_elses(
    zero: MemoryReading, now: MemoryReading, gpu: bool, held: tuple[int | None, Measure | None]
) -> None:
    gib, measure = held
    assert held_memory(zero, now, gpu=gpu) == (gib and gib * GIB, measure)


UNKNOWN = "chat ran beside it, and the driver does not tell whose memory is whose"


@pytest.mark.parametrize(("zero", "now", "debt", "why"), [
    (look(80, moved=5), look(30, 40, moved=5), 0, "5.0 GiB of the box's memory changed hands while it was read"),
    (look(80, others=20, beside="x"), look(30, others=30, beside="x"), 0, None),
    (look(80, beside="chat", blind=True), look(30, beside="chat", blind=True), 0, UNKNOWN),
    (look(80, beside="chat"), look(30), 0, "chat came or went meanwhile"), (look(80), look(30), 80, None),
    (look(60), look(50), 61, "memory of an engine that had left came back meanwhile"),
])  # fmt: skip
def test_what_may_be_another_engines_is_not_learned_from(
    zero: MemoryReading, now: MemoryReading, debt: int, why: str | None
) -> None:
    assert why_spoilt(zero, now, debt * GIB) == why

"""The simulated box: memory that grows and comes back late, a GPU that follows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkdash.host.reader import HostReader
from sparkdash.sim.box import OTHER, TOTAL, SimBox
from sparkdash.sim.process import ClaimFile
from sparkdash.units import GIB


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def hand() -> Hand:
    """A clock moved by hand."""
    return Hand()


@pytest.fixture
def box(claims_folder: Path, hand: Hand) -> SimBox:
    """A box whose memory takes four seconds to come back."""
    return SimBox(claims_folder, clock=hand, release_s=4)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A living process that claims can be made for."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def claim(claims_folder: Path) -> Callable[[int], ClaimFile]:
    """Claims in this test's folder."""
    return lambda pid: ClaimFile("rehearsal", claims_folder, pid)


def test_an_empty_box_is_a_spark_with_little_on_it(box: SimBox) -> None:
    """121.69 GiB in all, of which some is other programs' and some page cache; available is nearly all the rest."""
    reader: HostReader = box
    memory = reader.memory()
    assert memory.total / GIB == pytest.approx(121.69, abs=0.01)
    assert memory.available / GIB == pytest.approx((TOTAL - OTHER) / GIB, abs=1)
    assert memory.page_cache is not None
    assert memory.free + memory.page_cache <= TOTAL - OTHER + GIB
    assert (memory.pressure, memory.swap_used, memory.engines, memory.reserve) == (0, 0, {}, 0)


def test_memory_follows_the_claims(box: SimBox, claim: Callable[[int], ClaimFile]) -> None:
    """What an engine claims is missing from what is available, and the page cache has grown by what was read."""
    empty = box.memory()
    claim(os.getpid()).write(60 * GIB)
    full = box.memory()
    assert (empty.available - full.available) / GIB == pytest.approx(60, abs=0.1)
    assert (full.page_cache or 0) > (empty.page_cache or 0)


def test_memory_comes_back_with_a_lag(box: SimBox, hand: Hand, claim: Callable[[int], ClaimFile]) -> None:
    """A gone engine's memory is held for two seconds, half back after three, and all of it after four."""
    empty = box.memory().available
    file = claim(os.getpid())
    file.write(40 * GIB)
    box.memory()
    file.remove()
    missing = []
    for _ in range(5):
        missing.append((empty - box.memory().available) / GIB)
        hand.seconds += 1
    assert missing == pytest.approx([40, 40, 40, 20, 0], abs=0.2)


def test_overcommitted_memory_shows_as_pressure(box: SimBox, claim: Callable[[int], ClaimFile]) -> None:
    """More claimed than there is: nothing available, swap in use, pressure; never a negative number."""
    claim(os.getpid()).write(130 * GIB)
    memory = box.memory()
    assert memory.available == 0
    assert memory.free >= 0
    assert (memory.swap_used or 0) > 0
    assert (memory.pressure or 0) > 0.5


async def test_the_gpu_follows_the_busy_share(box: SimBox, hand: Hand, claim: Callable[[int], ClaimFile]) -> None:
    """Idle it is cool and slow; under load power and clock rise at once, the temperature slowly; its name says simulated."""
    idle = (await box.gpu()).gpu
    file = claim(os.getpid())
    file.write(GIB, busy=1.0)
    hand.seconds += 1
    early = (await box.gpu()).gpu
    hand.seconds += 120
    late = (await box.gpu()).gpu
    assert idle is not None
    assert early is not None
    assert late is not None
    assert (idle.name, idle.utilization, late.utilization) == ("GB10 (simulated)", 0, 1)
    assert (idle.power_w or 0) < 10 < 50 < (early.power_w or 0)
    assert (idle.temperature_c or 0) <= (early.temperature_c or 0) < (late.temperature_c or 0)
    assert (idle.sm_clock_mhz or 0) < 1000 < (late.sm_clock_mhz or 0) <= (late.sm_clock_max_mhz or 0)


async def test_engine_bytes_are_the_claims_of_its_processes(
    box: SimBox, claim: Callable[[int], ClaimFile], sleeper: subprocess.Popen[bytes]
) -> None:
    """Claims of several processes are added; for processes that claim nothing the answer is unknown, not zero."""
    claim(os.getpid()).write(3 * GIB)
    claim(sleeper.pid).write(4 * GIB)
    reading = await box.gpu()
    assert box.engine_bytes({os.getpid(), sleeper.pid, 1}, reading) == 7 * GIB
    assert box.engine_bytes({1}, reading) is None
    assert await box.others_bytes({sleeper.pid}, reading) == 3 * GIB
    box.close()


def test_files_of_the_dead_and_of_others_do_not_count(
    box: SimBox, claims_folder: Path, claim: Callable[[int], ClaimFile], sleeper: subprocess.Popen[bytes]
) -> None:
    """A dead process's claim, one of an earlier process with the same pid, and a broken file are not counted."""
    empty = box.memory().available
    claim(sleeper.pid).write(50 * GIB)
    sleeper.kill()
    sleeper.wait()
    mine = claims_folder / f"{os.getpid()}.json"
    claim(os.getpid()).write(50 * GIB)
    mine.write_text(mine.read_text().replace('"started": ', '"started": 1'))
    (claims_folder / "7.json").write_text("{")
    assert (empty - box.memory().available) / GIB == pytest.approx(0, abs=0.2)


def test_unchanged_claims_are_not_written_again(claims_folder: Path, claim: Callable[[int], ClaimFile]) -> None:
    """Only a change touches the file."""
    file = claim(os.getpid())
    file.write(GIB, busy=0.501)
    path = claims_folder / f"{os.getpid()}.json"
    path.unlink()
    file.write(GIB, busy=0.499)
    assert not path.exists()

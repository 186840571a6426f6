"""A cap of the GPU's clock ends with its holder's lease, and a daemon that was killed owes its end to the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparkdash.daemon.clock_cap import FILE_NAME, ClockCap
from sparkdash.domain.event import Notice
from sparkdash.errors import HostError


class Clock:
    """A GPU's clock that remembers, and refuses when told to."""

    def __init__(self) -> None:
        self.cap_mhz: int | None = None
        self.refuses: str | None = None
        self.freed = asyncio.Event()

    async def check(self, mhz: int) -> None:
        """Accept every clock."""

    async def cap(self, mhz: int) -> None:
        self._obey()
        self.cap_mhz = mhz

    async def uncap(self) -> None:
        self._obey()
        self.cap_mhz = None
        self.freed.set()

    def _obey(self) -> None:
        if self.refuses:
            raise HostError("The driver refuses.", code=self.refuses)


class Box:
    """The clock, the leases that are held, and what was announced."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.held = Clock(), {"mine"}
        self.notices: list[Notice] = []
        self.told = asyncio.Event()
        self.file = folder / FILE_NAME
        self.cap = ClockCap(self.clock, folder, lambda token: token in self.held, self._publish, look_s=0.001)

    def _publish(self, notice: Notice) -> None:
        self.notices.append(notice)
        self.told.set()


@asynccontextmanager
async def running(box: Box) -> AsyncIterator[Box]:
    task = asyncio.create_task(box.cap.run())
    try:
        yield box
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_cap_ends_with_the_lease_of_its_holder(tmp_path: Path) -> None:
    """Let go, lapsed or killed: the lease is gone in each case."""
    async with running(Box(tmp_path)) as box:
        await box.cap.cap(1400, "mine")
        assert (box.clock.cap_mhz, box.cap.mhz, box.file.exists()) == (1400, 1400, True)
        box.held.clear()
        await asyncio.wait_for(box.clock.freed.wait(), 10)
    assert (box.clock.cap_mhz, box.cap.mhz, box.file.exists()) == (None, None, False)


async def test_the_next_daemon_lifts_what_a_killed_one_left(tmp_path: Path) -> None:
    """By the file alone: nothing else is left of the earlier one."""
    killed = Box(tmp_path)
    await killed.cap.cap(1400, "mine")
    async with running(Box(tmp_path)) as box:
        await asyncio.wait_for(box.clock.freed.wait(), 10)
    assert not box.file.exists()


async def test_a_daemon_that_ends_lifts_its_cap(tmp_path: Path) -> None:
    """Even while the holder still measures."""
    async with running(Box(tmp_path)) as box:
        await box.cap.cap(1400, "mine")
        await asyncio.sleep(0)
    assert (box.clock.cap_mhz, box.file.exists()) == (None, False)


async def test_the_end_is_owed_before_the_clock_is_capped(tmp_path: Path) -> None:
    """A daemon killed between the two would leave a cap that nobody knows of."""
    box = Box(tmp_path)
    seen: list[bool] = []

    async def cap(mhz: int) -> None:
        seen.append(box.file.exists())
        box.clock.cap_mhz = mhz

    box.clock.cap = cap  # type: ignore[method-assign]
    await box.cap.cap(1400, "mine")
    assert seen == [True]


async def test_a_refused_cap_owes_nothing_unless_it_may_have_happened(tmp_path: Path) -> None:
    """A refusal capped nothing; a command without an answer may have."""
    box = Box(tmp_path)
    for code, owed in (("clock_unsupported", False), ("clock_silent", True)):
        box.clock.refuses = code
        with pytest.raises(HostError):
            await box.cap.cap(1400, "mine")
        assert box.file.exists() is owed


async def test_a_cap_that_cannot_be_lifted_stays_owed_and_is_told(tmp_path: Path) -> None:
    """With the command that lifts it by hand."""
    async with running(Box(tmp_path)) as box:
        await box.cap.cap(1400, "mine")
        box.clock.refuses = "clock_not_permitted"
        box.held.clear()
        await asyncio.wait_for(box.told.wait(), 10)
        assert "sudo nvidia-smi -rgc" in box.notices[0].text
        assert box.file.exists()
        box.clock.refuses = None
        await box.cap.lift()
    assert (box.clock.cap_mhz, box.file.exists(), len(box.notices)) == (None, False, 1)

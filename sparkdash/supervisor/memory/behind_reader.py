"""BehindReader: weights that a load has read leave the page cache while it goes on, where memory is short.

How an engine reads is seen by its opens, closes and positions. A loader that maps its files (vLLM's default,
llama.cpp's mmap) keeps what is mapped; each file goes once it is unmapped. One that reads (vLLM's eager, llama.cpp's
none) leaves its pages behind: these go. Direct I/O leaves none. Never fails a load, and never waits in it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sparkdash.domain.event import Level
from sparkdash.domain.profile import Profile
from sparkdash.errors import SparkdashError
from sparkdash.host.inotify import FileOpens
from sparkdash.host.memory import page_cache
from sparkdash.host.thread import in_thread
from sparkdash.supervisor.memory import cache_eviction
from sparkdash.supervisor.tools import Tools
from sparkdash.units import GIB, MIB, gib

Range = tuple[int, int, int]
QUICKEST = 30 * GIB
"""Bytes a second that no reader surpasses (27 GiB/s from memory were measured): a shorter open did not read the file.
"""
MARGIN = 64 * MIB
"""Bytes behind a position that may still be read: several threads share one descriptor."""
STEP = 64 * MIB
"""Least bytes of an open file that are told at a time."""


@dataclass(slots=True)
class _File:
    size: int
    is_open: bool = False
    since: float | None = None
    """Time when it was opened last; None: never, as far as was seen."""
    is_behind: bool = False
    """Read whole and closed, and not told yet."""
    told: int = 0
    """Bytes from its beginning that were told while it is open."""
    position: int = 0
    """Position at the last look."""


class ReadFiles:
    """Weight files of one load, by any number that stands for each."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._files = {number: _File(size) for number, size in sizes.items()}

    @property
    def has_open(self) -> bool:
        """Whether a file is open now."""
        return any(file.is_open for file in self._files.values())

    def opened(self, number: int, at: float) -> None:
        file = self._files[number]
        if not file.is_open:
            file.is_open, file.since, file.told, file.position = True, at, 0, 0

    def closed(self, number: int, at: float) -> None:
        """Note the end of an open; one whose beginning nobody saw counts as long."""
        file = self._files[number]
        long = file.since is None or at - file.since >= file.size / QUICKEST
        file.is_open, file.is_behind = False, file.is_behind or long

    def forget(self) -> None:
        self._files = {number: _File(file.size) for number, file in self._files.items()}

    def behind(self, positions: Mapping[int, int]) -> list[Range]:
        """Return the ranges read since the last call; an open file counts to the smaller of two positions."""
        found = []
        for number, file in self._files.items():
            if file.is_open:
                now = positions.get(number, 0)
                end, file.position = min(now, file.position) - MARGIN, now
                if end >= file.told + STEP:
                    found.append((number, file.told, end))
                    file.told = end
            elif file.is_behind:
                found.append((number, 0, file.size))
                file.is_behind = False
        return found

    def everything(self) -> list[Range]:
        return [(number, 0, file.size) for number, file in self._files.items()]


LOOK_S = 0.5
LAST_S = 1.0
"""Limit of the last look, for which an engine that is ready waits; it takes 60 ms at most for each GiB."""


class BehindReader:
    """An async context manager around one load."""

    def __init__(self, tools: Tools, profile: Profile, container: str) -> None:
        self._tools = tools
        self._profile = profile
        self._container = container
        self._before = tools.reader.memory().available
        self._opens: FileOpens | None = None
        self._read = ReadFiles({})
        self._task: asyncio.Task[None] | None = None
        self._gone = 0
        self._counted = True

    async def __aenter__(self) -> Self:
        if not self._tools.adapter(self._profile).fills_page_cache(self._profile):
            self._task = asyncio.create_task(self._run(), name=f"cache {self._profile.name}")
        return self

    async def __aexit__(
        self, failed: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._opens is None:
            return
        with self._opens, suppress(SparkdashError, OSError, TimeoutError):
            if failed is None and cache_eviction.short(self._tools, 0):
                self._take_reports()
                async with asyncio.timeout(LAST_S):
                    await self._forget(self._read.everything())
        if self._gone >= cache_eviction.LEAST:
            what = f"{gib(self._gone)} of cached weights" if self._counted else "Cached weights"
            text = f"{what} of {self._profile.name} were let go of while it loaded."
            self._tools.registry.notice(Level.INFO, "page_cache_dropped", text, self._profile.name)

    async def _run(self) -> None:
        with suppress(SparkdashError, OSError):
            if not await cache_eviction.shares_memory(self._tools, self._profile):
                return
            files = await cache_eviction.unshared_weight_files(self._tools, self._profile)
            self._opens = opens = FileOpens(files)
            self._read = ReadFiles(opens.sizes)
            loop = asyncio.get_running_loop()
            loop.add_reader(opens.descriptor, self._take_reports)
            try:
                while True:
                    await self._tools.clock.sleep(LOOK_S)
                    if cache_eviction.short(self._tools, self._still_takes()):
                        await self._forget(self._read.behind(await self._positions(opens)))
            finally:
                loop.remove_reader(opens.descriptor)

    def _take_reports(self) -> None:
        at = time.monotonic()
        for report in self._opens.reports() if self._opens else ():
            if report is None:
                self._read.forget()
            elif report.opened:
                self._read.opened(report.file, at)
            else:
                self._read.closed(report.file, at)

    def _still_takes(self) -> int:
        """Bytes of its need that this load has not taken yet, as far as both are known."""
        need = self._tools.needs(self._profile).room_bytes or 0
        return max(0, need - max(0, self._before - self._tools.reader.memory().available))

    async def _positions(self, opens: FileOpens) -> dict[int, int]:
        if not self._read.has_open:
            return {}
        pids = await self._tools.runtime.pids(self._container)
        return await in_thread(lambda: opens.positions(pids))

    async def _forget(self, ranges: list[Range]) -> None:
        if not ranges:
            return
        own = [(os.dup(file), start, end) for file, start, end in ranges]  # the thread may outlive the watch
        for gone, asked in await in_thread(lambda: [_forget(*each) for each in own]):
            self._gone += asked if gone is None else gone
            self._counted = self._counted and gone is not None


def _forget(file: int, start: int, end: int) -> tuple[int | None, int]:
    try:
        return page_cache.forget_range(file, start, end), end - start
    except OSError:  # a file system that takes no advice
        return 0, 0
    finally:
        os.close(file)

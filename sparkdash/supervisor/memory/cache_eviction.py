"""Weights in the page cache: which of them are let go of, and when.

Cached weights are the kernel's while memory is plentiful, since they make the next load quick. They are let go of where
a load would meet a full cache (it fills with blocks too small for the GPU's driver before MemAvailable falls), and
where the owner wants that after each stop. Never a file that an engine uses or that loads.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import Level
from sparkdash.domain.metric import Memory
from sparkdash.domain.profile import ModelRef, Profile
from sparkdash.errors import SparkdashError
from sparkdash.host import local_weights
from sparkdash.host.inotify import FileOpens
from sparkdash.host.memory import page_cache
from sparkdash.host.thread import in_thread
from sparkdash.supervisor.tools import Tools
from sparkdash.units import GIB, MIB, duration, gib

LET_GO_S = 5.0
"""Limit of letting go of cached weights: a swap does not wait longer for what the kernel would do by itself."""
LATE_S = 1.0
"""Seconds beyond LET_GO_S for a thread that ends by itself then, unless its disk hangs."""
LEAST = 64 * MIB


async def evict_weights(tools: Tools, bytes_wanted: int, *, keep: Collection[Path] = ()) -> int:
    """Evict cached weights that no engine uses and that are not `keep`; return the bytes. Never fails."""
    if bytes_wanted < LEAST:
        return 0
    hf_home, used = tools.settings.hf_home.expanduser(), _weights(tools, _in_use(tools))
    known = _weights(tools, tools.catalog.profiles.values())

    def files() -> list[Path]:
        stay = {file.resolve() for file in keep} | _files(used, hf_home)
        theirs = _files(known, hf_home) - stay
        # first files that no profile uses
        return [*sorted(set(local_weights.cached_blobs(hf_home)) - theirs - stay), *sorted(theirs)]

    try:
        gone = await _evict(tools, files, bytes_wanted)
    except (SparkdashError, OSError, TimeoutError):
        return 0
    if gone >= LEAST:
        text = f"Let {gib(gone)} of cached weights go before the load."
        tools.registry.notice(Level.INFO, "page_cache_dropped", text)
    return gone


async def _evict(tools: Tools, files: Callable[[], Iterable[Path]], bytes_wanted: int) -> int:
    before = tools.reader.memory().page_cache
    async with asyncio.timeout(LET_GO_S + LATE_S):  # a disk that hangs
        gone = await in_thread(lambda: page_cache.forget_up_to(files(), bytes_wanted, LET_GO_S))
    if gone is None:  # not countable file by file: the fall of the box's cache instead
        after = tools.reader.memory().page_cache
        gone = 0 if before is None or after is None else max(0, before - after)
    return gone


async def evict_before_load(tools: Tools, target: Profile) -> int:
    """Let go of weights that no engine uses, as far as `target` would meet them; the bytes let go of."""
    wanted = shortage(tools.reader.memory(), tools.needs(target).room_bytes or 0, tools.reserve_bytes)
    if wanted < LEAST or not await shares_memory(tools, target):
        return 0
    return await evict_weights(tools, wanted, keep=await weight_files(tools, target))


async def shares_memory(tools: Tools, profile: Profile) -> bool:
    """Whether an engine takes what it needs from the box's own memory, as on a GB10 or without a GPU."""
    if not profile.gpu:
        return True
    with suppress(SparkdashError):
        gpu = (await tools.reader.gpu()).gpu
        return gpu is None or gpu.unified
    return False


def short(tools: Tools, still_takes: int) -> bool:
    """Whether a load that still takes so many bytes will meet the page cache."""
    return shortage(tools.reader.memory(), still_takes, tools.reserve_bytes) > 0


def shortage(memory: Memory, takes: int, kept: int) -> int:
    """Return the bytes of page cache in the way of a load that takes `takes`, with `kept` staying free."""
    return max(0, min(takes + kept - memory.free, memory.page_cache or 0))


async def unshared_weight_files(tools: Tools, profile: Profile) -> set[Path]:
    """Return the profile's weight files that no other engine reads too."""
    refs, hf_home = _weights(tools, [profile]), tools.settings.hf_home.expanduser()
    others = _weights(tools, [each for each in _in_use(tools) if each.name != profile.name])
    return await in_thread(lambda: _files(refs, hf_home) - _files(others, hf_home))


async def weight_files(tools: Tools, profile: Profile) -> set[Path]:
    """Return the profile's weight files on this box; none where the disk does not answer within LET_GO_S."""
    refs, hf_home = _weights(tools, [profile]), tools.settings.hf_home.expanduser()
    with suppress(TimeoutError):
        async with asyncio.timeout(LET_GO_S):
            return await in_thread(lambda: _files(refs, hf_home))
    return set()


async def evict_after_stop(tools: Tools, left: Sequence[Profile], comes: Profile | None) -> None:
    """Evict the weights of engines that left, unless another engine or `comes` reads them. Never fails."""
    registry, hf_home = tools.registry, tools.settings.hf_home.expanduser()
    names = ", ".join(each.name for each in left)
    old, kept = _weights(tools, left), _weights(tools, [*_in_use(tools), *([comes] if comes else [])])

    try:
        gone = await _evict(tools, lambda: sorted(_files(old, hf_home) - _files(kept, hf_home)), sys.maxsize)
    except (SparkdashError, OSError, TimeoutError) as error:
        why = str(error) or f"The disk did not answer within {duration(LET_GO_S + LATE_S)}"
        text = f"The cached weights of {names} were not let go of: {why}."
        registry.notice(Level.WARNING, "page_cache_kept", text, left[0].name)
    else:
        text = f"Let {gib(gone)} of cached weights of {names} go."
        registry.notice(Level.INFO, "page_cache_dropped", text, left[0].name)


def _weights(tools: Tools, profiles: Iterable[Profile]) -> set[ModelRef]:
    containerised = tools.runtime.containerised
    return {ref for each in profiles for ref in (each.weights if containerised else each.used_models)}


def _files(refs: Iterable[ModelRef], hf_home: Path) -> set[Path]:
    return {file for ref in refs for file in local_weights.weight_files_of(ref, hf_home)}


def _in_use(tools: Tools) -> list[Profile]:
    there = (each for each in tools.registry.engines.values() if each.state is not EngineState.FAILED)
    return [tools.registry.started[each.profile] for each in there]


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


class ReadFiles:
    """Weight files of one load, by any number that stands for each."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._files = {number: _File(size) for number, size in sizes.items()}

    @property
    def has_open(self) -> bool:
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
    """Lets weights that a load has read leave the page cache while memory is short; an async context manager.

    A loader that maps its files (vLLM's default, llama.cpp's mmap) keeps what is mapped; each file goes once it is
    unmapped. One that reads leaves its pages behind: these go. Never fails a load, and never waits in it.
    """

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
            if failed is None and short(self._tools, 0):
                self._take_reports()
                async with asyncio.timeout(LAST_S):
                    await self._forget(self._read.everything())
        if self._gone >= LEAST:
            what = f"{gib(self._gone)} of cached weights" if self._counted else "Cached weights"
            text = f"{what} of {self._profile.name} were let go of while it loaded."
            self._tools.registry.notice(Level.INFO, "page_cache_dropped", text, self._profile.name)

    async def _run(self) -> None:
        with suppress(SparkdashError, OSError):
            if not await shares_memory(self._tools, self._profile):
                return
            files = await unshared_weight_files(self._tools, self._profile)
            self._opens = opens = FileOpens(files)
            self._read = ReadFiles(opens.sizes)
            loop = asyncio.get_running_loop()
            loop.add_reader(opens.descriptor, self._take_reports)
            try:
                while True:
                    await self._tools.clock.sleep(LOOK_S)
                    need = self._tools.needs(self._profile).room_bytes or 0
                    taken = max(0, self._before - self._tools.reader.memory().available)
                    if short(self._tools, max(0, need - taken)):
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

"""Weights of the next profile, read into the page cache while the engines before it leave.

Only for loaders that read through the cache, and only as much as fits beside the reserve now, and beside the new
engine's own need later. The guard's warning ends it, and lets go of what was read.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

from sparkdash.domain.event import Level
from sparkdash.domain.metric import Memory
from sparkdash.domain.profile import Profile
from sparkdash.errors import SparkdashError
from sparkdash.host.memory import page_cache
from sparkdash.host.thread import in_thread
from sparkdash.supervisor.memory import cache_eviction
from sparkdash.supervisor.tools import Tools
from sparkdash.units import GIB, MIB, duration, gib

RATE = 1 * GIB
"""Bytes a second at most: the engine that leaves still answers, and reads of 2 GiB a second fill the free lists."""
PIECE = 16 * MIB
END_S = 1.0
"""Longest wait for the last piece: a disk may hang."""


def room(memory: Memory, needs: int | None, kept: int) -> int:
    """Return the bytes that may be read ahead of an engine that takes `needs`, with `kept` staying available."""
    return 0 if needs is None else max(0, min(memory.available, memory.total - needs) - kept)


class ReadAhead:
    """Reads ahead inside its context; what was read goes again if the switch fails there. Never fails."""

    def __init__(self, tools: Tools, target: Profile) -> None:
        self._tools = tools
        self._target = target
        self._end = Event()
        self._task: asyncio.Task[None] | None = None
        self._began = time.monotonic()
        self._files: list[Path] = []
        self._read = 0
        """Bytes of them that are in the cache now, and were not all there before."""

    async def __aenter__(self) -> Self:
        if self._tools.adapter(self._target).reads_page_cache(self._target):
            self._task = asyncio.create_task(self._run(), name=f"read ahead {self._target.name}")
        return self

    async def __aexit__(
        self, failed: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._end.set()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=END_S)
        self._task.cancel()
        if failed is not None or self._tools.guarded.warns():
            await in_thread(lambda: page_cache.forget_up_to(self._files, sys.maxsize, END_S))
        elif self._read >= PIECE:
            text = f"{gib(self._read)} of weights of {self._target.name} were read ahead"
            took = duration(time.monotonic() - self._began)
            self._tools.registry.notice(Level.INFO, "read_ahead", f"{text} in {took}.", self._target.name)

    async def _run(self) -> None:
        tools, target = self._tools, self._target
        with suppress(SparkdashError, OSError):
            shared = await cache_eviction.shares_memory(tools, target)
            needs, kept = tools.needs(target).room_bytes if shared else 0, tools.reserve_bytes
            files = sorted(await cache_eviction.weight_files(tools, target))
            most = room(tools.reader.memory(), needs, kept)
            await cache_eviction.evict_weights(tools, most - tools.reader.memory().free, keep=files)
            await in_thread(lambda: self._read_files(files, most))

    def _read_files(self, files: Iterable[Path], most: int) -> None:
        for file in files:
            if self._read >= most or self._end.is_set():
                return
            with suppress(OSError), file.open("rb", buffering=0) as opened:
                size = file.stat().st_size
                if (page_cache.cached_bytes(opened.fileno()) or 0) < size:
                    # Else the kernel reads half a piece beyond each, and what is still in flight could not be let go.
                    with suppress(OSError):
                        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                    self._files.append(file)
                    self._read += _read(opened.readinto, min(size, most - self._read), self._goes_on)

    def _goes_on(self) -> bool:
        return not self._end.is_set() and not self._tools.guarded.warns()


def _read(readinto: Callable[[memoryview], int | None], most: int, goes_on: Callable[[], bool]) -> int:
    """Read up to `most` bytes at RATE while `goes_on`; return those that were read. Blocks: call it in a thread."""
    buffer, done, began = memoryview(bytearray(PIECE)), 0, time.monotonic()
    while done < most and goes_on() and (count := readinto(buffer)):
        done += count
        time.sleep(max(0.0, began + done / RATE - time.monotonic()))
    return done

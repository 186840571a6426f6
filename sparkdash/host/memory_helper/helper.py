"""MemoryHelper: the installed unit that frees and compacts the box's memory as root.

Owns: whether the unit is installed, starting it with a deadline, and the freed bytes. Must not know when that is
useful, nor what the unit does. Rule: it never asks for a password (`sudo -n`), and no caller waits longer than the
deadline.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sparkdash.errors import HostError
from sparkdash.host import meminfo
from sparkdash.host.command import CommandResult, run_command
from sparkdash.host.memory_helper.unit_files import START, UNIT

LIMIT_S = 75.0
"""Longest wait; the unit itself ends after 60 s."""


@dataclass(frozen=True, slots=True)
class HelperResult:
    """Result of one run."""

    ok: bool
    took_s: float
    freed_bytes: int | None = None
    """Gain of MemFree meanwhile; None if unknown."""
    why: str | None = None
    """Reason of a failed run, in the program's own words; None after success."""


async def _started(argv: Sequence[str]) -> CommandResult:
    return await run_command(argv, deadline_s=LIMIT_S)


class MemoryHelper:
    """Starter of the unit, for the life of the daemon. `start` runs a command line; only tests give another."""

    def __init__(
        self,
        unit: Path = Path(UNIT),
        *,
        start: Callable[[Sequence[str]], Awaitable[CommandResult]] = _started,
        uid: int | None = None,
    ) -> None:
        self._unit = unit
        self._start = start
        self._argv = START if (os.getuid() if uid is None else uid) == 0 else ("sudo", "-n", *START)
        self._under_way: asyncio.Task[HelperResult] | None = None

    def available(self) -> bool:
        """Whether the unit is installed, by one stat; only a start shows whether it is permitted."""
        return self._unit.exists()

    async def run(self) -> HelperResult:
        """Free and compact the memory; concurrent callers share one run. Never raises; takes LIMIT_S at most."""
        if not self.available():
            return HelperResult(ok=False, took_s=0.0, why="The memory helper is not installed.")
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(self._run())
        return await asyncio.shield(self._under_way)

    async def _run(self) -> HelperResult:
        before, began = _free(), time.monotonic()
        why: str | None = None
        try:
            done = await self._start(self._argv)
            if done.code:
                why = (done.err or done.out).strip()[:500] or f"it ended with code {done.code}"
        except TimeoutError:
            why = f"it did not end within {LIMIT_S:.0f} s"
        except OSError as error:
            why = f"{self._argv[0]} cannot be run: {error.strerror or error}"
        after = _free()
        freed = None if why or before is None or after is None else max(0, after - before)
        return HelperResult(why is None, time.monotonic() - began, freed, why)


def _free() -> int | None:
    with suppress(HostError):
        return meminfo.read_memory().free
    return None

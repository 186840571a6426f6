"""Progress of one load by its own processes: bytes that they read or write, and memory that they hold.

Owns: those figures from look to look. Must not know what else shows progress, nor when a load counts as still.

The box's memory and page cache move with every program: a hung load looked alive for as long as a neighbour loaded,
or a person copied files.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sparkdash.errors import SparkdashError
from sparkdash.host.processes import proc
from sparkdash.host.thread import in_thread
from sparkdash.supervisor.tools import Tools

LOOK_S = 2.0
"""Limit of one look, and the pause between two."""


class ProcessProgress:
    """Progress of one load's processes since its first look. `enough`: bytes that count as progress."""

    def __init__(self, tools: Tools, container: str, enough: int) -> None:
        self._tools = tools
        self._container = container
        self._enough = enough
        self._seen: dict[int, int] = {}
        self._gained = 0
        self.tells_reads = False
        """Whether reads and writes are in the figures: a download by another user's process shows nowhere else."""
        self.held: int | None = None
        """Bytes of memory that they held at the last look; None while unknown."""

    async def moved(self) -> bool | None:
        """Whether the processes have taken in enough since that was last so; None when nobody can tell.

        Each process counts for itself: one that ends takes nothing back.
        """
        found: dict[int, int] = {}
        with suppress(SparkdashError, TimeoutError):
            async with asyncio.timeout(LOOK_S):
                pids, reading = await asyncio.gather(
                    self._tools.runtime.pids(self._container), self._tools.reader.gpu()
                )
                found, self.tells_reads = await in_thread(lambda: (proc.taken_in(pids), proc.tells_reads(pids)))
                self.held = self._tools.reader.engine_bytes(pids, reading) if pids else None
            for pid, held in (reading.processes or {}).items():
                if pid in pids:
                    found[pid] = found.get(pid, 0) + held
        if not found:
            return None
        self._gained += sum(max(0, taken - self._seen.get(pid, 0)) for pid, taken in found.items())
        self._seen |= found
        if self._gained < self._enough:
            return False
        self._gained = 0
        return True

"""Cap of the GPU's clock, held for one measurement and always lifted.

Owns: the one cap of this box, and the file that owes its end. Must not know: how a clock is capped, what is measured.
Rule 1: the file is written before the clock is capped and deleted after it is free, so a daemon that was killed owes it
to the next one.
Rule 2: a cap ends with the lease of its holder, however the holder ended.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from sparkdash.domain.event import Level, Notice
from sparkdash.errors import SparkdashError
from sparkdash.host.gpu_clock import GpuClock
from sparkdash.host.thread import in_thread

LOG = structlog.get_logger("sparkdash.clock")
FILE_NAME = "gpu-clock-cap.json"
LOOK_S = 1.0
"""Pause between two looks at the holder's lease while the clock is capped."""
RETRY_S = 30.0
"""Pause before a cap that could not be lifted is tried again."""


class ClockCap:
    """The cap. `holds` tells whether a lease's token is still the holder's."""

    def __init__(
        self,
        clock: GpuClock,
        folder: Path,
        holds: Callable[[str], bool],
        publish: Callable[[Notice], object],
        *,
        look_s: float = LOOK_S,
    ) -> None:
        self._clock = clock
        self._file = folder / FILE_NAME
        self._holds = holds
        self._publish = publish
        self._look_s = look_s
        self._lock = asyncio.Lock()
        self._token: str | None = None
        self._changed = asyncio.Event()
        self._warned = False
        self.mhz: int | None = None
        """Cap in force; None: none of this daemon's."""

    async def check(self, mhz: int) -> None:
        """Refuse a cap that would fail. Raises SparkdashError."""
        await self._clock.check(mhz)

    async def cap(self, mhz: int, token: str) -> None:
        """Cap the clock until the lease with this token ends. Raises SparkdashError."""
        async with self._lock:
            await self._clock.check(mhz)
            await in_thread(lambda: _owe(self._file, mhz))
            self._token = token
            self._changed.set()
            try:
                await self._clock.cap(mhz)
            except SparkdashError as error:
                if self.mhz is None and error.code != "clock_silent":  # a silent command may have capped it
                    self._forget()
                raise
            self.mhz = mhz

    async def lift(self) -> None:
        """Lift the cap, if there is one or an earlier daemon left one. Raises SparkdashError."""
        async with self._lock:
            await self._lift()

    async def run(self) -> None:
        """Lift what an earlier daemon left, then each cap whose holder is gone; the last one at the end."""
        try:
            while True:
                await self._lift_what_is_left()
                await self._changed.wait()
                self._changed.clear()
                await self._holder_gone()
                self._token = None
        finally:
            self._token = None
            await asyncio.shield(self._settle())

    async def _lift_what_is_left(self) -> None:
        while True:
            pause_s = await self._settle()
            if pause_s is None:
                return
            await asyncio.sleep(pause_s)

    async def _holder_gone(self) -> None:
        while True:
            if self._token is None or not self._holds(self._token):
                return
            await asyncio.sleep(self._look_s)

    async def _settle(self) -> float | None:
        """Lift a cap without a holder; return the pause before another try, None once nothing is owed."""
        try:
            async with self._lock:
                if self._token is None:
                    await self._lift()
        except SparkdashError as error:
            LOG.warning("the GPU's clock is still capped", why=error.message)
            if not self._warned:
                text = f"The GPU's clock is still capped. {error.message} Lift the cap: sudo nvidia-smi -rgc"
                self._publish(Notice(level=Level.ERROR, code="clock_capped", text=text))
            self._warned = True
            return RETRY_S
        return None

    async def _lift(self) -> None:
        if self._file.exists():
            await self._clock.uncap()
            LOG.info("the GPU's clock is free again")
        self._forget()

    def _forget(self) -> None:
        self._file.unlink(missing_ok=True)
        self.mhz = self._token = None
        self._warned = False


def _owe(file: Path, mhz: int) -> None:
    """Write the file so that it survives a power cut."""
    part = file.with_suffix(".part")
    with part.open("w") as written:
        json.dump({"mhz": mhz}, written)
        written.flush()
        os.fsync(written.fileno())
    part.replace(file)

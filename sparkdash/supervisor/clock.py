"""Time, handed in, so that tests own it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Three ways to ask for time."""

    def now(self) -> float:
        """Unix seconds, for people and records."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump, for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The box's own."""

    def now(self) -> float:
        """See Clock."""
        return time.time()

    def monotonic(self) -> float:
        """See Clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See Clock."""
        await asyncio.sleep(seconds)

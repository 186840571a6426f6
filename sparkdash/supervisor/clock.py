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
        """Sleep for so many seconds."""
        ...


class SystemClock:
    """The operating system's clock."""

    def now(self) -> float:
        """Return Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for so many seconds."""
        await asyncio.sleep(seconds)

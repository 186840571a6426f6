"""A clock that leaps, for every room that has a simulated engine in its own process."""

from __future__ import annotations

import asyncio


class LeapingClock:
    """Simulated seconds: waiting moves it on at once, and lets others run."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    async def sleep_until(self, when: float) -> None:
        self.seconds = max(self.seconds, when)
        await asyncio.sleep(0)

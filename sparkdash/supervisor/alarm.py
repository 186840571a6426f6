"""Decision timer: wakes the actor at the moment when time itself changes a decision.

Owns: the one sleeping task; without such a moment nothing sleeps. Must not know what is decided then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sparkdash.supervisor.clock import Clock


class DecisionTimer:
    """Calls `ring` once when what it was last set to has come."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._at: float | None = None
        self._task: asyncio.Task[None] | None = None

    def set(self, group: asyncio.TaskGroup, at: float | None) -> None:
        """Monotonic seconds; None: no alarm. What was set before no longer counts."""
        if at == self._at:
            return
        if self._task is not None:
            self._task.cancel()
        self._at = at
        self._task = group.create_task(self._sleep(at), name="alarm") if at is not None else None

    async def _sleep(self, at: float) -> None:
        await self._clock.sleep(max(0.0, at - self._clock.monotonic()))
        self._at = self._task = None
        self._ring()

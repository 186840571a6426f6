"""Clocks that leap over the time in which nothing happens: a simulated engine's, and an event loop's.

Whatever a test waits for comes at once, in the order in which it would come, however slow the machine is.
"""

import asyncio
import selectors
from typing import Any

from sparkdash.sim.speed import SimulationClock

IDLE_S = 0.002
"""Real seconds without a byte after which nothing more is expected: all ends of all sockets are in this process."""


class LeapingClock(SimulationClock):
    """Simulated seconds, for an engine in the test's own process: waiting moves them on at once, and lets others run.

    `turns` of the event loop pass before each leap: so many let those who read note what was said at the moment it was said.
    """

    def __init__(self, seconds: float = 0.0, *, turns: int = 0) -> None:
        self.seconds = seconds
        self._turns = turns

    def now(self) -> float:
        return self.seconds

    async def sleep_until(self, when: float) -> None:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        self.seconds = max(self.seconds, when)
        await asyncio.sleep(0)


class _LeapingSelector(selectors.DefaultSelector):
    lept = 0.0
    working = 0
    """Threads that do something for the loop: what they find is waited for."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= IDLE_S or self.working:
            return super().select(timeout)
        ready = super().select(IDLE_S)
        if not ready:
            self.lept += timeout - IDLE_S
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock leaps to the next timer when all else is done."""

    def __init__(self) -> None:
        self._leaping = _LeapingSelector()
        super().__init__(self._leaping)

    def time(self) -> float:
        return super().time() + self._leaping.lept

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        self._leaping.working += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._worked)
        return future

    def _worked(self, _future: object) -> None:
        self._leaping.working -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - its runner's, from 3.12 on
        """However long its threads take: that limit would be leapt over."""
        await super().shutdown_default_executor()

"""Time in the test's hand."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

T = TypeVar("T")
TURNS = 60
"""Turns of the loop that count as rest: a request over loopback takes about fifteen."""
REST_MS = 20_000
"""How long threads and requests are waited for: they end, whatever else the machine does."""
STEPS = 5_000
"""Sleepers that are woken, one after the other, before a test has waited in vain."""


class FakeClock:
    """Time that moves only when the test lets it."""

    def __init__(self) -> None:
        self.time = 1_000_000.0
        self.asking: Callable[[], int] = lambda: 0
        """How many requests are under way that will be answered: time does not pass over them."""
        self.threads: Callable[[], int] = lambda: 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        wake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.time + seconds, next(self._order), wake))
        await wake

    def step(self) -> None:
        """Wake the next sleeper, at its time."""
        while self._sleepers:
            due, _, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                self.time = max(self.time, due)
                wake.set_result(None)
                return

    async def steps(self, number: int = 1) -> None:
        """Wake so many sleepers, one after the other."""
        for _ in range(number):
            self.step()
            await self.rest()

    async def rest(self) -> None:
        """Let everything run that can without time passing. Raises AssertionError: it goes on and on."""
        quiet = 0  # in a row: what a thread found may wait for the loop's next turn when the thread has gone
        for _ in range(REST_MS):
            busy = self.threads() or self.asking()
            quiet = 0 if busy else quiet + 1
            if quiet > TURNS:
                return
            await asyncio.sleep(0.001 if busy else 0)
        raise AssertionError(f"it never came to rest: {self._told()}")

    async def until(self, holds: Callable[[], object]) -> None:
        """Let time pass until `holds`. Raises AssertionError: it never does."""
        for _ in range(STEPS):
            if holds():
                return
            await self.steps()
        raise AssertionError(f"it never held: {self._told()}")

    async def drive(self, work: Awaitable[T]) -> T:
        """Let time pass until `work` is done. Raises AssertionError: it never is."""
        task = asyncio.ensure_future(work)
        for _ in range(STEPS):
            await self.rest()
            if task.done():
                return await task
            self.step()
        raise AssertionError(f"it never ended: {self._told()}")

    def _told(self) -> str:
        """Work under way, for a test that waited in vain."""
        tasks = [f"{task.get_name()} in {task.get_stack()}" for task in asyncio.all_tasks()]
        return f"{self.asking()} asking, {self.threads()} threads, {len(self._sleepers)} sleepers; {tasks}"

"""Time, handed in, so that tests own it; and awaiting work within a limit of it, or to its end."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar


class Clock(Protocol):
    """Three ways to ask for time."""

    def now(self) -> float: ...

    def monotonic(self) -> float:
        """Seconds that never jump, for durations."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The operating system's clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


T = TypeVar("T")


async def bounded(work: Awaitable[T], clock: Clock, limit_s: float) -> T | None:
    """Await `work`; None when it takes longer than the limit. Raises what it raises."""
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        timer.cancel()
        if not task.done():
            task.cancel()
            task.add_done_callback(lambda late: late.cancelled() or late.exception())


class Begun:
    """Work that is finished also by a task that is cancelled meanwhile, unless it is given up."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()
        self._over = False

    async def finish(self, work: Awaitable[T]) -> T:
        """Await `work` to its end even when we are cancelled meanwhile, however often; the cancellation follows."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._over:
            task.cancel()
        cancelled = False
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            task.exception()  # retrieved, so that asyncio does not log it: the result no longer matters
            raise asyncio.CancelledError
        return task.result()

    def give_up(self) -> None:
        """Cancel what is under way, and what begins from now on: the program has no time left."""
        self._over = True
        for task in tuple(self._tasks):
            task.cancel()

"""KeepAlive: when a waiting client gets its keep-alives.

Owns: the time of the first one, and the interval. Must not know their content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

KEEP_ALIVE_S = 5.0
"""Between keep-alives: the most impatient client measured gives up after 60 s without a byte."""


class KeepAlive:
    """`say` is awaited after `delay_s` and then every KEEP_ALIVE_S, until `end`; `failed` is told when it raises."""

    def __init__(
        self, say: Callable[[], Awaitable[None]], delay_s: float, failed: Callable[[BaseException], object]
    ) -> None:
        self._say = say
        self._failed = failed
        self._over: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(delay_s, self._begin)

    async def end(self) -> None:
        """Stop; returns when no further keep-alive can be sent. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None and self._over is not None:
            self._over.set()
            await self._task

    def _begin(self) -> None:
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._speak(self._over), name="keep-alive")

    async def _speak(self, over: asyncio.Event) -> None:
        try:
            while not over.is_set():
                await self._say()
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), KEEP_ALIVE_S)
        except Exception as error:  # noqa: BLE001 - the waiting request gets it
            self._failed(error)

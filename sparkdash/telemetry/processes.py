"""Host process ids of each engine, refreshed in the background.

Owns: asking the runtime every few seconds, and the last answers. Must not know containers or memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from sparkdash.errors import SparkdashError

FRESH_S = 5.0
"""Validity of an answer: each costs a call of the runtime, and engines rarely fork after their start."""
QUIET_S = 30.0
"""Validity beside engines that have started, while nobody looks."""


class Processes:
    """Last known process ids of each engine in `known`; None until the runtime has answered."""

    def __init__(self, ask: Callable[[str], Awaitable[set[int]]], monotonic: Callable[[], float]) -> None:
        self.known: dict[str, set[int] | None] = {}
        self._ask = ask
        self._monotonic = monotonic
        self._task: asyncio.Task[None] | None = None
        self._asked_at = 0.0

    def refresh(self, profiles: Collection[str], *, quiet: bool = False) -> None:
        """Track these profiles only, and begin a new query if answers are old or missing. Never waits.

        `quiet`: all of them have started, and nobody looks.

        Raises whatever the last query raised, except a SparkdashError.
        """
        valid_s = QUIET_S if quiet and None not in self.known.values() else FRESH_S
        fresh = self.known.keys() >= set(profiles) and self._monotonic() - self._asked_at < valid_s
        self.known = {name: self.known.get(name) for name in profiles}
        if self._task is not None and self._task.done():
            done, self._task = self._task, None
            done.result()
        if self._task is None and profiles and not fresh:
            self._asked_at = self._monotonic()
            self._task = asyncio.create_task(self._ask_all(list(profiles)), name="telemetry pids")

    async def close(self) -> None:
        """Cancel the running query."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _ask_all(self, profiles: list[str]) -> None:
        for name in profiles:
            try:
                found = await self._ask(name)
            except SparkdashError:
                found = None  # a busy runtime, which the supervisor's own calls report
            if name in self.known:
                self.known[name] = found

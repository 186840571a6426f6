"""Which processes belong to which engine.

Owns: asking the runtime in the background, every few seconds, and remembering. Must not know containers or memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from sparkdash.errors import SparkdashError

FRESH_S = 5.0
"""How long an answer counts: each one costs a call of the runtime, and engines rarely fork after their start."""


class Processes:
    """`known` holds the host process ids of each engine as last told; None where the runtime has not told."""

    def __init__(self, ask: Callable[[str], Awaitable[set[int]]], monotonic: Callable[[], float]) -> None:
        self.known: dict[str, set[int] | None] = {}
        self._ask = ask
        self._monotonic = monotonic
        self._task: asyncio.Task[None] | None = None
        self._asked_at = 0.0

    def refresh(self, profiles: Collection[str]) -> None:
        """Keep these and no others; ask anew when the answers are old or one is missing. Returns at once.

        Raises whatever the last asking raised, if it was no SparkdashError.
        """
        fresh = self.known.keys() >= set(profiles) and self._monotonic() - self._asked_at < FRESH_S
        self.known = {name: self.known.get(name) for name in profiles}
        if self._task is not None and self._task.done():
            done, self._task = self._task, None
            done.result()
        if self._task is None and profiles and not fresh:
            self._asked_at = self._monotonic()
            self._task = asyncio.create_task(self._ask_all(list(profiles)), name="telemetry pids")

    async def close(self) -> None:
        """End the asking that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _ask_all(self, profiles: list[str]) -> None:
        for name in profiles:
            try:
                found = await self._ask(name)
            except SparkdashError:
                found = None  # a busy runtime: its own callers tell of it
            if name in self.known:
                self.known[name] = found

"""Other containers that take of what our engines need.

Owns: when the runtime is asked for them, and remembering. Must not know who counts as one, or what memory is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from sparkdash.domain.container import Stranger
from sparkdash.errors import SparkdashError

FRESH_S = 30.0
"""How long an answer counts while somebody watches: each costs two calls of the runtime, and they come and go seldom."""


class Strangers:
    """`known` holds them with their host process ids, as last told."""

    def __init__(
        self, ask: Callable[[], Awaitable[Mapping[Stranger, set[int]]]], monotonic: Callable[[], float]
    ) -> None:
        self.known: Mapping[Stranger, set[int]] = {}
        self._ask = ask
        self._monotonic = monotonic
        self._task: asyncio.Task[Mapping[Stranger, set[int]]] | None = None
        self._asked_at: float | None = None
        self._beside: frozenset[str] = frozenset()

    def refresh(self, engines: Collection[str], *, watched: bool) -> None:
        """Ask anew when our engines changed, and while somebody watches when the answer is old. Returns at once.

        Raises whatever the last asking raised, if it was no SparkdashError.
        """
        if self._task is not None and self._task.done():
            done, self._task = self._task, None
            if not isinstance(done.exception(), SparkdashError):  # a busy runtime: its own callers tell of it
                self.known = done.result()
        now, beside = self._monotonic(), frozenset(engines)
        old = self._asked_at is None or (watched and now - self._asked_at >= FRESH_S)
        if self._task is None and (old or beside != self._beside):
            self._asked_at, self._beside = now, beside
            self._task = asyncio.ensure_future(self._ask())

    async def close(self) -> None:
        """End the asking that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

"""Containers that are not ours, refreshed in the background.

Owns: when the runtime is asked, and the last answer. Must not know which containers count, or what memory is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from sparkdash.domain.container import Stranger
from sparkdash.errors import SparkdashError

FRESH_S = 30.0
"""Validity of an answer while samples have a listener: each costs two calls of the runtime, and changes are rare."""


class Strangers:
    """Last known other containers in `known`, with their host process ids."""

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
        """Begin a new query if our engines changed, or if the answer is old and samples are watched. Never waits.

        Raises whatever the last query raised, except a SparkdashError.
        """
        if self._task is not None and self._task.done():
            done, self._task = self._task, None
            if not isinstance(done.exception(), SparkdashError):  # a busy runtime, which the supervisor's calls report
                self.known = done.result()
        now, beside = self._monotonic(), frozenset(engines)
        old = self._asked_at is None or (watched and now - self._asked_at >= FRESH_S)
        if self._task is None and (old or beside != self._beside):
            self._asked_at, self._beside = now, beside
            self._task = asyncio.ensure_future(self._ask())

    async def close(self) -> None:
        """Cancel the running query."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

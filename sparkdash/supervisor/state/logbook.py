"""Logbook: last log lines of every engine, kept after its container is gone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import cast

from sparkdash.errors import SparkdashError
from sparkdash.host.runtime import Runtime

KEPT = 1000
"""Lines kept of each profile. vLLM's start-up is 100 to 300 of them."""

LAST_WORDS_S = 10.0
RECENT_S = 3.0
"""Limit of reading the last lines of an engine that runs."""


def lines_of(
    runtime: Runtime, container: str, *, follow: bool, tail: int | None = None
) -> AbstractAsyncContextManager[AsyncIterator[str]]:
    """Open the container's log lines; the runtime's reader is closed when the context is left early."""
    return aclosing(cast("AsyncGenerator[str, None]", runtime.logs(container, follow=follow, tail=tail)))


class Logbook:
    """Lines by profile, newest incarnation only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lines: dict[str, deque[str]] = {}
        self._containers: dict[str, str] = {}

    def open(self, profile: str, container: str) -> None:
        """A new incarnation begins; what the last one said is forgotten."""
        self._lines[profile] = deque(maxlen=KEPT)
        self._containers[profile] = container

    def adopt(self, profile: str, container: str) -> None:
        """An engine that has been running; its log is with its container."""
        self._containers[profile] = container

    def add(self, profile: str, line: str) -> None:
        self._lines.setdefault(profile, deque(maxlen=KEPT)).append(line)

    def tail(self, profile: str, count: int = KEPT) -> list[str]:
        lines = list(self._lines.get(profile, ()))
        return lines[max(0, len(lines) - count) :]

    async def close(self, profile: str) -> None:
        """Keep the last lines of a container that is about to be removed."""
        container = self._containers.pop(profile, None)
        if container is None:
            return
        lines: deque[str] = deque(maxlen=KEPT)
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                async with lines_of(self._runtime, container, follow=False, tail=KEPT) as said:
                    lines.extend([line async for line in said])
        except (SparkdashError, TimeoutError):
            return
        if lines:
            self._lines[profile] = lines

    async def recent(self, profile: str, count: int) -> list[str]:
        """Read the last lines as of now; those that are kept where the runtime is late."""
        lines: deque[str] = deque(maxlen=count)
        try:
            async with asyncio.timeout(RECENT_S), aclosing(self.read(profile, tail=count, follow=False)) as said:
                lines.extend([line async for line in said])
        except (SparkdashError, TimeoutError):
            return self.tail(profile, count)
        return list(lines)

    async def read(self, profile: str, *, tail: int | None, follow: bool) -> AsyncGenerator[str, None]:
        """Lines from the container while there is one, else those that were kept."""
        if container := self._containers.get(profile):
            async with lines_of(self._runtime, container, follow=follow, tail=tail) as said:
                async for line in said:
                    yield line
            return
        for line in self.tail(profile, KEPT if tail is None else tail):
            yield line

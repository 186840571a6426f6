"""Turns: how many requests begin in one turn of the event loop.

Owns: the count, and who waits. Must not know what a request is. What a turn writes leaves at its end: a burst that is begun in one turn
reaches the engine as a whole, and no answer is passed on before its last request has begun.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

MOST = 6
"""With 32 requests at once on 16 cores, and 6 begun in a turn, the first was answered after 1.8 ms instead of 3.2, the median came a fifth
sooner and the last when it came before. Fewer cost more turns: with 1 the median was hardly better, a request of many cost a quarter more
CPU, and the last came an eighth later (docs/relay.md)."""


class Turns:
    """Shared by the connections of one server. Nothing is set up while nobody asks."""

    __slots__ = ("_left", "_waiting")

    def __init__(self) -> None:
        self._left = MOST
        """Requests that may still begin in this turn; none while one waits."""
        self._waiting: deque[Callable[[], object]] = deque()

    def take(self, loop: asyncio.AbstractEventLoop) -> bool:
        """May one more begin in this turn of the loop? Otherwise `wait`."""
        if not self._left:
            return False
        if self._left == MOST:
            loop.call_soon(self._next, loop)
        self._left -= 1
        return True

    def wait(self, begin: Callable[[], object]) -> None:
        """`begin` is called in a later turn, after those that waited before."""
        self._waiting.append(begin)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = MOST
        if not self._waiting:
            return
        loop.call_soon(self._next, loop)
        while self._left and self._waiting:
            self._left -= 1
            self._waiting.popleft()()

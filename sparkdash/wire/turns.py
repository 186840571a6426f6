"""Turns: how many requests begin in one turn of the event loop.

Owns: the count, and the requests that wait. Must not know what a request is. What a turn writes leaves at its end: a
burst that begins in one turn reaches the engine as a whole, and no answer is passed on before its last request has
begun.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

MOST = 6
"""Measured with 32 requests at once on 16 cores (docs/relay.md). With 6 a turn the first answer came after 1.8 ms
instead of 3.2 ms, the median a fifth sooner, the last no later. With 1 a turn the median was hardly better, a request
among many cost a quarter more CPU, and the last answer came an eighth later.
"""


class Turns:
    """Limit that the connections of one server share. Nothing is scheduled while no request comes."""

    __slots__ = ("_left", "_waiting")

    def __init__(self) -> None:
        self._left = MOST
        """Requests that may still begin in this turn; none while one waits."""
        self._waiting: deque[Callable[[], object]] = deque()

    def take(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Take a place in this turn of the loop; False when there is none: then `wait`."""
        if not self._left:
            return False
        if self._left == MOST:
            loop.call_soon(self._next, loop)
        self._left -= 1
        return True

    def wait(self, begin: Callable[[], object]) -> None:
        """Call `begin` in a later turn, after those that waited before."""
        self._waiting.append(begin)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = MOST
        if not self._waiting:
            return
        loop.call_soon(self._next, loop)
        while self._left and self._waiting:
            self._left -= 1
            self._waiting.popleft()()

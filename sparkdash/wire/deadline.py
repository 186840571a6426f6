"""Deadline: one moment by which something must have come. It is moved with every request, and that costs next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """`passed` is called once it is there. Its timer is only ever set earlier; one that rings too soon is set again."""

    __slots__ = ("_at", "_loop", "_passed", "_rings_at", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[], object]) -> None:
        self._loop = loop
        self._passed = passed
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    @property
    def at(self) -> float | None:
        """Time of the deadline in the loop's seconds; None: there is none."""
        return self._at

    def set(self, seconds: float) -> None:
        """In so many seconds; what was set before no longer counts."""
        self._at = at = self._loop.time() + seconds
        if self._timer is None:
            self._ring_at(at)
        elif at < self._rings_at:
            self._timer.cancel()
            self._ring_at(at)

    def clear(self) -> None:
        """There is none."""
        self._at = None

    def stop(self) -> None:
        """There will be none any more, and nobody is held to be told."""
        self._at, self._passed = None, _nobody
        if self._timer is not None:
            self._timer.cancel()

    def _ring_at(self, at: float) -> None:
        self._rings_at = at
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer, at = None, self._at
        if at is None:
            return
        if at > self._rings_at:
            self._ring_at(at)
        else:
            self._at = None
            self._passed()


def _nobody() -> None:
    """Is told nothing."""

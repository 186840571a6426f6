"""Deadline: a time limit that is moved with every request at next to no cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Time limit; `passed` is called when it has passed.

    The timer is only ever set earlier: one that rings too soon is set again.
    """

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
        """Move the deadline to `seconds` from now."""
        self._at = at = self._loop.time() + seconds
        if self._timer is None:
            self._ring_at(at)
        elif at < self._rings_at:
            self._timer.cancel()
            self._ring_at(at)

    def clear(self) -> None:
        """Drop the deadline; another may be set."""
        self._at = None

    def stop(self) -> None:
        """Cancel and drop the callback."""
        self._at, self._passed = None, _do_nothing
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


def _do_nothing() -> None:
    """Stand in for a dropped callback."""

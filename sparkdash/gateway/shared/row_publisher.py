"""Board: when the rows of requests are told, so that a burst's news goes out together.

Owns: the one timer for all rows. Must not know what a row is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TOGETHER_S = 0.02
"""Nobody sees less, and most of a burst's first bytes are out by then; a short request is told only when it is over."""

Publish = Callable[[], object]


class RowPublisher:
    """One for the gateway. It turns every half of TOGETHER_S while there is news: who is put on it is told at the second
    turn. Nothing wakes the process while there is none."""

    def __init__(self) -> None:
        self._new: list[Publish] = []
        self._waiting: list[Publish] = []
        """Since the last turn."""
        self._timer: asyncio.TimerHandle | None = None

    def publish_soon(self, publish: Publish) -> None:
        """Have `publish` called within TOGETHER_S, and not before half of it."""
        self._new.append(publish)
        if self._timer is None:
            self._start()

    def _start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TOGETHER_S / 2, self._turn)

    def _turn(self) -> None:
        due, self._waiting, self._new = self._waiting, self._new, []
        self._timer = None
        if self._waiting:
            self._start()
        for publish in due:
            publish()

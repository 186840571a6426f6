"""RowPublisher: publishes row updates of a burst of requests together.

Owns: the one timer for all rows. Must not know what a row is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TOGETHER_S = 0.02
"""Seconds within which an update is published: shorter than people can see, longer than most bursts' first bytes. A
short request is published only at its end."""

Publish = Callable[[], object]


class RowPublisher:
    """Publisher of the gateway. Its timer runs every half of TOGETHER_S while updates are queued, and not otherwise.

    An update is published at the second turn after it was queued.
    """

    def __init__(self) -> None:
        self._new: list[Publish] = []
        self._waiting: list[Publish] = []
        """Updates queued before the last turn."""
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

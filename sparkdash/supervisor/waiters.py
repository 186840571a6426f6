"""Waiters: callers who ordered something, and wait until it is done.

Owns: their futures. Must not know when an order is done.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from sparkdash.errors import SparkdashError
from sparkdash.supervisor.scheduling.moves import Move

Waiter = asyncio.Future[None]


class Waiters:
    """Callers that wait for orders, by the kind of order."""

    def __init__(self) -> None:
        self._waiting: defaultdict[type[Move], list[Waiter]] = defaultdict(list)

    def add(self, order: Move, waiter: Waiter) -> None:
        """Add a waiter for this order."""
        self._waiting[type(order)].append(waiter)

    def settle(self, kind: type[Move], error: SparkdashError | None = None) -> None:
        """Orders of this kind are carried out, or will not be."""
        for waiter in self._waiting.pop(kind, ()):
            if not waiter.done():
                waiter.set_result(None) if error is None else waiter.set_exception(error)

    def end(self, error: SparkdashError) -> None:
        """Settle all waiters: orders are no longer carried out."""
        for kind in list(self._waiting):
            self.settle(kind, error)

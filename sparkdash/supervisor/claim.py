"""Claim and lease: what one request holds while it waits, and what it is given.

Owns: the hand-over from the actor to the waiting coroutine. Must not decide anything.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sparkdash.domain.engine import Engine
from sparkdash.domain.profile import Profile
from sparkdash.errors import SparkdashError


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to use an engine until the context is left."""

    profile: Profile
    engine: Engine
    """The incarnation, as it was when the lease was granted."""
    url: str
    """Root URL, without /v1."""
    names: tuple[str, ...]
    """Model names that the engine accepts; the first replaces any other."""
    lost: asyncio.Future[SparkdashError]
    """Done when the engine died, or the lease was cut after the drain limit; its result says why."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """What every request to this engine must carry."""


class Claim:
    """One request's place with the actor. Every method may be called when it is over already."""

    def __init__(self, ticket: str, on_wait: Callable[[int], object]) -> None:
        self.ticket = ticket
        self._on_wait = on_wait
        self._loop = asyncio.get_running_loop()
        self.granted: asyncio.Future[Lease] = self._loop.create_future()
        self.lost: asyncio.Future[SparkdashError] = self._loop.create_future()

    def grant(self, lease: Lease) -> None:
        """The wait is over."""
        if not self.granted.done():
            self.granted.set_result(lease)

    def refuse(self, error: SparkdashError) -> None:
        """The wait was in vain. Each waiter gets an error of its own: a traceback belongs to one."""
        if not self.granted.done():
            self.granted.set_exception(copy.copy(error))

    def cut(self, error: SparkdashError) -> None:
        """The lease is no longer good."""
        if not self.lost.done():
            self.lost.set_result(error)

    def wait(self, position: int) -> None:
        """Tell the place in the queue; later and apart, so that a listener's fault is not the actor's."""
        self._loop.call_soon(self._on_wait, position)

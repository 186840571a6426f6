"""Claim and lease: what one request holds while it waits, and what it is given.

Owns: the hand-over from the actor to the waiting coroutines. Must not decide anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from itertools import count
from types import MappingProxyType
from typing import NamedTuple, Protocol

from sparkdash.domain.base import per_request
from sparkdash.domain.engine import Engine
from sparkdash.domain.profile import Profile
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.scheduling.moves import Cut, Grant, Refuse, Wait

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_NUMBERS = count(1)


@per_request
class Lease:
    """Right to use an engine until the context is left."""

    profile: Profile
    engine: Engine
    """Incarnation of the engine when the lease was granted."""
    url: str
    names: tuple[str, ...]
    """Model names that the engine accepts; the first replaces any other."""
    lost: asyncio.Future[SparkdashError]
    """Done when the engine died, or the lease was cut after the drain limit; its result says why."""
    headers: Mapping[str, str]
    """Headers that every request to this engine must carry."""


class AnswerProgress(Protocol):
    """Progress of the answer to a request; asked only when somebody looks."""

    @property
    def heard_at(self) -> float | None:
        """Monotonic time at which the answer's last piece came, or was asked for after a pause; None before the first.

        Keep-alives do not count.
        """
        ...

    @property
    def is_held_up(self) -> bool:
        """Whether the answer waits for a slow client."""
        ...


class HeldRequests(NamedTuple):
    """Requests of ours that an engine holds at one moment."""

    requests: int
    held_up: int
    """Number of answers that wait for slow clients."""
    relayed_at: float | None
    """Monotonic time of the last byte of any answer, of those that are over too; None before the first."""


class LeaseClaim:
    """Hand-over of a lease between the actor and one request. Every method may be called after its end."""

    __slots__ = ("_granted", "_on_wait", "lost", "ticket")

    def __init__(self, request_id: str, on_wait: Callable[[int], object]) -> None:
        self.ticket = f"{request_id}#{next(_NUMBERS)}"  # a retried request gets another ticket
        self._on_wait = on_wait
        self._granted: asyncio.Future[Lease] | None = None
        self.lost: asyncio.Future[SparkdashError] = asyncio.get_running_loop().create_future()

    def waits(self) -> asyncio.Future[Lease]:
        """Done with the lease, or with the error why there is none."""
        self._granted = asyncio.get_running_loop().create_future()
        return self._granted

    def grant(self, lease: Lease) -> None:
        """End the wait with a lease."""
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(lease)

    def refuse(self, error: SparkdashError) -> None:
        """End the wait with an error. Each waiter gets a copy: a traceback belongs to one."""
        if self._granted is not None and not self._granted.done():
            self._granted.set_exception(copy(error))

    def cut(self, error: SparkdashError) -> None:
        """End the lease with an error."""
        if not self.lost.done():
            self.lost.set_result(error)

    def wait(self, position: int) -> None:
        """Tell the place in the queue; later and apart, so that a listener's fault is not the actor's."""
        asyncio.get_running_loop().call_soon(self._on_wait, position)


class LeaseClaims:
    """Claims of all requests that wait or are served."""

    def __init__(self, lease_of: Callable[[str, LeaseClaim], Lease]) -> None:
        self._lease_of = lease_of
        self._open: dict[str, LeaseClaim] = {}

    def __iter__(self) -> Iterator[LeaseClaim]:
        return iter(self._open.values())

    def add_claim(self, claim: LeaseClaim) -> None:
        """Add the claim of a new request."""
        self._open[claim.ticket] = claim

    def leave(self, claim: LeaseClaim) -> bool:
        """Remove the claim; False when it was removed before."""
        return self._open.pop(claim.ticket, None) is not None

    def carry_out(self, effect: Grant | Wait | Refuse | Cut) -> None:
        """Tell those whom it concerns; who left meanwhile is not there, and its Leave is in the inbox."""
        for ticket in effect.ids if isinstance(effect, Cut) else (effect.id,):
            if claim := self._open.get(ticket):
                self._tell(claim, effect)

    def retire(self, error: SparkdashError, *, cut: bool) -> None:
        """Refuse everyone who waits, as the daemon ends; with `cut` end every lease too."""
        for claim in list(self._open.values()):
            claim.refuse(error)
            if cut:
                claim.cut(error)

    def _tell(self, claim: LeaseClaim, effect: Grant | Wait | Refuse | Cut) -> None:
        match effect:
            case Grant(profile=profile):
                claim.grant(self._lease_of(profile, claim))
            case Wait(position=position):
                claim.wait(position)
            case Refuse(error=error):
                claim.refuse(error)
            case Cut(error=error):
                claim.cut(error)

"""How many connections a server has open at once, and which of them goes when there is no room for a new client.

Owns: those decisions, and the figures that are told of them. An idle connection goes first, the longest idle one
before others: its client opens another when it asks again. Who finds no room is answered, and never dropped in
silence. Must not know HTTP beyond that one answer. A request costs nothing here: idle connections are looked for when
room is wanted.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, MutableSet
from typing import Any, NamedTuple, Protocol

ROOM_SHARE = 16
"""A sixteenth of the limit is made room for at once: to look through 32,000 connections takes milliseconds, and a
burst must not do so for each of its own."""
CLIENT_SHARE = 2
"""One address beyond this box may have half of all connections. Those of this box cannot be told apart: all share
loopback."""
REFUSAL_S = 2.0
"""Longest that a refused connection is kept for its request: an answer that comes before the question is lost with a
reset."""
REFUSALS = 16
"""Refused connections that are kept at once, or a quarter of the limit; further ones are closed as they come."""
IDLE_S = 0.1
"""A connection that was opened or used more recently is not taken to be idle: its next request may be in the socket
already."""
TELL_S = 60.0
"""Pause between two tellings."""

_BODY = (
    b'{"error":{"message":"As many connections are open as sparkdash may have. Try again soon.",'
    b'"type":"server_error","param":null,"code":"too_many_connections",'
    b'"hint":"Raise the limit of open files: LimitNOFILE= of the service, or `ulimit -n`.","src":"sparkdash"}}'
)
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 2\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class Crowding(NamedTuple):
    """The limit was met."""

    most: int
    closed: int
    """Idle connections that were closed for new clients since it was told last."""
    refused: int
    """New clients that found no room."""
    address: str | None
    """Of the client that met its own limit last; None: the limit of all was met."""


class Connection(Protocol):
    """What is known of a client's connection here."""

    @property
    def idle_since(self) -> float | None:
        """When its last request was over, or it was opened; None while there is a request."""
        ...

    @property
    def address(self) -> str | None:
        """The client's, where that is beyond this box."""
        ...

    def evict(self) -> None:
        """Close it."""
        ...


class ConnectionLimit:
    """Shared by the connections of one server. `told` is called when the limit is met, at most once in TELL_S."""

    def __init__(self, most: int, told: Callable[[Crowding], object]) -> None:
        self.most = most
        self._told = told
        self._by_address: Counter[str] = Counter()
        self._closed = self._refused = self._kept_refusals = 0
        self._address: str | None = None
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, new: Connection, others: MutableSet[Any]) -> bool:
        """Take `new` in, where an idle one of the `others` has to leave for it. False: there is no room."""
        address = new.address
        own_limit = address is not None and self._by_address[address] >= max(1, self.most // CLIENT_SHARE)
        if own_limit or len(others) >= self.most:
            made = self._make_room(others, address if own_limit else None)
            self._address = address if own_limit else None
            self._closed += made
            self._refused += not made
            self._tell()
            if not made:
                return False
        if address is not None:
            self._by_address[address] += 1
        return True

    def leave(self, address: str | None) -> None:
        """One that was taken in is gone."""
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def refuse(self, transport: asyncio.Transport) -> None:
        """Answer whoever found no room once it has asked, and close."""
        self._kept_refusals += 1
        transport.set_protocol(_Refusal(transport, self._refusal_over))
        if self._kept_refusals > max(REFUSALS, self.most // 4):
            transport.abort()

    def _refusal_over(self) -> None:
        self._kept_refusals -= 1

    def _make_room(self, others: MutableSet[Any], address: str | None) -> int:
        before = asyncio.get_running_loop().time() - IDLE_S
        idle = [
            (since, id(each), each)
            for each in others
            if (since := each.idle_since) is not None and since <= before and address in (None, each.address)
        ]
        longest = heapq.nsmallest(max(1, self.most // ROOM_SHARE), idle)
        for _, _, each in longest:
            others.discard(each)  # its end is told in a later turn, and others may come in this one
            each.evict()
        return len(longest)

    def _tell(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TELL_S, self._tell_rest)
            self._told(self._figures())

    def _tell_rest(self) -> None:
        self._timer = None
        if self._closed or self._refused:
            self._tell()

    def _figures(self) -> Crowding:
        found = Crowding(self.most, self._closed, self._refused, self._address)
        self._closed = self._refused = 0
        return found


class _Refusal(asyncio.Protocol):
    """What a connection that found no room speaks from then on."""

    def __init__(self, transport: asyncio.Transport, over: Callable[[], object]) -> None:
        self._transport = transport
        self._over = over
        self._timer = asyncio.get_running_loop().call_later(REFUSAL_S, transport.close)

    def data_received(self, _data: bytes) -> None:
        """It has asked."""
        if not self._transport.is_closing():
            self._transport.write(_ANSWER)
            self._transport.close()

    def connection_lost(self, _exc: Exception | None) -> None:
        """It is over, whoever ended it."""
        self._timer.cancel()
        self._over()

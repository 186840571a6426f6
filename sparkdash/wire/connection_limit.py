"""Limit of open connections, and the choice of which one closes when there is no room for a new client.

The longest idle connection closes first: its client opens another with its next request. A client without room gets
an answer, and is never dropped in silence. A request costs nothing here: idle connections are looked for when room is
needed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, MutableSet
from typing import Any, NamedTuple

ROOM_SHARE = 16
"""Share of the limit (a sixteenth) that is freed at once: a look through 32,000 connections takes milliseconds, and a
burst must not cause one for each of its clients.
"""
CLIENT_SHARE = 2
"""Share of all connections for one address beyond this box. Clients of this box share loopback, and cannot be told
apart.
"""
REFUSAL_S = 2.0
"""Seconds for which a refused connection is kept for its request: a reset would lose an answer sent before the
request.
"""
REFUSALS = 16
"""Refused connections kept at once, or a quarter of the limit; further ones are closed as they come."""
IDLE_S = 0.1
"""Seconds without use after which a connection counts as idle: earlier, its next request may be in the socket
already.
"""
REPORT_S = 60.0
"""Least number of seconds between two reports."""

_BODY = (
    b'{"error":{"message":"All connections of sparkdash are taken. Try again soon.",'
    b'"type":"server_error","param":null,"code":"too_many_connections",'
    b'"hint":"Raise the limit of open files: LimitNOFILE= of the service, or `ulimit -n`.","src":"sparkdash"}}'
)
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 2\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class Crowding(NamedTuple):
    """Report that the limit was met."""

    most: int
    closed: int
    """Idle connections that were closed for new clients since the last report."""
    refused: int
    """New clients that found no room since the last report."""
    address: str | None
    """Address of the client that last met its own limit; None: the limit of all was met."""


class ConnectionLimit:
    """Limit of connections of one server. `report` is called when the limit is met, at most once in REPORT_S."""

    def __init__(self, most: int, report: Callable[[Crowding], object]) -> None:
        self.most = most
        self._report = report
        self._by_address: Counter[str] = Counter()
        self._closed = self._refused = self._kept_refusals = 0
        self._address: str | None = None
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, address: str | None, others: MutableSet[Any]) -> bool:
        """Admit a client, closing idle ClientConnections of `others` where necessary. False: there is no room.

        `address`: the client's, where it is beyond this box.
        """
        own_limit = address is not None and self._by_address[address] >= max(1, self.most // CLIENT_SHARE)
        if own_limit or len(others) >= self.most:
            made = self._make_room(others, address if own_limit else None)
            self._address = address if own_limit else None
            self._closed += made
            self._refused += not made
            self._report_soon()
            if not made:
                return False
        if address is not None:
            self._by_address[address] += 1
        return True

    def leave(self, address: str | None) -> None:
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def refuse(self, transport: asyncio.Transport) -> None:
        """Answer a refused client once its request has come, and close."""
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
            others.discard(each)  # its end is reported in a later turn, and others may come in this one
            each.evict()
        return len(longest)

    def _report_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPORT_S, self._report_rest)
            self._report(self._figures())

    def _report_rest(self) -> None:
        self._timer = None
        if self._closed or self._refused:
            self._report_soon()

    def _figures(self) -> Crowding:
        found = Crowding(self.most, self._closed, self._refused, self._address)
        self._closed = self._refused = 0
        return found


class _Refusal(asyncio.Protocol):
    """Protocol of a refused connection: waits for the request, answers with the refusal, closes."""

    def __init__(self, transport: asyncio.Transport, over: Callable[[], object]) -> None:
        self._transport = transport
        self._over = over
        self._timer = asyncio.get_running_loop().call_later(REFUSAL_S, transport.close)

    def data_received(self, _data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(_ANSWER)
            self._transport.close()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._timer.cancel()
        self._over()

"""Half-closed connections: whether a client that sends no more still waits for its answer.

Owns: how that is found out. TCP looks the same for a client that has only ended its own half (`nc -N`) and for one that
has left. What is written to the second is answered with a reset, and the write after that fails. An interim status (RFC
9110 section 15.2) may be written before any answer, and clients skip it. HTTP/1.0 has none: there the answer must come
soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

FIRST_S = 0.02
"""Seconds until the first probe, doubled from one to the next: on loopback a client that left is known after 60 ms."""
LONGEST_S = 5.0
OLD_S = 1.0
"""Seconds for which an HTTP/1.0 client's answer is waited for."""
INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"


class HalfClosed:
    """Repeated probe of a half-closed connection, until `stop`.

    `waits`: whether no byte of the answer is out; None: HTTP/1.0, which cannot be probed.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, waits: Callable[[], bool | None]
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._waits = waits
        self._pause_s = FIRST_S
        self._old_until = loop.time() + OLD_S
        self._timer = loop.call_later(FIRST_S, self._ask)

    def stop(self) -> None:
        """Stop probing."""
        self._timer.cancel()

    def _ask(self) -> None:
        waits = self._waits()
        if waits:
            self._transport.write(INTERIM)
        elif waits is None and self._loop.time() > self._old_until:
            self._transport.close()
            return
        self._pause_s = min(self._pause_s * 2, LONGEST_S)
        self._timer = self._loop.call_later(self._pause_s, self._ask)

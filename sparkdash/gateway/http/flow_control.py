"""FlowControl: joins a source of bytes to a client's connection, and cuts a client that takes nothing.

Owns: pausing and resuming the source, and the one timer of a client that stands still. Must not know engines or leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from sparkdash.gateway.http.channel import ClientChannel


class ClientGone(Exception):  # noqa: N818 - an event, not an error
    """The client closed its connection."""


class ClientStuck(ClientGone):
    """The client took no bytes for too long, and its connection was cut."""


class PausableSource(Protocol):
    """Source of an answer's bytes."""

    def pause(self) -> None:
        """Stop delivering bytes for now."""
        ...

    def resume(self) -> None:
        """Deliver bytes again."""
        ...


class FlowControl:
    """Context manager around an answer's body; entering it returns the function that writes a piece at once.

    The source is paused while the client takes nothing. A client that takes nothing for `limit_s` (0: never) is cut,
    and `on_client_stuck` is called. The timer runs only while the client takes nothing.
    """

    __slots__ = ("_channel", "_limit_s", "_on_client_stuck", "_source", "_timer", "is_full", "resumed_at")

    def __init__(
        self,
        channel: ClientChannel,
        source: PausableSource,
        limit_s: float,
        on_client_stuck: Callable[[ClientStuck], object],
    ) -> None:
        self._channel = channel
        self._source = source
        self._limit_s = limit_s
        self._on_client_stuck = on_client_stuck
        self._timer: asyncio.TimerHandle | None = None
        self.is_full = False
        """Whether the client currently takes no bytes."""
        self.resumed_at = 0.0
        """Last time at which the client took bytes again, by the loop's clock."""

    def __enter__(self) -> Callable[[bytes], None]:
        self._channel.flow(self._full, self._room)
        return self._channel.write

    def __exit__(self, *_: object) -> None:
        self._limit_s = 0.0
        self._stop_timer()

    def _full(self) -> None:
        self._source.pause()
        self.is_full = True
        if self._limit_s and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limit_s, self._cut)

    def _room(self) -> None:
        self._stop_timer()
        self.is_full, self.resumed_at = False, asyncio.get_running_loop().time()
        self._source.resume()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut(self) -> None:
        self._channel.cut()
        self._on_client_stuck(ClientStuck())

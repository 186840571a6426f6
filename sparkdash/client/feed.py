"""Feed: the daemon's state as it changes, across lost connections.

Rule 1: what comes out can be folded with `domain.state.apply` without a gap; on a gap the feed fetches a snapshot.
Rule 2: a lost link is reported once, as None; the next item that is not None means that it is back.
Rule 3: only a daemon that may come back is waited for; any other error is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from sparkdash.client.client import AsyncClient
from sparkdash.client.envelope import LINK_LOST
from sparkdash.domain.event import Event, SampleTaken
from sparkdash.domain.state import Snapshot, apply
from sparkdash.errors import DaemonError

Pause = Callable[[float], Awaitable[None]]

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 5.0
"""Seconds between two attempts, doubled from the first. A person who restarts the daemon looks at the screen within
seconds.
"""


class _FeedPosition:
    """Position of this reader, and the daemon whose journal it is in."""

    def __init__(self) -> None:
        self.seq: int | None = None
        self._life: tuple[int, float] | None = None

    def take(self, item: Snapshot | Event) -> bool:
        """Move on to `item`; False when something is missing before it."""
        if isinstance(item, Snapshot):
            self._life = (item.daemon.pid, item.daemon.started_at)
        elif self.seq is None or (item.seq != self.seq + 1 and not isinstance(item.fact, SampleTaken)):
            self.seq = None
            return False
        self.seq = item.seq
        return True

    async def confirm(self, client: AsyncClient) -> None:
        """Forget the position when another daemon has taken over: its numbers mean other events."""
        if self.seq is None:
            return
        daemon = (await client.state()).daemon
        if (daemon.pid, daemon.started_at) != self._life:
            self.seq = None


async def follow_feed(
    client: AsyncClient, *, pause: Pause = asyncio.sleep
) -> AsyncGenerator[Snapshot | Event | None, None]:
    """Yield a snapshot, then events, for ever; None when the link is lost, also when there was none at first.

    After None the feed goes on where it was (events only) if the daemon still knows, else with a snapshot. `pause`
    waits between attempts.

    Raises:
        DaemonError: what answers is no daemon, or one of another version.
    """
    position, delay, lost_reported = _FeedPosition(), FIRST_DELAY_S, False
    while True:
        try:
            async with aclosing(_once(client, position)) as items:
                async for item in items:
                    delay, lost_reported = FIRST_DELAY_S, False
                    yield item
            lost = position.seq is not None
        except DaemonError as error:
            if error.code not in LINK_LOST:
                raise
            lost = True
        if lost and not lost_reported:
            lost_reported = True
            yield None
        await pause(delay)
        delay = min(delay * 2, LONGEST_DELAY_S)


async def _once(client: AsyncClient, position: _FeedPosition) -> AsyncGenerator[Snapshot | Event, None]:
    """Yield the items of one connection, until the daemon ends it or an event is missing."""
    await position.confirm(client)
    async with aclosing(client.events(since=position.seq)) as items:
        async for item in items:
            if not position.take(item):
                return
            yield item


async def follow_state(client: AsyncClient, *, pause: Pause = asyncio.sleep) -> AsyncGenerator[Snapshot | None, None]:
    """Yield the whole state after every event of the feed; None when the link is lost."""
    world: Snapshot | None = None
    async with aclosing(follow_feed(client, pause=pause)) as items:
        async for item in items:
            if isinstance(item, Event) and world is not None:
                world = apply(world, item)
            elif isinstance(item, Snapshot):
                world = item
            yield None if item is None else world

"""Feed: the bus as server-sent events; a slow reader's own queue overflows, and a snapshot resyncs it."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from sparkdash.bus import JOURNAL, Bus
from sparkdash.domain.event import EVENT, Event
from sparkdash.domain.state import Snapshot
from sparkdash.gateway.http.channel import ClientGone
from sparkdash.gateway.http.exchange import STREAM_HEADERS, Exchange
from sparkdash.gateway.protocol.frames import COMMENT

HEARTBEAT_S = 15.0
"""Clients take three missed ones for a dead link."""


class EventEncoder:
    """Encodes events as frames, each once for any number of listeners with the same view."""

    def __init__(self) -> None:
        self._facts: dict[int, bytes] = {}
        self._snapshot: tuple[int, bytes] = (-1, b"")

    def __call__(self, item: Event | Snapshot) -> bytes:
        if isinstance(item, Snapshot):
            if self._snapshot[0] != item.seq:
                self._snapshot = (item.seq, _frame(b"snapshot", item.seq, item.model_dump_json().encode()))
            return self._snapshot[1]
        found = self._facts.get(item.seq)
        if found is None:
            found = self._facts[item.seq] = _frame(b"fact", item.seq, EVENT.dump_json(item))
            if len(self._facts) > JOURNAL:
                del self._facts[next(iter(self._facts))]
        return found


def _frame(name: bytes, seq: int, body: bytes) -> bytes:
    return b"event: %b\nid: %d\ndata: %b\n\n" % (name, seq, body)


async def serve_feed(
    bus: Bus, encode: EventEncoder, exchange: Exchange, since: int | None, *, holds: Callable[[], bool]
) -> None:
    """Send the feed until the client leaves, the bus ends, or an event comes after the client's key no longer `holds`.

    The feed begins after event `since` if the journal still has what followed, else with a snapshot.
    """
    subscription = bus.subscribe(since)
    try:
        async with asyncio.TaskGroup() as group:
            client = group.create_task(exchange.client_gone(), name="client")
            exchange.start(200, STREAM_HEADERS)
            await exchange.send(COMMENT)
            heart = group.create_task(_beat(exchange), name="heartbeat")
            async with aclosing(subscription.__aiter__()) as items:
                async for item in items:
                    if not holds():
                        break
                    await exchange.send(encode(item))
            heart.cancel()
            await exchange.finish()
            client.cancel()
    except* ClientGone:
        pass
    finally:
        subscription.leave()


async def _beat(exchange: Exchange) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        await exchange.send(COMMENT)

"""The past in the daemon: what it hands out of the time before its start, and what it records.

Owns: which facts go into the history. Must not know how they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkdash.bus import Bus
from sparkdash.domain.event import Event, Fact, Notice, SampleTaken
from sparkdash.domain.state import Snapshot
from sparkdash.store import Store


def restore_past(bus: Bus, store: Store) -> None:
    """Put the requests, swaps, notices and speeds of earlier daemons into the first snapshot."""
    past = store.past

    def recall(snapshot: Snapshot) -> Snapshot:
        return snapshot.replace(
            recent=past.requests,
            swaps=past.swaps,
            figures=past.figures,
            notices=(*snapshot.notices, *past.notices),
        )

    bus.restore(recall)


def recording_samples(publish: Callable[[Fact], object], store: Store) -> Callable[[Fact], object]:
    """Return a function that publishes a fact, and records the figures of samples."""

    def publish_and_record(fact: Fact) -> object:
        published = publish(fact)
        if isinstance(fact, SampleTaken):
            store.record_sample(fact.sample)
        return published

    return publish_and_record


async def record_notices(bus: Bus, store: Store) -> None:
    """Record the notices of this daemon until the bus ends, those before this call included."""
    subscription = bus.subscribe(samples=False, requests=False)
    last = bus.snapshot.daemon.started_at
    try:
        async for item in subscription:
            for notice in _notices(item):
                if notice.at is not None and notice.at > last:
                    last = notice.at
                    store.record_notice(notice)
    finally:
        subscription.leave()


def _notices(item: Event | Snapshot) -> Sequence[Notice]:
    """Return the notices of an item, oldest first, with their times."""
    if isinstance(item, Snapshot):
        return item.notices[::-1]
    return [item.fact.replace(at=item.at)] if isinstance(item.fact, Notice) else []

"""The past in the daemon: what it hands out of the time before its start, and what it records.

Owns: which facts go into the history. Must not know how they are stored.
"""

from __future__ import annotations

from collections.abc import Callable

from sparkdash.bus import Bus
from sparkdash.domain.event import Fact, SampleTaken
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


def record_notices(bus: Bus, store: Store) -> None:
    """Record this daemon's notices before anybody sees them, and those that are in the snapshot already."""
    for notice in bus.snapshot.notices[::-1]:
        if notice.at is not None and notice.at > bus.snapshot.daemon.started_at:
            store.record_notice(notice)
    bus.on_notice = store.record_notice

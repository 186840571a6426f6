"""Samples, notices and ended requests on their way from the bus to the store, and back at a start."""

from collections.abc import Callable

from sparkdash.bus import Bus
from sparkdash.domain.event import Fact, SampleTaken
from sparkdash.domain.request import Request
from sparkdash.domain.state import Snapshot
from sparkdash.log import LOG
from sparkdash.store import Store


def restore_past(bus: Bus, store: Store) -> None:
    past = store.past

    def recall(snapshot: Snapshot) -> Snapshot:
        notices = (*snapshot.notices, *past.notices)
        return snapshot.replace(recent=past.requests, swaps=past.swaps, figures=past.figures, notices=notices)

    bus.restore(recall)


def recording_samples(publish: Callable[[Fact], object], store: Store) -> Callable[[Fact], object]:
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


def record_in(*recorders: Callable[[Request], object]) -> Callable[[Request], None]:
    """Return a function that tells every recorder of an ended request; one that fails costs no other."""

    def record(request: Request) -> None:
        for record in recorders:
            try:
                record(request)
            except Exception:
                LOG.exception("a request was not recorded", request=request.id, record=record.__qualname__)

    return record

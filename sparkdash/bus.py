"""Bus: the journal of facts, the snapshot they add up to, and the listeners.

Rule 1: `publish` never waits and never fails because of a listener.
Rule 2: facts queue per listener, bounded; a listener that overflows gets a snapshot instead of a gap.
Rule 3: a listener that is behind gets only the latest sample.
Rule 4: a notice is handed to `on_notice` before anybody is told of it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable

from sparkdash.domain.event import Event, Fact, Notice, RequestChanged, SampleTaken
from sparkdash.domain.state import Snapshot, replay

JOURNAL = 256
"""Number of events that are kept for readers that come back with `since`; a sample takes 8 kB."""
PENDING = 256
"""Number of facts that may wait to be added up."""
QUEUE = 512
"""Number of facts that one listener may be behind."""
POLLED_S = 15.0
"""Seconds for which a poll of the snapshot counts as a listener: scripts that poll watch, too."""


class Subscription:
    """Events for one listener: each item is an Event, or a Snapshot when events were lost. Ends with the bus."""

    def __init__(self, bus: "Bus", first: list[Event] | None, *, samples: bool) -> None:
        self._bus = bus
        self.samples = samples
        self._queue: deque[Event] = deque(first or ())
        self._resync = first is None
        self._ended = False
        self._wake = asyncio.Event()
        self._wake.set()

    def offer(self, event: Event) -> None:
        if self._ended or (not self.samples and isinstance(event.fact, SampleTaken)):
            return
        if isinstance(event.fact, SampleTaken) and self._queue and isinstance(self._queue[-1].fact, SampleTaken):
            self._queue[-1] = event
        elif len(self._queue) >= QUEUE:
            self._queue.clear()
            self._resync = True
        else:
            self._queue.append(event)
        self._wake.set()

    def leave(self) -> None:
        self._bus.unsubscribe(self)

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    async def __aiter__(self) -> AsyncGenerator[Event | Snapshot, None]:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._resync:
                self._resync = False
                self._queue.clear()
                yield self._bus.snapshot
            while self._queue and not self._resync:
                yield self._queue.popleft()
            if self._resync:
                self._wake.set()
            elif self._ended:
                return


class Bus:
    """Owned by the daemon's loop; not thread-safe."""

    def __init__(self, snapshot: Snapshot, clock: Callable[[], float]) -> None:
        self._known = snapshot
        self._pending: list[Event] = []
        """Events that `_known` does not contain yet."""
        self._seq = snapshot.seq
        self._clock = clock
        self._journal: deque[Event] = deque(maxlen=JOURNAL)
        self._listeners: set[Subscription] = set()
        self._told_of_requests: set[Subscription] = set()
        """Listeners that want to know of each request."""
        self._polled_at: float | None = None
        self._ended = False
        self.on_notice: Callable[[Notice], object] | None = None
        """Takes each notice with its time, at once; it must not raise."""
        self.watched = asyncio.Event()
        """Set while there is a telemetry listener; tasks that rest without one wait for it."""

    @property
    def snapshot(self) -> Snapshot:
        """State after all facts, added up when read: a busy gateway publishes far more often than anybody reads."""
        if self._pending:
            self._fold()
        return self._known

    def restore(self, recall: Callable[[Snapshot], Snapshot]) -> None:
        """Complete the first snapshot by what is known of the time before; only while nobody listens."""
        self._known = recall(self.snapshot)

    def _fold(self) -> None:
        self._known = replay(self._known, self._pending)
        self._pending.clear()

    def publish(self, fact: Fact) -> Event:
        self._seq += 1
        event = Event(self._seq, self._clock(), fact)
        self._journal.append(event)
        self._pending.append(event)
        listeners = self._told_of_requests
        if type(fact) is not RequestChanged:
            listeners = self._listeners
            if isinstance(fact, Notice) and self.on_notice is not None:
                self.on_notice(fact.replace(at=event.at))
        if len(self._pending) >= PENDING:
            self._fold()
        for listener in listeners:
            listener.offer(event)
        return event

    def subscribe(self, since: int | None = None, *, samples: bool = True, requests: bool = True) -> Subscription:
        """Add a listener; it begins with a snapshot, or after event `since` if the journal has all later ones."""
        subscription = Subscription(self, self._missed(since), samples=samples)
        self._listeners.add(subscription)
        if requests:
            self._told_of_requests.add(subscription)
        self._count()
        if self._ended:
            subscription.end()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._listeners.discard(subscription)
        self._told_of_requests.discard(subscription)
        self._count()

    def end(self) -> None:
        """End all listeners after what was published; later facts reach nobody."""
        self._ended = True
        for listener in self._listeners:
            listener.end()

    def note_poll(self) -> None:
        """Count a poll of the snapshot as a listener for POLLED_S."""
        self._polled_at = self._clock()

    @property
    def listeners(self) -> int:
        """Number of telemetry listeners; all pollers count as one. Telemetry ticks slower without any."""
        polled = self._polled_at is not None and 0 <= self._clock() - self._polled_at < POLLED_S
        return sum(listener.samples for listener in self._listeners) + polled

    def _count(self) -> None:
        if any(listener.samples for listener in self._listeners):
            self.watched.set()
        else:
            self.watched.clear()

    def _missed(self, since: int | None) -> list[Event] | None:
        if since is None or since > self._seq:
            return None
        oldest = self._journal[0].seq if self._journal else self._seq + 1
        if since + 1 < oldest:
            return None
        return [event for event in self._journal if event.seq > since]

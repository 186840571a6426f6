"""The bus's three rules, for any order of publishing and reading."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkdash.bus import JOURNAL, QUEUE, Bus
from sparkdash.domain.event import Event, Fact, Level, Notice, RequestChanged, SampleTaken
from sparkdash.domain.metric import Sample
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import DaemonInfo, Snapshot, apply

INFO = DaemonInfo(version="0", host="h", pid=1, started_at=0, runtime="none", url="u")


def new_bus(seq: int = 0) -> Bus:
    return Bus(Snapshot(seq=seq, at=0, daemon=INFO), lambda: 5.0)


def notice(text: str = "n") -> Fact:
    return Notice(level=Level.INFO, code="c", text=text)


def sample(at: float = 1.0) -> Fact:
    return SampleTaken(sample=Sample(at=at))


class Reader:
    """A listener that folds what it gets; it reads only when told to, as a slow client would."""

    def __init__(self, bus: Bus, since: int | None = None, world: Snapshot | None = None) -> None:
        self.subscription = bus.subscribe(since)
        self.items = self.subscription.__aiter__()
        self.world = world
        self.got: list[Event | Snapshot] = []

    async def read(self) -> None:
        """Take one item. Folding raises where an event is missing."""
        item = await asyncio.wait_for(anext(self.items), 60)
        self.got.append(item)
        self.world = item if isinstance(item, Snapshot) else apply(self.world or pytest.fail("no world"), item)


def test_publish_numbers_and_dates_every_fact() -> None:
    bus = new_bus(seq=41)
    event = bus.publish(notice())
    (told,) = bus.snapshot.notices
    assert (event.seq, event.at, bus.snapshot.seq, told.at) == (42, 5.0, 42, 5.0), "a notice keeps its time"
    assert told.model_copy(update={"at": None}) == event.fact


async def reading(bus: Bus) -> Reader:
    """A reader that has the present."""
    reader = Reader(bus)
    await reader.read()
    return reader


async def test_an_overflow_is_a_resync_not_a_gap() -> None:
    bus = new_bus()
    reader = await reading(bus)
    for _ in range(QUEUE + 1):
        bus.publish(notice())
    await reader.read()
    assert isinstance(reader.got[-1], Snapshot)
    bus.publish(notice())
    await reader.read()
    assert reader.world == bus.snapshot


async def test_of_samples_only_the_newest_waits() -> None:
    bus = new_bus()
    reader = await reading(bus)
    for at in range(3 * QUEUE):
        bus.publish(sample(float(at)))
    await reader.read()
    event = reader.got[-1]
    assert isinstance(event, Event)
    assert isinstance(event.fact, SampleTaken)
    assert event.fact.sample.at == 3 * QUEUE - 1


@pytest.mark.parametrize(("since", "first"), [(0, Snapshot), (JOURNAL, Event), (None, Snapshot), (10**9, Snapshot)])
async def test_since(since: int | None, first: type) -> None:
    bus = new_bus()
    for _ in range(JOURNAL + 5):
        bus.publish(notice())
    reader = Reader(bus, since, world=bus.snapshot.model_copy(update={"seq": since}))
    await reader.read()
    assert isinstance(reader.got[0], first)


def test_an_empty_journal_knows_nothing_of_the_past() -> None:
    """A daemon that starts at a number other than 0 does not pretend to have what came before."""
    bus = new_bus(seq=1000)
    assert bus._missed(999) is None
    assert bus._missed(1000) == []


async def test_nobody_reading_costs_nobody_anything() -> None:
    bus = new_bus()
    gone, stays = Reader(bus), Reader(bus)
    assert bus.listeners == 2
    bus.unsubscribe(gone.subscription)
    bus.unsubscribe(gone.subscription)
    for _ in range(10 * QUEUE):
        bus.publish(notice())
    assert bus.listeners == 1
    await stays.read()
    assert stays.world == bus.snapshot


def test_whoever_polls_counts_as_a_listener_for_a_while() -> None:
    """A script that asks for the snapshot every few seconds watches, and has stopped to once it has not asked for 15 s."""
    now = [1000.0]
    bus = Bus(new_bus().snapshot, lambda: now[0])
    assert bus.listeners == 0
    seen = []
    for later in (0.0, 14.0, 14.0, 15.0, 60.0):
        now[0] += later
        seen.append(bus.listeners)
        if later < 15.0:
            bus.note_poll()
    assert seen == [0, 1, 1, 0, 0]
    bus.note_poll()
    now[0] -= 3600.0
    assert bus.listeners == 0, "a clock that was set back keeps nobody watching for an hour"


STEPS: Any = st.lists(st.sampled_from(["fact", "sample", "read", "burst"]), max_size=60)


@given(STEPS)
@settings(max_examples=100, deadline=None)
async def test_what_is_read_always_adds_up(steps: list[str]) -> None:
    bus = new_bus()
    reader = await reading(bus)
    for step in steps:
        match step:
            case "fact":
                bus.publish(notice())
            case "sample":
                bus.publish(sample())
            case "burst":
                for _ in range(QUEUE):
                    bus.publish(notice())
            case "read" if reader.world != bus.snapshot:
                await reader.read()
    while reader.world != bus.snapshot:
        await reader.read()
    assert reader.world == bus.snapshot


def row(name: str, state: RequestState) -> Fact:
    rate = 10.0 if state is RequestState.DONE else None
    request = Request(
        id=name, client="c", profile="p", route="/v1", state=state, started_at=1.0, finished_at=2.0, decode_tok_s=rate
    )
    return RequestChanged(request=request)


@settings(max_examples=50)
@given(st.lists(st.none() | st.tuples(st.sampled_from("abc"), st.sampled_from(RequestState)), max_size=12))
def test_facts_added_up_late_are_the_same_world(facts: list[tuple[str, RequestState] | None]) -> None:
    bus = new_bus()
    world = bus.snapshot
    for fact in facts:
        world = apply(world, bus.publish(notice() if fact is None else row(*fact)))
    assert bus.snapshot == world

"""The feed through broken links, gaps and new daemons."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from fake_daemon import FakeDaemon, engine, sample, swap

from sparkdash.client.client import AsyncClient
from sparkdash.client.follow import FIRST_DELAY_S, LONGEST_DELAY_S, follow_feed, state_changes
from sparkdash.domain.event import EngineChanged, Event, Level, Notice, SampleTaken, SwapChanged
from sparkdash.domain.state import Snapshot
from sparkdash.errors import DaemonError


class Pauses:
    """Stands in for sleeping between attempts, and writes down how long it would have been."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


@pytest.fixture
async def client(daemon: FakeDaemon) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(daemon.url) as made:
        yield made


def notice(text: str) -> Notice:
    return Notice(level=Level.INFO, code="test", text=text)


async def test_a_snapshot_comes_first_and_then_every_fact(daemon: FakeDaemon, client: AsyncClient) -> None:
    daemon.set(engines={"a": engine("a")})
    async with aclosing(follow_feed(client)) as items:
        assert await anext(items) == daemon.bus.snapshot
        began = SwapChanged(swap=swap("b"))
        daemon.publish(notice("one"), began)
        first, second = await anext(items), await anext(items)
    assert isinstance(first, Event)
    assert isinstance(second, Event)
    assert (first.fact, second.fact, second.seq) == (notice("one"), began, 2)


async def test_a_lost_link_is_told_once_and_resumed_without_a_gap(daemon: FakeDaemon, client: AsyncClient) -> None:
    async with aclosing(follow_feed(client, pause=Pauses())) as items:
        assert isinstance(await anext(items), Snapshot)
        daemon.publish(notice("seen"))
        await anext(items)
        daemon.drop()
        assert await anext(items) is None
        daemon.publish(notice("missed"))
        back = await anext(items)
    assert isinstance(back, Event)
    assert back.fact == notice("missed")
    assert daemon.since == [None, 1]


async def test_another_daemon_means_a_new_snapshot(daemon: FakeDaemon, client: AsyncClient) -> None:
    """Numbers of another life are other events, also when they have got further than ours."""
    async with aclosing(follow_feed(client, pause=Pauses())) as items:
        await anext(items)
        daemon.be_born(pid=4712)
        daemon.publish(notice("one"), notice("two"))
        daemon.drop()
        assert await anext(items) is None
        fresh = await anext(items)
    assert isinstance(fresh, Snapshot)
    assert (fresh.daemon.pid, fresh.seq) == (4712, 2)


async def test_a_gap_brings_a_snapshot(daemon: FakeDaemon, client: AsyncClient) -> None:
    """An event that does not follow is never handed on, so that folding cannot fail."""
    async with aclosing(state_changes(client)) as worlds:
        await anext(worlds)
        daemon.set(seq=10)
        daemon.publish(EngineChanged(engine=engine("a")))
        world = await anext(worlds)
    assert (world.seq, set(world.engines)) == (11, {"a"})


async def test_skipped_samples_are_no_gap(daemon: FakeDaemon, client: AsyncClient) -> None:
    """Only the latest sample counts, and facts after it follow its number."""
    async with aclosing(state_changes(client)) as worlds:
        await anext(worlds)
        daemon.set(seq=10)
        daemon.publish(SampleTaken(sample=sample(at=5.0)), notice("after"))
        await anext(worlds)
        world = await anext(worlds)
    assert world.sample == sample(at=5.0)
    assert [n.text for n in world.notices] == ["after"]
    assert daemon.since == [None]


async def test_a_daemon_that_is_not_there_is_waited_for_longer_and_longer(
    daemon: FakeDaemon, unused_tcp_port: int
) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    attempts: list[float] = []

    async def pause(seconds: float) -> None:
        attempts.append(seconds)
        if len(attempts) == 7:
            client._http.base_url = daemon.url

    async with AsyncClient(url) as client, aclosing(follow_feed(client, pause=pause)) as items:
        assert await anext(items) is None
        assert isinstance(await anext(items), Snapshot)
    assert attempts == [FIRST_DELAY_S * 2**i for i in range(5)] + [LONGEST_DELAY_S] * 2


async def test_another_program_is_not_waited_for(daemon: FakeDaemon, client: AsyncClient) -> None:
    daemon.errors["/api/events"] = (404, {"message": "no", "code": "daemon_version"})
    with pytest.raises(DaemonError, match="no"):
        await anext(follow_feed(client, pause=Pauses()))


async def test_leaving_the_feed_leaves_the_daemon(daemon: FakeDaemon, client: AsyncClient) -> None:
    """A closed feed is a closed connection: the daemon does not tick for readers that left."""
    async with aclosing(follow_feed(client)) as items:
        await anext(items)
        assert daemon.bus.listeners == 1
    await client.aclose()
    daemon.until_nobody_listens()
    assert daemon.bus.listeners == 0

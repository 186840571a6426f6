"""The feed: a snapshot, then every fact, for as many as listen and however slowly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparkdash.domain.event import EVENT, Event, Level, Notice, SampleTaken
from sparkdash.domain.memory import Holder, Holding, MemoryAccount
from sparkdash.domain.metric import Sample
from sparkdash.domain.state import Snapshot, apply
from sparkdash.gateway.http import event_feed


@asynccontextmanager
async def listening(house: Any, query: str = "", **headers: str) -> AsyncIterator[AsyncIterator[tuple[str, int, Any]]]:
    """One listener's frames as (name, id, value); comments come as ("", 0, None)."""

    async def frames(reply: Any) -> AsyncIterator[tuple[str, int, Any]]:
        rest = b""
        async for chunk in reply.aiter_raw():
            *whole, rest = (rest + chunk).split(b"\n\n")
            for frame in whole:
                yield read(frame)

    async with house.client.stream("GET", "/api/events" + query, headers=headers) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        yield frames(reply)


def read(frame: bytes) -> tuple[str, int, Any]:
    if frame.startswith(b":"):
        return "", 0, None
    name, number, data = (line.split(b": ", 1)[1] for line in frame.split(b"\n"))
    value = Snapshot.model_validate_json(data) if name == b"snapshot" else EVENT.validate_json(data)
    return name.decode(), int(number), value


async def next_item(frames: AsyncIterator[tuple[str, int, Any]]) -> tuple[str, int, Any]:
    async for frame in frames:
        if frame[0]:
            return frame
    raise AssertionError


def notice(text: str) -> Notice:
    return Notice(level=Level.INFO, code="c", text=text)


async def test_a_newcomer_gets_a_snapshot_and_then_facts(house: Any) -> None:
    async with listening(house) as frames:
        name, number, world = await next_item(frames)
        assert (name, number, world) == ("snapshot", house.bus.snapshot.seq, house.bus.snapshot)
        for text in ("one", "two"):
            house.bus.publish(notice(text))
            name, number, event = await next_item(frames)
            world = apply(world, event)
            assert (name, number) == ("fact", event.seq)
        assert world == house.bus.snapshot


async def test_a_reader_that_comes_back_misses_nothing(house: Any) -> None:
    """`since` and Last-Event-ID go on after that event; a number from another life starts anew."""
    seq = house.bus.snapshot.seq
    for text in ("a", "b"):
        house.bus.publish(notice(text))
    async with listening(house, f"?since={seq}") as by_query:
        assert [(await next_item(by_query))[1] for _ in range(2)] == [seq + 1, seq + 2]
    async with listening(house, last_event_id=str(seq + 1)) as frames:
        assert (await next_item(frames))[0] == "snapshot"  # httpx spells the header last_event_id: it is not ours
    async with listening(house, **{"Last-Event-ID": "9" * 5000}) as by_nonsense:
        assert (await next_item(by_nonsense))[0] == "snapshot"
    async with listening(house, **{"Last-Event-ID": str(seq + 1)}) as by_header:
        assert (await next_item(by_header))[:2] == ("fact", seq + 2)
    async with listening(house, "?since=99999999") as stranger:
        assert (await next_item(stranger))[0] == "snapshot"


async def test_a_listener_that_leaves_is_forgotten(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Telemetry ticks slower when nobody listens."""
    forgotten, unsubscribe = asyncio.Event(), house.bus.unsubscribe
    monkeypatch.setattr(house.bus, "unsubscribe", lambda s: (unsubscribe(s), forgotten.set()))
    async with listening(house) as frames:
        await next_item(frames)
        assert house.bus.listeners == 1
    async with listening(house) as frames:
        await next_item(frames)
        await asyncio.wait_for(forgotten.wait(), 60)
        assert house.bus.listeners == 1


async def test_a_slow_listener_is_resynced_and_slows_nobody(house: Any) -> None:
    async with listening(house) as slow, listening(house) as fast:
        _, start, _ = await next_item(fast)
        text = "x" * 40_000
        for _ in range(900):
            house.bus.publish(notice(text))
            while (frame := await next_item(fast))[1] < house.bus.snapshot.seq:
                assert frame[0] == "fact"
        names = []
        world: Any = None
        while world is None or world.seq < house.bus.snapshot.seq:
            name, _, item = await next_item(slow)
            names.append(name)
            world = apply(world, item) if isinstance(item, Event) else item
        assert names.count("snapshot") >= 2
        assert len(names) < 900
        assert world.seq == house.bus.snapshot.seq == start + 900


async def test_silence_is_broken_by_a_comment(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a reader can tell a quiet daemon from a dead link."""
    monkeypatch.setattr(event_feed, "HEARTBEAT_S", 0.01)
    async with listening(house) as frames:
        await next_item(frames)
        assert await anext(frames) == ("", 0, None)
        assert await anext(frames) == ("", 0, None)


async def test_a_daemon_that_ends_ends_the_feed(house: Any) -> None:
    """Published facts are told, of samples the newest; the answer is whole, and a later client gets the last world and its end."""
    async with listening(house) as frames:
        await next_item(frames)
        for at in (1.0, 2.0):
            house.bus.publish(SampleTaken(sample=Sample(at=at)))
        house.bus.publish(notice("the last"))
        house.bus.end()
        house.bus.publish(notice("nobody hears it"))
        sample, last = [value.fact async for name, _, value in frames if name]
        assert (sample.sample.at, last.text) == (2.0, "the last")
    async with listening(house) as frames:
        assert [name async for name, _, _ in frames if name] == ["snapshot"]


NAME = "web\x1b[2Jui"
FOUND = MemoryAccount(at=1.0, total=10, holdings=(Holding(kind=Holder.CONTAINER, name=NAME, bytes=10),))


async def test_the_account_is_told_as_it_is(house: Any) -> None:
    """Names come from outside and stay what they are; JSON escapes what would steer a terminal."""

    async def memory() -> MemoryAccount:
        return FOUND

    house.rebuild(memory=memory)
    answer = await house.client.get("/api/memory")
    assert MemoryAccount.model_validate_json(answer.content) == FOUND
    assert b"\x1b" not in answer.content

"""The daemon's state as it changes, across lost connections, and waits for an order to be carried out."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from functools import partial

from sparkdash.api.requests import Cause
from sparkdash.client.client import AsyncClient
from sparkdash.client.connection import LINK_LOST
from sparkdash.domain.engine import Engine, EngineState, Failure
from sparkdash.domain.event import Event, SampleTaken
from sparkdash.domain.state import Snapshot, apply
from sparkdash.domain.swap import Swap, SwapOutcome
from sparkdash.errors import AdmissionError, DaemonError, EngineError

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

    After None the feed goes on where it was (events only) if the daemon still knows, else with a snapshot. Raises
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
    await position.confirm(client)
    async with aclosing(client.events(since=position.seq)) as items:
        async for item in items:
            if not position.take(item):
                return
            yield item


PATIENCE_S = 30.0
"""Seconds without any change after which a swap counts as lost: a restarted daemon forgets those under way."""

Show = Callable[[Snapshot], None]


async def state_changes(client: AsyncClient) -> AsyncGenerator[Snapshot, None]:
    """Yield every state of the daemon from now on. Raises DaemonError for a lost link: a command must not hang."""
    await client.state()  # says better than a silent feed why there is no daemon
    world: Snapshot | None = None
    async with aclosing(follow_feed(client)) as items:
        async for item in items:
            if item is None:
                raise DaemonError(
                    "The daemon went away.",
                    code="daemon_hung_up",
                    hint="`sparkdash status` says whether it is back; what was under way may go on by itself.",
                )
            if isinstance(item, Snapshot):
                world = item
            elif world is not None:
                world = apply(world, item)
            if world is not None:
                yield world


async def until_ready(client: AsyncClient, name: str, show: Show, cause: Cause = "user") -> Snapshot:
    """Use a profile, by its exact name, and wait until it answers.

    Raises EngineError: it did not come up; AdmissionError: cancelled, or another swap took its place; DaemonError.
    """
    async with aclosing(state_changes(client)) as changes:
        start = await anext(changes)
        await client.use(profile=name, cause=cause)
        older = None
        if _ready(start, name):
            world = await client.state()
            older = world.engines[name].fingerprint if world.is_outdated(name) else None
            if _ready(world, name) and older is None:
                return world  # it ran and still does: no event will come
        show(start)
        patience = _Patience(start)
        async for world in changes:
            show(world)
            if ended := _ended(start, world, name):
                _judge(name, ended)
            if _ready(world, name) and world.engines[name].fingerprint != older:
                return world
            patience.look(world)
    raise AssertionError("the feed has no end")


async def until_stopped(client: AsyncClient, name: str | None, show: Show) -> None:
    """Stop one engine, or all, and wait until it is gone, however long its drain takes."""
    await _carried_out(client, partial(client.stop, profile=name), show)


async def until_cancelled(client: AsyncClient, show: Show) -> None:
    await _carried_out(client, client.cancel, show)


async def until_silent(client: AsyncClient, show: Show) -> None:
    """Show the world until a daemon that was told to stop ends its feed."""
    with suppress(DaemonError):
        async with aclosing(state_changes(client)) as changes:
            await _shown(changes, show)


async def _carried_out(client: AsyncClient, order: Callable[[], Coroutine[None, None, object]], show: Show) -> None:
    """Wait for an order that takes minutes; meanwhile the feed shows the progress and that the daemon still lives."""
    async with aclosing(state_changes(client)) as changes:
        show(await anext(changes))
        answer, watch = asyncio.create_task(order()), asyncio.create_task(_shown(changes, show))
        try:
            await asyncio.wait((answer, watch), return_when=asyncio.FIRST_COMPLETED)
            await (answer if answer.done() else watch)
        finally:
            for task in (answer, watch):
                task.cancel()
            await asyncio.gather(answer, watch, return_exceptions=True)


async def _shown(changes: AsyncGenerator[Snapshot, None], show: Show) -> None:
    async for world in changes:
        show(world)


def _ready(world: Snapshot, name: str) -> bool:
    engine = world.engines.get(name)
    leaving = any(name == swap.target or name in swap.evict for swap in world.swaps_under_way)
    return engine is not None and engine.state is EngineState.READY and not leaving


def _ended(start: Snapshot, world: Snapshot, name: str) -> Swap | Engine | None:
    """Return the swap or engine of this change that failed after `start`; None while all is well."""
    known = {swap.id for swap in start.swaps}
    for swap in world.swaps:
        if swap.id not in known and swap.target == name and swap.outcome is not SwapOutcome.DONE:
            return swap
    engine = world.engines.get(name)
    if world.swap_to(name) is None and engine and engine.state is EngineState.FAILED and engine.since >= start.at:
        return engine
    return None


def _judge(name: str, ended: Swap | Engine) -> None:
    if isinstance(ended, Swap) and ended.outcome is SwapOutcome.CANCELLED:
        raise AdmissionError(f"The swap to {name} was cancelled.", code="cancelled")
    raise engine_error(name, ended.failure)


def engine_error(name: str, failure: Failure | None) -> EngineError:
    if failure is None:
        return EngineError(f"{name} did not come up.", hint=f"See `sparkdash logs {name}`.")
    if failure.message.startswith(name):
        return failure.error()
    return failure.replace(message=f"{name} did not come up: {failure.message}").error()


class _Patience:
    """Notices when nothing moves any more, by the daemon's clock."""

    def __init__(self, begin: Snapshot) -> None:
        self._moved_at = begin.at

    def look(self, world: Snapshot) -> None:
        """Raises AdmissionError `swap_lost` when nothing has moved for PATIENCE_S."""
        engines = world.engines.values()
        if world.swap or any(engine.state not in (EngineState.READY, EngineState.FAILED) for engine in engines):
            self._moved_at = world.at
        elif world.at - self._moved_at > PATIENCE_S:
            raise AdmissionError(
                f"Nothing has moved for {PATIENCE_S:.0f} s: "
                "the daemon was restarted and has forgotten the swap, or another change came first.",
                code="swap_lost",
                hint="`sparkdash status` shows what runs.",
            )

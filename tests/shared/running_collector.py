"""A running collector, and what it publishes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sparkdash.domain.container import ForeignContainer
from sparkdash.domain.engine import Engine
from sparkdash.domain.event import Fact, Notice, SampleTaken
from sparkdash.domain.metric import Sample
from sparkdash.settings import Settings
from sparkdash.telemetry import Collector, CollectorInputs
from sparkdash.upstream import Upstream


class Watch:
    """A running collector and what it publishes, on a box and in a time of its own.

    `engine` makes an engine as the supervisor shows it, `new_engine` starts its server.
    """

    def __init__(self, time: Any, box: Any, engine: Callable[..., Engine], new_engine: Callable[[], Any]) -> None:
        self.time, self.box, self.engine, self.new_engine = time, box, engine, new_engine
        self.facts: asyncio.Queue[Fact] = asyncio.Queue()
        self.notices: list[Notice] = []
        self.engines: dict[str, Engine] = {}
        self.crashes = 0
        """How many more times it crashes to ask for the engines."""
        self.pids: dict[str, set[int]] = {}
        self.pids_asked: list[str] = []
        self.pids_broken: Exception | None = None
        self.listeners = 1
        self.foreign: dict[ForeignContainer, set[int]] = {}
        self.foreign_asked = 0
        self.collector: Collector

    async def coder(self) -> Any:
        """The server of `coder`, the only engine."""
        server = await self.new_engine()
        self.engines = {"coder": self.engine(server.url)}
        return server

    def look(self) -> dict[str, Engine]:
        if self.crashes:
            self.crashes -= 1
            raise RuntimeError("the books are closed")
        return self.engines

    async def pids_of(self, profile: str) -> set[int]:
        self.pids_asked.append(profile)
        if self.pids_broken:
            raise self.pids_broken
        return self.pids.get(profile, set())

    async def foreign_there(self) -> dict[ForeignContainer, set[int]]:
        self.foreign_asked += 1
        return self.foreign

    async def sample(self) -> Sample:
        while True:
            fact = await self.facts.get()
            if isinstance(fact, SampleTaken):
                return fact.sample
            assert isinstance(fact, Notice)
            self.notices.append(fact)

    async def until(self, holds: Callable[[Sample], Any]) -> Sample:
        while not holds(sample := await self.sample()):
            pass
        return sample


IMPATIENT_S = 0.25


@asynccontextmanager
async def idle(watch: Watch, *, wait_s: float = 60, traffic: Any = None, **settings: Any) -> AsyncIterator[Collector]:
    """A collector that looks only when it is told to."""
    async with Upstream() as upstream:
        watch.collector = Collector(
            CollectorInputs(
                upstream=upstream,
                engines=watch.look,
                reader=watch.box,
                pids=watch.pids_of,
                foreign=watch.foreign_there,
                publish=watch.facts.put_nowait,
                settings=lambda: Settings(**settings),
                clock=watch.time.unix,
                listeners=lambda: watch.listeners,
                traffic=traffic,
                monotonic=watch.time.monotonic,
                sleep=watch.time.sleep,
                wait_s=wait_s,
            )
        )
        yield watch.collector
        await watch.collector._close()


@asynccontextmanager
async def collecting(watch: Watch, **given: Any) -> AsyncIterator[Watch]:
    """Wait for answers as long as a busy machine may need, unless the test is about those that do not come."""
    async with idle(watch, **given) as collector:
        task = asyncio.create_task(collector.run())
        try:
            yield watch
        finally:
            task.cancel()
            ended = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(ended[0], asyncio.CancelledError), ended


def counting(engine: Any, rate: float) -> None:
    """Let the engine's token counter grow by `rate` with every look at it."""
    seen = {"count": 0.0}

    def step() -> None:
        seen["count"] += rate
        engine.text = f"vllm:generation_tokens_total {seen['count']}\nvllm:num_requests_running 1\n"

    engine.step = step

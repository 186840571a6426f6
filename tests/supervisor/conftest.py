"""A house for the supervisor: engines that are real HTTP servers, a runtime and a box in memory, time in the test's hand."""

from __future__ import annotations

import asyncio
import heapq
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import pytest
from aiohttp import web

from sparkdash.catalog import Catalog
from sparkdash.domain.container import (
    LABEL_OWNER,
    ContainerInfo,
    ContainerSpec,
    ContainerState,
    Leftovers,
    PullProgress,
)
from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import EngineChanged, Fact, Notice, SwapChanged
from sparkdash.domain.metric import Memory
from sparkdash.domain.profile import EngineKind, MemoryNeed, ModelRef, Profile
from sparkdash.domain.swap import Swap
from sparkdash.errors import HostError
from sparkdash.host.reader import GpuReading
from sparkdash.settings import Settings
from sparkdash.supervisor import Lease, Supervisor
from sparkdash.units import GIB
from sparkdash.upstream import Upstream

T = TypeVar("T")
OWNER = "us"
TURNS = 40
"""Turns of the loop that count as rest: a request over loopback takes about fifteen."""
LATE_MS = 300
"""How long a request is waited for whose packets the kernel of a busy machine brings late; one that hangs is left alone."""


class FakeClock:
    """Time that moves only when the test lets it."""

    def __init__(self) -> None:
        self.time = 1_000_000.0
        self.asking: Callable[[], int] = lambda: 0
        """How many requests are under way: time does not pass over them."""
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        wake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.time + seconds, next(self._order), wake))
        await wake

    def step(self) -> None:
        """Wake the next sleeper, at its time."""
        while self._sleepers:
            due, _, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                self.time = max(self.time, due)
                wake.set_result(None)
                return

    async def rest(self) -> None:
        """Let everything run that can without time passing."""
        for _ in range(LATE_MS):
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if not self.asking():
                return
            await asyncio.sleep(0.001)

    async def drive(self, work: Awaitable[T]) -> T:
        """Let time pass until `work` is done."""
        task = asyncio.ensure_future(work)
        for _ in range(20_000):
            await self.rest()
            if task.done():
                return await task
            self.step()
        raise AssertionError("it never ended")


def pid_of(profile: str) -> int:
    """The one process of this profile's engine."""
    return zlib.crc32(profile.encode())


@dataclass
class Behaviour:
    """What one profile's engine does."""

    load_s: float = 3.0
    never_ready: bool = False
    dies_after_s: float | None = None
    empty_answers: bool = False
    wont_stop: bool = False
    heartbeat: bool = False
    """Says the same line for ever."""
    leftovers: Leftovers = field(default_factory=Leftovers)
    """What its stop finds besides."""
    lines: tuple[str, ...] = ("INFO starting", "Loading safetensors checkpoint shards:  50% Completed | 1/2")


@dataclass(eq=False)
class Container:
    """One fake container."""

    spec: ContainerSpec
    behaviour: Behaviour
    started_at: float
    state: ContainerState = ContainerState.RUNNING
    exit_code: int | None = None
    log: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    life: asyncio.Task[None] | None = None
    server: web.AppRunner | None = None

    def say(self, line: str) -> None:
        self.log.append(line)
        self.changed.set()

    @property
    def profile(self) -> str:
        return self.spec.labels["sparkdash.profile"]


class FakeRuntime:
    """Containers in memory; each engine that comes up listens on its real port."""

    name = "podman"
    containerised = True

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.here: dict[str, Container] = {}
        self.zoo: dict[str, Behaviour] = {}
        self.images = {"image"}
        self.missing = False
        self.gate: asyncio.Event | None = None
        """Starts and stops take until it is set."""
        self.pid: int | None = None
        """Told as every container's."""
        self.stopped: set[str] = set()
        self.stray = Leftovers()
        self.out_of_reach = False
        """Stops do nothing: the daemon that would stop is dead."""
        self.calls: list[tuple[str, str]] = []
        """(start or stop, profile) in order."""

    async def version(self) -> str:
        return "5.0"

    async def image_present(self, image: str) -> bool:
        self._must_be_there()
        return image in self.images

    async def pull(self, image: str) -> AsyncIterator[PullProgress]:
        self.images.add(image)
        yield PullProgress(image=image, detail="pulled", done=True)

    def command(self, spec: ContainerSpec) -> list[str]:
        return list(spec.argv)

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        await self._pass()
        container = Container(spec, self.zoo.get(spec.labels["sparkdash.profile"], Behaviour()), self.clock.now())
        self.calls.append(("start", container.profile))
        self.here[spec.name] = container
        container.life = asyncio.create_task(self._live(container))
        return self._info(container)

    async def stop(self, name: str, grace_s: float) -> Leftovers:
        container = self.here.get(name)
        if container is None or self.out_of_reach:
            return Leftovers()
        if container.behaviour.wont_stop:
            raise HostError(f"{name} does not end.", code="unkillable")
        await self._pass()
        if container.state is ContainerState.RUNNING:
            self.calls.append(("stop", container.profile))
            self.stopped.add(container.profile)
            await self.end(container, 143)
        self.here.pop(name, None)
        return container.behaviour.leftovers

    async def inspect(self, name: str) -> ContainerInfo | None:
        return self._info(self.here[name]) if name in self.here else None

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        self._must_be_there()
        found = [c for c in self.here.values() if all(c.spec.labels.get(k) == v for k, v in labels.items())]
        return [self._info(container) for container in found]

    async def settle(self, owner: str) -> Leftovers:
        return self.stray

    async def logs(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        if name not in self.here:
            raise HostError(f"There is no container {name}.", code="no_such_container")
        container = self.here[name]
        at = 0 if tail is None else max(0, len(container.log) - tail)
        while True:
            while at < len(container.log):
                at += 1
                yield container.log[at - 1]
            if not follow or container.ended.is_set():
                return
            container.changed.clear()
            await container.changed.wait()

    async def wait(self, name: str) -> int:
        container = self.here.get(name)
        if container is None:
            return -1
        await container.ended.wait()
        return container.exit_code or 0

    async def pids(self, name: str) -> set[int]:
        return {pid_of(self.here[name].profile)} if name in self.here else set()

    def kill(self, profile: str, *words: str) -> Awaitable[None]:
        """The engine of this profile dies by itself."""
        container = self.of(profile)
        for line in words:
            container.say(line)
        return self.end(container, 1)

    pid_of = staticmethod(pid_of)

    def of(self, profile: str) -> Container:
        return next(c for c in self.here.values() if c.profile == profile)

    def running(self) -> list[str]:
        return [c.profile for c in self.here.values() if c.state is ContainerState.RUNNING]

    async def end(self, container: Container, code: int) -> None:
        container.state, container.exit_code = ContainerState.EXITED, code
        if container.life and container.life is not asyncio.current_task():
            container.life.cancel()
            with suppress(asyncio.CancelledError):
                await container.life
        if container.server:
            await container.server.cleanup()
        container.ended.set()
        container.changed.set()

    async def close(self) -> None:
        for container in self.here.values():
            await self.end(container, 0)

    async def _live(self, container: Container) -> None:
        does = container.behaviour
        for line in does.lines:
            container.say(line)
        while does.never_ready:
            await self.clock.sleep(1.0)
            if does.heartbeat:
                container.say(f"waiting, {self.clock.time} s")
        if does.dies_after_s is not None:
            await self.clock.sleep(does.dies_after_s)
            container.say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB")
            await self.end(container, 1)
            return
        await self.clock.sleep(does.load_s)
        container.server = await serve(container.profile, container.spec.port, empty=does.empty_answers)

    def _info(self, c: Container) -> ContainerInfo:
        return ContainerInfo(
            id=c.spec.name,
            name=c.spec.name,
            state=c.state,
            image=c.spec.image,
            labels=c.spec.labels,
            exit_code=c.exit_code,
            pid=self.pid,
            started_at=c.started_at,
        )

    async def _pass(self) -> None:
        if self.gate:
            await self.gate.wait()

    def _must_be_there(self) -> None:
        if self.missing:
            raise HostError("podman cannot be run.", code="runtime_missing", hint="Install podman.")


async def serve(model: str, port: int, *, empty: bool = False) -> web.AppRunner:
    """A tiny engine on a real socket."""

    async def chat(_request: web.Request) -> web.Response:
        words = [] if empty else [f"{model} says hello"]
        events = [json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}) for word in words]
        body = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
        return web.Response(text=body, content_type="text/event-stream")

    async def ok(_request: web.Request) -> web.Response:
        return web.json_response({"version": "0.99", "data": []})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    for path in ("/health", "/version", "/v1/models"):
        app.router.add_get(path, ok)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
    return runner


class FakeReader:
    """A box of 128 GiB of which 8 are gone; engines hold what their profile declares."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.runtime = runtime
        self.sizes: dict[str, int] = {}
        self.others = 0
        """Bytes that programs which are not ours hold."""
        self.leaks: dict[str, int] = {}
        """Bytes that a profile's engine does not give back when it is stopped."""
        self.blind = False
        """Cannot tell what an engine holds."""
        self.reading = GpuReading(None)
        self.page_cache: int | None = None
        self.own: int | None = None
        """What each engine's processes hold, where a test says otherwise than `sizes`."""

    def memory(self) -> Memory:
        held = sum(self.sizes.get(name, 0) for name in self.runtime.running())
        leaked = sum(self.leaks.get(name, 0) for name in self.runtime.stopped)
        available = 120 * GIB - held - self.others - leaked
        return Memory(total=128 * GIB, available=available, free=available, page_cache=self.page_cache)

    async def gpu(self) -> GpuReading:
        return self.reading

    def engine_bytes(self, pids: set[int], _reading: Any) -> int | None:
        if self.blind:
            return None
        if self.own is not None and pids:
            return self.own
        return sum(size for name, size in self.sizes.items() if pid_of(name) in pids)

    async def others_bytes(self, _pids: set[int], _reading: Any) -> int:
        return self.others

    def close(self) -> None:
        """Nothing to release."""


def profile(name: str, *, gib: float | None = 80, **facts: Any) -> Profile:
    """A vLLM profile that needs `gib`; by default so much that no two fit."""
    need = MemoryNeed(weights_gib=gib, kv_gib=0, overhead_gib=0, source="test") if gib is not None else MemoryNeed()
    given = {
        "engine": EngineKind.VLLM,
        "image": "image",
        "models": {"target": ModelRef(hf=f"org/{name}")},
        "memory": need,
    }
    return Profile(name=name, **{**given, **facts})


class CountingUpstream(Upstream):
    """Knows how many short questions are under way."""

    asking = 0

    async def get(self, *args: Any, **more: Any) -> Any:
        with self._counted():
            return await super().get(*args, **more)

    async def generate(self, *args: Any, **more: Any) -> Any:
        with self._counted():
            return await super().generate(*args, **more)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.asking += 1
        try:
            yield
        finally:
            self.asking -= 1


class House:
    """A supervisor in its surroundings, and what it published."""

    def __init__(self, upstream: CountingUpstream, clock: FakeClock, ports: tuple[int, int]) -> None:
        self.clock = clock
        clock.asking = lambda: upstream.asking
        self._ports = ports
        self.runtime = FakeRuntime(clock)
        self.reader = FakeReader(self.runtime)
        self.upstream = upstream
        self.facts: list[Fact] = []
        self.on_fact: Callable[[Fact], object] = lambda _: None
        """Called within the supervisor's own step, before anyone else runs."""
        self.supervisor: Supervisor
        self._running: asyncio.Task[None] | None = None
        self._ids = count(1)

    async def open(self, *profiles: Profile, store: Any = None, guard: Any = None, **settings: Any) -> Supervisor:
        """Start a supervisor with these profiles; returns once it has adopted."""
        given = {
            "engine_ports": self._ports,
            "reserve_gib": 10,
            "min_dwell_s": 0,
            "drain_s": 60,
            "stop_grace_s": 1,
            "reclaim_s": 30,
            "no_progress_s": 20,
            **settings,
        }
        self.reader.sizes.update({p.name: p.memory.total_bytes or 0 for p in profiles})
        self.supervisor = Supervisor(
            catalog=catalog(*profiles),
            runtime=self.runtime,
            upstream=self.upstream,
            reader=self.reader,
            publish=self._publish,
            settings=Settings(**given),
            owner=OWNER,
            store=store,
            guard=guard,
            clock=self.clock,
        )
        self._running = asyncio.create_task(self.supervisor.run())
        await self.clock.drive(self.supervisor.adopted())
        return self.supervisor

    def _publish(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.on_fact(fact)

    async def close(self) -> None:
        """End the actor; engines stay."""
        if self._running:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self.clock.drive(self._running)
            self._running = None

    async def crash(self) -> None:
        """SIGKILL: engines stay as they are, in whatever they were doing."""
        self.runtime.out_of_reach = True
        await self.close()
        self.runtime.out_of_reach = False

    def ask(self, name: str, seen: list[int] | None = None) -> Asking:
        """A request that waits for its lease in the background."""
        return Asking(self, name, seen if seen is not None else [])

    async def leased(self, name: str) -> Lease:
        """Get a lease, use the engine, and leave."""
        asking = self.ask(name)
        lease = await self.clock.drive(asking.granted())
        await asking.leave()
        return lease

    async def loads(self, name: str) -> None:
        """Let time pass until the engine of this profile is being loaded."""
        while self.state(name) is not EngineState.LOADING:
            self.clock.step()
            await self.clock.rest()

    async def settled(self) -> None:
        await self.clock.drive(self.supervisor.settled())

    def state(self, name: str) -> EngineState | None:
        engine = self.supervisor.engines.get(name)
        return engine.state if engine else None

    def states(self, name: str) -> list[EngineState]:
        """Every state that was published of this engine, repeats left out."""
        seen: list[EngineState] = []
        for fact in self.facts:
            if isinstance(fact, EngineChanged) and fact.engine.profile == name and fact.engine.state not in seen[-1:]:
                seen.append(fact.engine.state)
        return seen

    def swaps(self) -> list[Swap]:
        """Those that ended, in order."""
        return [f.swap for f in self.facts if isinstance(f, SwapChanged) and f.swap.ended_at is not None]

    def notices(self) -> list[Notice]:
        return [fact for fact in self.facts if isinstance(fact, Notice)]

    def next_id(self) -> str:
        return f"r{next(self._ids)}"


class Asking:
    """One request: asks at once, holds its lease until told to leave."""

    def __init__(self, house: House, name: str, seen: list[int]) -> None:
        self.seen = seen
        """Places in the queue that it was told."""
        self._house = house
        self._go = asyncio.Event()
        self._lease: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._hold(name))

    async def granted(self) -> Lease:
        """The lease. Raises what the request was refused with."""
        await asyncio.wait({self.task, self._lease}, return_when=asyncio.FIRST_COMPLETED)
        return self._lease.result() if self._lease.done() else await self.task

    @property
    def has_lease(self) -> bool:
        return self._lease.done()

    async def leave(self) -> None:
        """The answer is complete."""
        self._go.set()
        await self.task
        await self._house.clock.rest()

    async def vanish(self) -> None:
        """The client hangs up."""
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        await self._house.clock.rest()

    async def _hold(self, name: str) -> Lease:
        context = self._house.supervisor.lease(name, request_id=self._house.next_id(), on_wait=self.seen.append)
        async with context as lease:
            self._lease.set_result(lease)
            await self._go.wait()
            return lease


def catalog(*profiles: Profile) -> Catalog:
    """These profiles."""
    return Catalog({p.name: p for p in profiles})


@pytest.fixture
def make_profile() -> Callable[..., Profile]:
    return profile


@pytest.fixture
def make_catalog() -> Callable[..., Catalog]:
    return catalog


@pytest.fixture
def behaviour() -> type[Behaviour]:
    return Behaviour


@pytest.fixture
def serve_engine() -> Callable[..., Awaitable[web.AppRunner]]:
    return serve


@pytest.fixture
def foreign_owner() -> dict[str, str]:
    return {LABEL_OWNER: "someone else"}


@pytest.fixture
async def house(ports: tuple[int, int]) -> AsyncIterator[House]:
    """Everything around a supervisor; `await house.open(...)` starts one."""
    async with CountingUpstream() as upstream:
        made = House(upstream, FakeClock(), ports)
        yield made
        await made.close()
        await made.runtime.close()

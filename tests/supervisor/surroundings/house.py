"""A supervisor in its surroundings, the requests that ask it, and the profiles that they name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import Any

from sparkdash.catalog import Catalog, ProfileProblem
from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import EngineChanged, Fact, Notice, SwapChanged
from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.domain.node import LOCAL, NodeLaunch, NodeState, NodeStatus
from sparkdash.domain.profile import EngineKind, MemoryNeed, ModelRef, Profile
from sparkdash.domain.swap import Swap, SwapCause
from sparkdash.errors import SparkdashError
from sparkdash.host.runtime import OneNode
from sparkdash.settings import Settings
from sparkdash.supervisor import Lease, Supervisor, Tools
from sparkdash.units import GIB
from sparkdash.upstream import Upstream
from surroundings.box import FakeReader, FakeRuntime
from surroundings.clock import FakeClock

OWNER = "us"
USUAL = {"reserve_gib": 10, "min_dwell_s": 0, "drain_s": 60, "stop_grace_s": 1, "reclaim_s": 30, "no_progress_s": 20}
TOOLS = {each.name for each in fields(Tools)}


def make_profile(name: str, *, gib: float | None = 80, **facts: Any) -> Profile:
    """A vLLM profile that needs `gib`; by default so much that no two fit."""
    need = MemoryNeed(weights_gib=gib, kv_gib=0, overhead_gib=0, source="test") if gib is not None else MemoryNeed()
    given = {
        "engine": EngineKind.VLLM,
        "image": "image",
        "models": {"target": ModelRef(hf=f"org/{name}")},
        "memory": need,
    }
    return Profile(name=name, **{**given, **facts})


def make_catalog(*profiles: Profile, problems: tuple[ProfileProblem, ...] = ()) -> Catalog:
    """Catalog of these profiles, and what is wrong with others."""
    return Catalog({p.name: p for p in profiles}, problems)


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
        self._ports = ports
        self.runtime = FakeRuntime(clock)
        self.reader = FakeReader(self.runtime)
        self.upstream = upstream
        self.facts: list[Fact] = []
        self.on_fact: Callable[[Fact], object] = lambda _: None
        """Called within the supervisor's own step, before anyone else runs."""
        self.began: list[tuple[str, EngineState | None]] = []
        """Profiles whose figures were to begin, and the state that their engine had then."""
        self.supervisor: Supervisor
        self._running: asyncio.Task[None] | None = None
        self._asked: list[Asking] = []

    async def open(self, *profiles: Profile, problems: tuple[ProfileProblem, ...] = (), **given: Any) -> Supervisor:
        """Start a supervisor in place of the one before; return once it has adopted. `given`: its tools and settings."""
        await self.close()
        self.reader.sizes.update({p.name: p.memory.total_bytes or 0 for p in profiles})
        tools = {"nodes": OneNode(self.reader)} | {name: given[name] for name in TOOLS & given.keys()}
        settings = USUAL | {name: given[name] for name in given.keys() - TOOLS}
        self.supervisor = Supervisor(
            Tools(
                catalog=make_catalog(*profiles, problems=problems),
                runtime=self.runtime,
                upstream=self.upstream,
                reader=self.reader,
                publish=self._publish,
                settings=Settings(**{"engine_ports": self._ports, **settings}),
                owner=OWNER,
                clock=self.clock,
                before_ready=self._begin,
                **tools,
            )
        )
        self._running = asyncio.create_task(self.supervisor.run())
        await self.clock.drive(self.supervisor.adopted())
        return self.supervisor

    async def _begin(self, name: str) -> None:
        self.began.append((name, self.state(name)))

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

    async def end(self) -> None:
        """End everything: requests, actor and engines."""
        for asking in self._asked:
            asking.task.cancel()
        await self.close()
        await self.runtime.close()

    async def crash(self) -> None:
        """SIGKILL: engines stay as they are, in whatever they were doing."""
        self.runtime.out_of_reach = True
        await self.close()
        self.runtime.out_of_reach = False

    async def crash_in_load(self, name: str) -> Asking:
        """`crash` while an engine is being loaded for a request."""
        asking = await self.loading(name)
        await self.crash()
        return asking

    def ask(self, name: str, seen: list[int] | None = None, **asks: Any) -> Asking:
        """A request that waits for its lease in the background."""
        self._asked.append(Asking(self, name, seen if seen is not None else [], asks))
        return self._asked[-1]

    async def served(self, *profiles: Profile, **given: Any) -> Supervisor:
        """`open`, where the first profile has then answered a request."""
        supervisor = await self.open(*profiles, **given)
        await self.leased(profiles[0].name)
        return supervisor

    async def granted(self, name: str, **asks: Any) -> tuple[Asking, Lease]:
        """A request that has got its lease, and holds it until it is told to leave."""
        asking = self.ask(name, **asks)
        return asking, await self.clock.drive(asking.granted())

    async def leased(self, name: str) -> Lease:
        asking, lease = await self.granted(name)
        await asking.leave()
        return lease

    async def refused(self, name: str) -> Any:
        """Refusal of a request for `name`, once all that follows is over."""
        error = await self.clock.drive(self.ask(name).refusal())
        await self.settled()
        return error

    async def loads(self, name: str) -> None:
        """Let time pass until the engine of this profile is being loaded."""
        await self.clock.until(lambda: self.state(name) is EngineState.LOADING)

    async def loading(self, name: str) -> Asking:
        """A request whose engine is being loaded."""
        asking = self.ask(name)
        await self.loads(name)
        return asking

    async def used(self, name: str, cause: SwapCause = SwapCause.USER) -> None:
        """Have a person use this profile, and let all that follows happen."""
        await self.supervisor.use(name, cause=cause)
        await self.settled()

    async def stopped(self, name: str | None) -> None:
        await self.clock.drive(self.supervisor.stop(name))

    async def passes(self, seconds: float) -> None:
        await self.clock.drive(self.clock.sleep(seconds))

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
        return [f.swap for f in self.facts if isinstance(f, SwapChanged) and f.swap.ended_at is not None]

    def notices(self) -> list[Notice]:
        return [fact for fact in self.facts if isinstance(fact, Notice)]


class Asking:
    """One request: asks at once, holds its lease until told to leave."""

    def __init__(self, house: House, name: str, seen: list[int], asks: dict[str, Any]) -> None:
        self._asks = asks
        self.seen = seen
        self._house = house
        self._go = asyncio.Event()
        self._lease: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._hold(name))
        # one that still asks when the house ends is refused, and nobody waits for that
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def granted(self) -> Lease:
        """The lease. Raises what the request was refused with."""
        await asyncio.wait({self.task, self._lease}, return_when=asyncio.FIRST_COMPLETED)
        return self._lease.result() if self._lease.done() else await self.task

    async def refusal(self) -> Any:
        """Error that the request was refused with."""
        (error,) = await asyncio.gather(self.granted(), return_exceptions=True)
        assert isinstance(error, SparkdashError), error
        return error

    @property
    def has_lease(self) -> bool:
        return self._lease.done()

    async def leave(self) -> None:
        self._go.set()
        await self.task
        await self._house.clock.rest()

    async def vanish(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        await self._house.clock.rest()

    async def _hold(self, name: str) -> Lease:
        context = self._house.supervisor.lease(
            name, request_id=str(id(self)), on_wait=lambda place: self.seen.append(place.position), **self._asks
        )
        async with context as lease:
            self._lease.set_result(lease)
            await self._go.wait()
            return lease


class SecondNode:
    """Our box and spark2, whose memory nobody takes."""

    names = (LOCAL, "spark2")
    cables: Mapping[str, frozenset[str]] = {}
    samples: Mapping[str, NodeSample] = {}

    def __init__(self, house: House, status: NodeStatus = NodeStatus.REACHABLE) -> None:
        self._house = house
        self.states = {"spark2": NodeState(name="spark2", status=status, since=0.0, reason=None)}

    def memory(self, node: str) -> Memory | None:
        if node == LOCAL:
            return self._house.reader.memory()
        return Memory(total=128 * GIB, available=120 * GIB, free=120 * GIB)

    async def fresh_memory(self, node: str) -> Memory:
        found = self.memory(node)
        assert found is not None
        return found

    def launch_on(self, names: tuple[str, ...]) -> tuple[NodeLaunch, ...]:
        return tuple(NodeLaunch(name=name, address="127.0.0.1", hf_home="/hf", cache_dir="/cache") for name in names)

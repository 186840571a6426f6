"""The loop of telemetry samples. No tick waits for the slowest source; missing answers show their age."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sparkdash.domain import metric
from sparkdash.domain.container import ForeignContainer
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import Fact, Level, Notice, SampleTaken
from sparkdash.domain.node import LOCAL
from sparkdash.engines.probes import MetricNames
from sparkdash.engines.registry import adapter
from sparkdash.errors import SparkdashError
from sparkdash.host.box import GpuReading, HostReader
from sparkdash.log import LOG
from sparkdash.settings import Settings
from sparkdash.telemetry import derive, power
from sparkdash.telemetry.derive import NOTHING_PASSED, total_power, with_gateway
from sparkdash.telemetry.power import LowPowerDetector
from sparkdash.telemetry.source import MetricsSource, cancelled, identity
from sparkdash.telemetry.totals import EngineTotals
from sparkdash.units import GIB
from sparkdash.upstream import Upstream

FRESH_S = 5.0
"""Validity of engines' process ids: each costs a call of the runtime, and engines rarely fork after their start."""
QUIET_S = 60.0
"""The same beside engines that have started."""
FOREIGN_FRESH_S = 30.0
"""Validity of other containers while samples have a listener: two calls of the runtime, and changes are rare."""
T = TypeVar("T")


class Polled(Generic[T]):
    """Last answer of the runtime about some engines, asked for aside; `known` stays where it could not answer."""

    def __init__(
        self, ask: Callable[[Collection[str]], Awaitable[T]], known: T, monotonic: Callable[[], float]
    ) -> None:
        self.known = known
        self._ask = ask
        self._monotonic = monotonic
        self._task: asyncio.Task[T] | None = None
        self._asked_at = -math.inf
        self._about: frozenset[str] = frozenset()

    def refresh(self, about: Collection[str], valid_s: float) -> None:
        """Begin a query if other engines run or the answer is old. Raises what the last query raised."""
        if self._task is not None and self._task.done():
            done, self._task = self._task, None
            if not isinstance(done.exception(), SparkdashError):  # a busy runtime, which the supervisor's calls report
                self.known = done.result()
        now, running = self._monotonic(), frozenset(about)
        if self._task is None and (running != self._about or now - self._asked_at >= valid_s):
            self._asked_at, self._about = now, running
            self._task = asyncio.ensure_future(self._ask(running))

    async def close(self) -> None:
        await cancelled(self._task)


WAIT_S = 0.8
"""Longest wait of a tick for answers; later ones count in the next tick."""
UNWATCHED_S = 5.0
"""Interval of ticks without listeners."""
ASLEEP_S = 15.0
"""Interval of ticks without listeners and engines."""
POWER_S = 3.0
"""Age up to which a reading of the power stands in for one that came late."""

ASKED = frozenset({EngineState.READY, EngineState.DRAINING})
"""States in which clients cause an engine's figures; before, its warm-up does."""
COMING = frozenset({EngineState.LOADING, EngineState.WARMING})
"""States in which an engine may have been looked at for the first time."""
WITHOUT_PROCESSES = frozenset({EngineState.ABSENT, EngineState.FAILED})


@dataclass(frozen=True, kw_only=True)
class CollectorInputs:
    """Sources and sinks of the collector, and its clocks."""

    upstream: Upstream
    engines: Callable[[], Mapping[str, Engine]]
    reader: HostReader
    pids: Callable[[str], Awaitable[set[int]]]
    foreign: Callable[[], Awaitable[Mapping[ForeignContainer, set[int]]]]
    publish: Callable[[Fact], Any]
    settings: Callable[[], Settings]
    nodes: Callable[[], dict[str, metric.NodeSample]] = dict
    """Last figures of the other nodes by name; answers at once."""
    pace_nodes: Callable[[float], None] = lambda _: None
    """Told the interval of ticks, at each tick."""
    traffic: Callable[..., metric.TrafficLook] | None = None
    """Looks at the gateway's own count (`TrafficMeter.look`); None without a gateway."""
    listeners: Callable[[], int] = lambda: 1
    names: Callable[[Engine], MetricNames] = lambda engine: adapter(engine.kind).metrics
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    wait_s: float = WAIT_S


class Collector:
    """Measures until cancelled, on one event loop."""

    def __init__(self, inputs: CollectorInputs) -> None:
        self._inputs = inputs
        self._monotonic = inputs.monotonic
        self._alive: list[str] = []
        """Engines that have processes on this box, as of the last tick."""
        self._processes = Polled(self._pids_of, dict[str, set[int]](), inputs.monotonic)
        self._foreign: Polled[Mapping[ForeignContainer, set[int]]] = Polled(
            lambda _: inputs.foreign(), {}, inputs.monotonic
        )
        self._power = LowPowerDetector()
        self._sources: dict[str, MetricsSource] = {}
        self.totals: dict[str, EngineTotals] = {}
        """Counters of each profile's engines since the daemon started, over all restarts."""
        self._gpu: asyncio.Task[GpuReading] | None = None
        self.gpu: metric.GpuFigures | None = None
        self._last_gpu: metric.Gpu | None = None
        self._worked: frozenset[str] = frozenset()
        """Engines on several nodes that were at work at the last tick."""
        self._told: set[str] = set()

    @property
    def pids(self) -> dict[str, set[int]]:
        """Host process ids of each engine, seconds old; engines that the runtime has not reported are left out."""
        known = self._processes.known
        return {name: pids for name in self._alive if (pids := known.get(name))}

    async def run(self) -> None:
        """Tick until cancelled. A crashed tick is logged, reported once, and followed by the next."""
        try:
            while True:
                began = self._monotonic()
                try:
                    await self._tick()
                except Exception as error:  # noqa: BLE001 - reported, and the next tick follows
                    self._crashed(error)
                await self._rest(began)
        finally:
            await self._close()

    async def begin(self, name: str) -> None:
        """Start the engine's figures over, after its warm-up; never raises, takes a second at most."""
        engine = self._inputs.engines().get(name)
        if engine is None:
            return
        known = self._sources.get(name)
        if known is not None and known.identity != identity(engine):
            del self._sources[name]
            await known.close()
        if source := self._follow(name, engine):
            await source.begin()

    def figures(self, name: str) -> metric.EngineFigures | None:
        """Raw figures of the engine's last answer; None without an engine, and for one without figures."""
        engine, source = self._inputs.engines().get(name), self._sources.get(name)
        return source.figures() if source and engine and identity(engine) == source.identity else None

    async def _rest(self, began: float) -> None:
        """Sleep until the next tick is due, in short steps, so that a new listener shortens a slow interval."""
        while (left := began + self._cadence() - self._monotonic()) > 0:
            await self._inputs.sleep(min(left, self._inputs.settings().sample_s, UNWATCHED_S))

    def _cadence(self) -> float:
        every = self._inputs.settings().sample_s
        if every > UNWATCHED_S and self._taken(lambda: any(map(_in_use, self._inputs.engines().values())), False):
            every = UNWATCHED_S  # liveness is judged by these figures
        if self._inputs.listeners() > 0:
            return every
        running = any(engine.state not in WITHOUT_PROCESSES for engine in self._inputs.engines().values())
        return max(every, UNWATCHED_S if running else ASLEEP_S)

    async def _tick(self) -> None:
        engines = self._inputs.engines()
        await self._keep(_in_states(engines, ASKED | COMING))
        ready = _in_states(engines, ASKED)
        followed = {name: source for name, engine in ready.items() if (source := self._follow(name, engine))}
        await self._ask(engines, followed)
        reading = self._taken(self._looked, GpuReading(gpu=None))
        self._watch_power(reading)
        samples = {name: told for name, source in followed.items() if (told := source.sample())}
        self._keep_gpu(reading.gpu)
        nodes = self._taken(lambda: self._nodes(engines), dict[str, metric.NodeSample]())
        looked = self._taken(lambda: self._passing(samples.values(), nodes), NOTHING_PASSED)
        sample = metric.Sample(
            at=self._inputs.clock(),
            engines=with_gateway(
                self._taken(lambda: self._with_link(samples, nodes, engines), samples),
                looked if self._inputs.traffic else None,
                ready,
                self._inputs.clock(),
                frozenset(name for name, source in followed.items() if not source.is_live),
            ),
            memory=self._taken(lambda: self._memory(reading), None),
            gpu=reading.gpu,
            nodes=nodes,
            low_power=self._power.stuck,
            requests=looked.requests,
            energy=looked.energy,
        )
        self._inputs.publish(SampleTaken(sample=sample))

    def _passing(
        self, samples: Iterable[metric.EngineSample], nodes: Mapping[str, metric.NodeSample]
    ) -> metric.TrafficLook:
        """Have the gateway say what passes through it, and share the energy since the last tick."""
        if self._inputs.traffic is None:
            return NOTHING_PASSED
        now, others = self._monotonic(), [node.gpu for name, node in nodes.items() if name != LOCAL]
        fresh = self.gpu is not None and now - self.gpu.looked_at <= POWER_S
        power = total_power(self._last_gpu, others) if fresh else None
        busy = any(sample.error is None and sample.get(metric.Metric.RUNNING) for sample in samples)
        return self._inputs.traffic(now, self._inputs.clock(), power, busy=busy)

    async def _ask(self, engines: Mapping[str, Engine], sources: Mapping[str, MetricsSource]) -> None:
        """Ask the sources, the GPU and the process table, and wait a moment for the answers."""
        asked = [task for name, source in sources.items() if (task := source.ask(in_use=_in_use(engines[name])))]
        if self._gpu is None:
            self._gpu = asyncio.create_task(self._inputs.reader.gpu(), name="telemetry gpu")
        here = {name: engine for name, engine in engines.items() if LOCAL in engine.nodes}
        self._alive = alive = [name for name, engine in here.items() if engine.state not in WITHOUT_PROCESSES]
        quiet = self._processes.known.keys() >= set(alive) and all(engines[name].state in ASKED for name in alive)
        self._taken(lambda: self._processes.refresh(alive, QUIET_S if quiet else FRESH_S), None)
        watched = self._inputs.listeners() > 0
        self._taken(lambda: self._foreign.refresh(alive, FOREIGN_FRESH_S if watched else math.inf), None)
        await asyncio.wait([self._gpu, *asked], timeout=self._inputs.wait_s)

    async def _pids_of(self, profiles: Collection[str]) -> dict[str, set[int]]:
        found = {}
        for name in profiles:
            with suppress(SparkdashError):  # a busy runtime, which the supervisor's own calls report
                found[name] = await self._inputs.pids(name)
        return found

    def _watch_power(self, reading: GpuReading) -> None:
        """Publish a notice when the GPU enters or leaves its stuck low-power state."""
        if not self._power.see(self._monotonic(), reading.gpu) or reading.gpu is None:
            return
        if self._power.stuck:
            text = f"The GPU is stuck in its low-power state ({power.describe_gpu(reading.gpu)}). {power.CURE}"
            self._inputs.publish(Notice(level=Level.ERROR, code="low_power", text=text))
        else:
            text = f"The GPU has left its low-power state ({power.describe_gpu(reading.gpu)})."
            self._inputs.publish(Notice(level=Level.INFO, code="low_power_over", text=text))

    def _keep_gpu(self, gpu: metric.Gpu | None) -> None:
        """Keep the GPU's figures for the judgement of liveness."""
        if gpu is not None:
            self._last_gpu = gpu
            low_w = power.low_power_w(gpu.name)
            self.gpu = metric.GpuFigures(self._monotonic(), gpu.name, gpu.power_w, low_w, gpu.utilization)

    async def _keep(self, engines: dict[str, Engine]) -> None:
        for name, source in list(self._sources.items()):
            if name not in engines or identity(engines[name]) != source.identity:
                del self._sources[name]
                await source.close()

    def _follow(self, name: str, engine: Engine) -> MetricsSource | None:
        """Return the engine's source, new or known; None for an engine without figures."""
        if name in self._sources or not engine.url:
            return self._sources.get(name)
        names = self._inputs.names(engine)
        if not (names.path or names.slots) and names.recognised:
            return None
        totals = self.totals.setdefault(name, EngineTotals())
        made = MetricsSource(engine, names, self._inputs.upstream, self._inputs.clock, self._monotonic, totals)
        self._sources[name] = made
        return made

    def _looked(self) -> GpuReading:
        if self._gpu is None or not self._gpu.done():
            return GpuReading(gpu=None)
        done, self._gpu = self._gpu, None
        return done.result()

    def _memory(self, reading: GpuReading) -> metric.Memory:
        known = self.pids
        held = {
            name: self._inputs.reader.engine_bytes(known[name], reading) if name in known else None
            for name in self._alive
        }
        foreign = tuple(
            each.replace(bytes=self._inputs.reader.engine_bytes(pids, reading) if pids else None)
            for each, pids in self._foreign.known.items()
        )
        return self._inputs.reader.memory().replace(engines=held, strangers=foreign, reserve=self._reserve())

    def _reserve(self) -> int:
        return int(self._inputs.settings().reserve_gib * GIB)

    def _nodes(self, engines: Mapping[str, Engine]) -> dict[str, metric.NodeSample]:
        self._inputs.pace_nodes(self._cadence())
        return derive.with_reserve(derive.by_profile(self._inputs.nodes(), engines), self._reserve())

    def _with_link(
        self,
        samples: dict[str, metric.EngineSample],
        nodes: Mapping[str, metric.NodeSample],
        engines: Mapping[str, Engine],
    ) -> dict[str, metric.EngineSample]:
        before, self._worked = self._worked, derive.working(engines, samples)
        return derive.with_link_share(samples, before & self._worked, nodes, engines) if nodes else samples

    def _taken(self, part: Callable[[], T], otherwise: T) -> T:
        """Run one part of a sample; return `otherwise` if it crashes, so that the other parts survive."""
        try:
            return part()
        except Exception as error:  # noqa: BLE001 - as in run(), for one part
            self._crashed(error)
            return otherwise

    def _crashed(self, error: Exception) -> None:
        LOG.exception("a measurement failed", exc_info=error)
        what = error.text() if isinstance(error, SparkdashError) else f"{type(error).__name__}: {error}"
        if what not in self._told:
            self._told.add(what)
            text = f"A measurement failed and is tried again: {what}"
            self._inputs.publish(Notice(level=Level.WARNING, code="telemetry_failed", text=text))

    async def _close(self) -> None:
        sources, self._sources = self._sources.values(), {}
        await asyncio.gather(self._processes.close(), self._foreign.close(), *(source.close() for source in sources))
        await cancelled(self._gpu)
        self._gpu = None


def _in_use(engine: Engine) -> bool:
    return engine.in_flight > 0 or engine.liveness is not None


def _in_states(engines: Mapping[str, Engine], states: Collection[EngineState]) -> dict[str, Engine]:
    return {name: engine for name, engine in engines.items() if engine.state in states}

"""The collector: one tick of telemetry after another.

Owns: the rhythm, whom to ask, and putting engines, memory and GPU into one Sample. Must not know formulas, or who
looks at the samples. Rule: nothing waits for the slowest; a tick takes what has come and shows the age of the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import structlog

from sparkdash.domain.container import Stranger
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import Fact, Level, Notice, SampleTaken
from sparkdash.domain.figures import EngineFigures, GpuFigures
from sparkdash.domain.metric import EngineSample, Gpu, Memory, Metric, Sample
from sparkdash.domain.profile import EngineKind
from sparkdash.engines.adapter import MetricNames
from sparkdash.engines.registry import adapter
from sparkdash.errors import SparkdashError
from sparkdash.host.reader import GpuReading, HostReader
from sparkdash.settings import Settings
from sparkdash.telemetry import lowpower
from sparkdash.telemetry.lowpower import LowPower
from sparkdash.telemetry.power_band import PowerBand
from sparkdash.telemetry.processes import Processes
from sparkdash.telemetry.source import MetricsSource, Scraper, identity
from sparkdash.telemetry.strangers import Strangers
from sparkdash.units import GIB

LOG = structlog.get_logger("sparkdash.telemetry")
WAIT_S = 0.8
"""How long a tick waits for answers; what comes later counts in the next one."""
UNWATCHED_S = 5.0
"""Between ticks when nobody listens."""
ASLEEP_S = 15.0
"""Between ticks when nobody listens and no engine runs."""
T = TypeVar("T")

ASKED = frozenset({EngineState.READY, EngineState.DRAINING})
"""States in which clients cause an engine's figures; before, its warm-up does."""
COMING = frozenset({EngineState.LOADING, EngineState.WARMING})
"""States in which an engine's first look may have been made."""
WORKING = COMING | {EngineState.CREATING}
"""States in which an engine may use the GPU without requests."""
WITHOUT_PROCESSES = frozenset({EngineState.ABSENT, EngineState.FAILED})


class Collector:
    """Measures until cancelled. All of it lives on one event loop.

    `engines` gives all engines by profile, `pids` the host processes of one profile's container, `strangers` other
    containers with theirs, `listeners` how many look at the samples. `clock` gives Unix seconds; `monotonic` and `sleep` are the rhythm's own.
    """

    def __init__(
        self,
        *,
        upstream: Scraper,
        engines: Callable[[], Mapping[str, Engine]],
        reader: HostReader,
        pids: Callable[[str], Awaitable[set[int]]],
        strangers: Callable[[], Awaitable[Mapping[Stranger, set[int]]]],
        publish: Callable[[Fact], Any],
        settings: Callable[[], Settings],
        clock: Callable[[], float] = time.time,
        listeners: Callable[[], int] = lambda: 1,
        names: Callable[[EngineKind], MetricNames] = lambda kind: adapter(kind).metrics,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        wait_s: float = WAIT_S,
    ) -> None:
        self._upstream = upstream
        self._engines = engines
        self._reader = reader
        self._publish = publish
        self._settings = settings
        self._clock = clock
        self._listeners = listeners
        self._names = names
        self._monotonic = monotonic
        self._sleep = sleep
        self._wait_s = wait_s
        self._processes = Processes(pids, monotonic)
        self._strangers = Strangers(strangers, monotonic)
        self._power = LowPower()
        self._sources: dict[str, MetricsSource] = {}
        self._gpu: asyncio.Task[GpuReading] | None = None
        self._gpu_figures: GpuFigures | None = None
        self._band = PowerBand()
        self._told: set[str] = set()

    @property
    def pids(self) -> dict[str, set[int]]:
        """Host process ids of each engine, as the runtime told them seconds ago; without engines of which it has not told."""
        return {name: pids for name, pids in self._processes.known.items() if pids}

    async def run(self) -> None:
        """Tick until cancelled. A tick that crashes is logged, told of once, and followed by the next."""
        try:
            while True:
                began = self._monotonic()
                try:
                    await self._tick()
                except Exception as error:  # noqa: BLE001 - whatever it was, it is told and the next tick comes
                    self._crashed(error)
                await self._rest(began)
        finally:
            await self._close()

    async def begin(self, name: str) -> None:
        """Begin this engine's figures now, after its warm-up and before its first request.

        Never fails; takes a second at most.
        """
        engine = self._engines().get(name)
        if engine is None:
            return
        known = self._sources.get(name)
        if known is not None and known.identity != identity(engine):
            del self._sources[name]
            await known.close()
        if source := self._follow(name, engine):
            await source.begin()

    def figures(self, name: str) -> EngineFigures | None:
        """Raw figures that the profile's engine told last; None where there is none, or it tells nothing."""
        engine, source = self._engines().get(name), self._sources.get(name)
        return source.figures() if source and engine and identity(engine) == source.identity else None

    @property
    def gpu(self) -> GpuFigures | None:
        """Power and utilisation by the last look at the GPU that was answered."""
        return self._gpu_figures

    async def _rest(self, began: float) -> None:
        """Until the next tick is due; looks up in between, so that a new listener need not wait for a slow one."""
        while (left := began + self._cadence() - self._monotonic()) > 0:
            await self._sleep(min(left, self._settings().sample_s, UNWATCHED_S))

    def _cadence(self) -> float:
        every = self._settings().sample_s
        if every > UNWATCHED_S and self._taken(self._is_used, False):
            every = UNWATCHED_S  # whether the engine still works is judged by its figures
        if self._listeners() > 0:
            return every
        running = any(engine.state not in WITHOUT_PROCESSES for engine in self._engines().values())
        return max(every, UNWATCHED_S if running else ASLEEP_S)

    def _is_used(self) -> bool:
        return any(engine.in_flight or engine.liveness for engine in self._engines().values())

    async def _tick(self) -> None:
        engines = self._engines()
        await self._keep({name: engine for name, engine in engines.items() if engine.state in ASKED | COMING})
        ready = {name: engine for name, engine in engines.items() if engine.state in ASKED}
        followed = {name: source for name, engine in ready.items() if (source := self._follow(name, engine))}
        asked = [task for source in followed.values() if (task := source.ask())]
        if self._gpu is None:
            self._gpu = asyncio.create_task(self._reader.gpu(), name="telemetry gpu")
        alive = [name for name, engine in engines.items() if engine.state not in WITHOUT_PROCESSES]
        self._taken(lambda: self._processes.refresh(alive), None)
        self._taken(lambda: self._strangers.refresh(alive, watched=self._listeners() > 0), None)
        await asyncio.wait([self._gpu, *asked], timeout=self._wait_s)
        reading = self._taken(self._looked, GpuReading(gpu=None))
        self._watch_power(reading)
        samples = {name: told for name, source in followed.items() if (told := source.sample())}
        self._keep_gpu(reading.gpu, engines.values(), samples.values())
        sample = Sample(
            at=self._clock(),
            engines=samples,
            memory=self._taken(lambda: self._memory(reading), None),
            gpu=reading.gpu,
            low_power=self._power.stuck,
        )
        self._publish(SampleTaken(sample=sample))

    def _watch_power(self, reading: GpuReading) -> None:
        """Tell when the GPU falls into its stuck low-power state, and when it has left it."""
        if not self._power.see(self._monotonic(), reading.gpu) or reading.gpu is None:
            return
        if self._power.stuck:
            text = f"The GPU is stuck in its low-power state ({lowpower.figures(reading.gpu)}). {lowpower.CURE}"
            self._publish(Notice(level=Level.ERROR, code="low_power", text=text))
        else:
            text = f"The GPU has left its low-power state ({lowpower.figures(reading.gpu)})."
            self._publish(Notice(level=Level.INFO, code="low_power_over", text=text))

    def _keep_gpu(self, gpu: Gpu | None, engines: Iterable[Engine], samples: Iterable[EngineSample]) -> None:
        """Keep what the GPU tells for whoever judges liveness, and learn its power."""
        if gpu is None:
            return
        now, told = self._monotonic(), [sample for sample in samples if sample.error is None]
        works = any(engine.in_flight or engine.state in WORKING for engine in engines)
        self._band.see(
            now,
            gpu.power_w,
            decodes=any(sample.get(Metric.DECODE) for sample in told),
            holds_work=works or any(sample.get(Metric.RUNNING) for sample in told),
        )
        self._gpu_figures = GpuFigures(now, gpu.name, gpu.power_w, self._band.low_w(gpu.name, now), gpu.utilization)

    async def _keep(self, engines: dict[str, Engine]) -> None:
        """Drop the Source of every incarnation that is not among these."""
        for name, source in list(self._sources.items()):
            if name not in engines or identity(engines[name]) != source.identity:
                del self._sources[name]
                await source.close()

    def _follow(self, name: str, engine: Engine) -> MetricsSource | None:
        """Get the engine's Source, made now if there is none; None for an engine without figures."""
        names = self._names(engine.kind)
        tells = names.path or names.slots or not names.recognised
        if name not in self._sources and engine.url and tells:
            self._sources[name] = MetricsSource(engine, names, self._upstream, self._clock, self._monotonic)
        return self._sources.get(name)

    def _looked(self) -> GpuReading:
        """What the GPU said; nothing when it has not answered yet, and then it is not asked twice."""
        if self._gpu is None or not self._gpu.done():
            return GpuReading(gpu=None)
        done, self._gpu = self._gpu, None
        return done.result()

    def _memory(self, reading: GpuReading) -> Memory:
        known = self._processes.known.items()
        held = {name: self._reader.engine_bytes(pids, reading) if pids else None for name, pids in known}
        reserve = int(self._settings().reserve_gib * GIB)
        return self._reader.memory().replace(engines=held, strangers=self._weighed(reading), reserve=reserve)

    def _weighed(self, reading: GpuReading) -> tuple[Stranger, ...]:
        return tuple(
            each.replace(bytes=self._reader.engine_bytes(pids, reading) if pids else None)
            for each, pids in self._strangers.known.items()
        )

    def _taken(self, part: Callable[[], T], otherwise: T) -> T:
        """One part of a sample; when it crashes, the others are still worth having."""
        try:
            return part()
        except Exception as error:  # noqa: BLE001 - as in run, for one part
            self._crashed(error)
            return otherwise

    def _crashed(self, error: Exception) -> None:
        LOG.exception("a measurement failed", exc_info=error)
        what = error.text() if isinstance(error, SparkdashError) else f"{type(error).__name__}: {error}"
        if what not in self._told:
            self._told.add(what)
            text = f"A measurement failed and is tried again: {what}"
            self._publish(Notice(level=Level.WARNING, code="telemetry_failed", text=text))

    async def _close(self) -> None:
        sources, self._sources = self._sources.values(), {}
        await asyncio.gather(self._processes.close(), self._strangers.close(), *(source.close() for source in sources))
        if self._gpu is not None:
            self._gpu.cancel()
            await asyncio.gather(self._gpu, return_exceptions=True)
            self._gpu = None

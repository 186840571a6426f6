"""Recorded answers, an engine that can be told how to behave, and time that passes when it is asked to."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from running_collector import Watch

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.metric import Gpu, Memory
from sparkdash.domain.profile import EngineKind
from sparkdash.engines.probes import MetricNames
from sparkdash.engines.registry import adapter
from sparkdash.host.box import GpuReading
from sparkdash.telemetry.derive import Derived, EngineHistory
from sparkdash.telemetry.exposition import parse_exposition
from sparkdash.telemetry.reading import Reading, reading_of, sample_names

DATA = Path(__file__).parents[1] / "data" / "metrics"


@pytest.fixture
def recorded() -> Callable[[str], Any]:
    """A recorded answer: text, or what a .json file holds."""

    def load(name: str) -> Any:
        text = (DATA / name).read_text()
        return json.loads(text) if name.endswith(".json") else text

    return load


@pytest.fixture
def reading() -> Callable[..., Reading]:
    """A scrape as the adapter of an engine kind reads it."""

    def make(kind: EngineKind, text: str, at: float = 0.0, names: MetricNames | None = None) -> Reading:
        names = names or adapter(kind).metrics
        return reading_of(at, parse_exposition(text, sample_names(names)), names)

    return make


@pytest.fixture
def between(recorded: Callable[[str], Any], reading: Callable[..., Reading]) -> Callable[..., Derived]:
    """Figures derived from two recorded scrapes, `seconds` apart."""

    def derive(
        kind: EngineKind, before: str, after: str, seconds: float = 5.0, names: MetricNames | None = None
    ) -> Derived:
        history = EngineHistory()
        history.add(reading(kind, recorded(before), 0.0, names))
        history.add(reading(kind, recorded(after), seconds, names))
        return history.derive()

    return derive


async def _not_found(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=404)


class FakeEngine:
    """A real HTTP server with an engine's /metrics, /health and /slots. While `free` is clear it answers nothing."""

    def __init__(self) -> None:
        self.text: str | bytes = ""
        self.slots: list[dict[str, Any]] | None = None
        self.health: dict[str, Any] = {}
        self.status = self.slots_status = 200
        self.step: Callable[[], None] = lambda: None
        """Called before each answer of /metrics."""
        self.arrived: Callable[[], None] = lambda: None
        """Called when /metrics is asked for."""
        self.second: Callable[[web.Request], Awaitable[web.StreamResponse]] = _not_found
        """Answers TensorRT-LLM's other route."""
        self.asked = self.slots_asked = 0
        self.at_once = 0
        """Most requests of /metrics that were ever open together."""
        self._open = 0
        self.free = asyncio.Event()
        self.free.set()
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/slots", self._slots)
        app.router.add_get("/health", self._health)
        app.router.add_get("/prometheus/metrics", self._prometheus)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")

    async def _metrics(self, _request: web.Request) -> web.Response:
        self.asked += 1
        self._open += 1
        self.at_once = max(self.at_once, self._open)
        self.arrived()
        try:
            await self.free.wait()
        finally:
            self._open -= 1
        self.step()
        body = self.text.encode() if isinstance(self.text, str) else self.text
        return web.Response(body=body, status=self.status, content_type="text/plain")

    async def _prometheus(self, request: web.Request) -> web.StreamResponse:
        return await self.second(request)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response(self.health)

    async def _slots(self, _request: web.Request) -> web.Response:
        self.slots_asked += 1
        if self.slots is None:
            return web.json_response({"error": {"code": 501, "message": "not enabled"}}, status=501)
        return web.json_response(self.slots, status=self.slots_status)


@pytest.fixture
async def new_engine() -> AsyncIterator[Callable[[], Any]]:
    """Starts fake engines; all are gone at the test's end."""
    made: list[FakeEngine] = []

    async def make() -> FakeEngine:
        engine = FakeEngine()
        await engine.server.start_server()
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.free.set()
        await engine.server.close()


class FakeTime:
    """Seconds that pass only in `sleep`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def unix(self) -> float:
        return 1.7e9 + self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


class FakeBox:
    """A HostReader of a box with 128 GiB and one GPU."""

    def __init__(self) -> None:
        self.gpu_free = asyncio.Event()
        self.gpu_free.set()
        self.gpu_asked = 0
        self.gpu_now = Gpu(name="GB10", utilization=0.5)
        self.broken: Exception | None = None

    def memory(self) -> Memory:
        if self.broken:
            raise self.broken
        return Memory(total=128 << 30, available=100 << 30, free=90 << 30)

    async def gpu(self) -> GpuReading:
        self.gpu_asked += 1
        await self.gpu_free.wait()
        return GpuReading(gpu=self.gpu_now, processes={7: 1 << 30})

    def engine_bytes(self, pids: set[int], reading: GpuReading) -> int | None:
        return sum(reading.processes.get(pid, 0) for pid in pids) if reading.processes else None

    def close(self) -> None:
        pass


@pytest.fixture
def box() -> FakeBox:
    return FakeBox()


@pytest.fixture
def engine() -> Callable[..., Engine]:
    """An Engine as the supervisor shows it, ready unless told otherwise."""

    def make(url: str | None, profile: str = "coder", **changes: Any) -> Engine:
        values: dict[str, Any] = {
            "profile": profile,
            "kind": EngineKind.VLLM,
            "state": EngineState.READY,
            "since": 0.0,
            "fingerprint": "f1",
            "url": url,
            "container": f"sparkdash-{profile}",
        }
        return Engine(**{**values, **changes})

    return make


@pytest.fixture
def watch(time: FakeTime, box: FakeBox, engine: Callable[..., Engine], new_engine: Callable[[], Any]) -> Watch:
    return Watch(time, box, engine, new_engine)

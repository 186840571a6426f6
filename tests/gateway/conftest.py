"""The gateway on a real port: a supervisor that grants it a scripted engine, and everything around the two."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from leaping import LeapingClock
from scripted import FakeEngine, engine_on_a_socket
from serving import deserted, until
from simulated import serving

from sparkdash import listen
from sparkdash.api.answers import BenchPlan, SettingList
from sparkdash.api.requests import SettingBody, StartRunBody
from sparkdash.bus import Bus
from sparkdash.catalog import Catalog
from sparkdash.catalog.catalog import summarize
from sparkdash.domain.container import PullProgress
from sparkdash.domain.engine import Engine, EngineState, IncidentList
from sparkdash.domain.event import EngineChanged, ProfilesChanged
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import EngineKind, Profile, ProfileSummary, SimSpec
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import OPEN, DaemonInfo, Snapshot
from sparkdash.domain.swap import Plan, SwapCause
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import HostError, SparkdashError
from sparkdash.gateway.app import Gateway
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import BodyBudget
from sparkdash.settings import Settings
from sparkdash.supervisor.leasing import QueuePlace
from sparkdash.upstream import Upstream

SSE = Path(__file__).parent.parent / "data" / "sse"


# --- what the gateway is handed ---------------------------------------------------------------------------------


class FakeCatalog:
    """Three profiles; one cannot run."""

    problems = ("broken.yaml:3: arg: unknown key",)

    def __init__(self) -> None:
        self.profiles = {
            p.name: p
            for p in (
                Profile(name="alpha", engine=EngineKind.VLLM, serves=("coder",), image="img:1", context=32768),
                Profile(name="beta/fast", engine=EngineKind.VLLM, request={"temperature": 0.1, "top_k": 5}),
                Profile(name="huge", engine=EngineKind.VLLM, cannot_run="needs two boxes"),
            )
        }

    def find(self, name: str) -> Profile:
        return Catalog(self.profiles).find(name)

    def exactly(self, name: str) -> Profile | None:
        return Catalog(self.profiles).exactly(name)

    def summaries(self) -> tuple[ProfileSummary, ...]:
        return tuple(summarize(profile, adapter_of(profile)) for profile in self.profiles.values())


class FakeSupervisor:
    """Grants the engine at `url`; waits while `gate` is closed; refuses with `error` once it opens."""

    def __init__(self, catalog: FakeCatalog) -> None:
        self.catalog = catalog
        self.url = ""
        self.urls: list[str] = []
        """URLs of the next grants, one each; afterwards `url`."""
        self.url_of: dict[str, str] = {}
        """URLs of engines that have their own."""
        self.errors: dict[str, SparkdashError] = {}
        """Refusals of single profiles, at once."""
        self.names: tuple[str, ...] | None = None
        self.headers: dict[str, str] = {}
        self.container: str | None = "sparkdash-engine"
        self.nodes: tuple[str, ...] = (LOCAL,)
        """Both of the granted engine."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()
        self.error: SparkdashError | None = None
        self.lost: asyncio.Future[SparkdashError] | None = None
        """The newest lease's."""
        self.leases: list[str] = []
        self.asks: list[dict[str, Any]] = []
        """Arguments of each lease, in order."""
        self.open = 0
        self.unwell: list[BaseException] = []
        self.calls: list[tuple[str, Any]] = []
        self.stop_causes: list[SwapCause] = []
        self.targets: dict[str, WeightFacts] = {}
        self.sick: str | None = None
        """Fault of every engine that is looked at."""
        self.looks = 0

    async def adopted(self) -> None:
        pass

    async def sickness(self, profile: Profile, url: str) -> str | None:
        self.looks += 1
        return self.sick

    def target(self, profile: Profile) -> WeightFacts | None:
        return self.targets.get(profile.name)

    @asynccontextmanager
    async def lease(
        self, name: str, *, request_id: str, on_wait: Callable[[QueuePlace], None], **asks: Any
    ) -> AsyncIterator[SimpleNamespace]:
        self.leases.append(name)
        self.asks.append(asks)
        self.open += 1
        self.arrived.set()
        try:
            if name in self.errors:
                raise self.errors[name]
            if not self.gate.is_set():
                on_wait(QueuePlace(1))
                await self.gate.wait()
            if self.error is not None:
                raise self.error
            yield self._grant(name)
        except SparkdashError as error:
            self.unwell.append(error)
            raise
        finally:
            self.open -= 1
            self.left.set()

    async def all_left(self) -> None:
        """Until nobody holds or awaits a lease: an answer is whole a moment before."""
        while self.open:
            self.left.clear()
            await self.left.wait()

    def _grant(self, name: str) -> SimpleNamespace:
        profile = self.catalog.find("alpha" if name == "auto" else name)
        names = self.names if self.names is not None else (profile.name, *profile.serves)
        url = self.urls.pop(0) if self.urls else self.url_of.get(profile.name, self.url)
        self.lost = asyncio.get_running_loop().create_future()
        engine = ready(profile.name).replace(container=self.container, nodes=self.nodes)
        return SimpleNamespace(
            profile=profile, engine=engine, url=url, headers=self.headers, names=names, lost=self.lost
        )

    async def use(self, name: str, *, cause: SwapCause) -> Plan:
        if self.error:
            raise self.error
        self.calls.append(("use", (name, cause)))
        return Plan(profile=self.catalog.find(name).name, evict=("beta/fast",), expected_s=12.5)

    async def plan(self, name: str) -> Plan:
        return Plan(profile=self.catalog.find(name).name, fits=True)

    async def stop(self, name: str | None, *, wait: bool = True, cause: SwapCause = SwapCause.USER) -> None:
        self.calls.append(("stop", name if wait else (name, "at once")))
        self.stop_causes.append(cause)

    async def release(self, name: str | None) -> None:
        self.calls.append(("release", name))

    async def extend_load(self, name: str) -> None:
        self.calls.append(("extend_load", name))

    async def cancel(self) -> None:
        self.calls.append(("cancel", None))

    def incidents(self) -> IncidentList:
        return IncidentList()

    def logs(self, name: str, *, tail: int | None = None, follow: bool = False) -> AsyncIterator[str]:
        return self._lines(self.catalog.find(name).name, tail, follow)

    async def _lines(self, name: str, tail: int | None, follow: bool) -> AsyncIterator[str]:
        if name == "beta/fast":
            raise HostError("podman does not answer", code="runtime_silent")
        for line in (f"loading {name} --password hunter2", f"follow {follow}")[-tail if tail else 0 :]:
            yield line

    async def pull(self, name: str) -> AsyncIterator[PullProgress]:
        profile = self.catalog.find(name)
        if profile.image is None:
            raise HostError("no such image", code="image_missing")
        yield PullProgress(image=profile.image, detail="layer 1", fraction=0.5)
        yield PullProgress(image=profile.image, detail="done", fraction=1.0, done=True)


def ready(profile: str, state: EngineState = EngineState.READY) -> Engine:
    at = {"since": 1000.0, "ready_at": 1000.0}
    return Engine(profile=profile, kind=EngineKind.VLLM, state=state, fingerprint="f", **at)


# --- the house --------------------------------------------------------------------------------------------------


@dataclass
class House:
    """A gateway that serves, and everything around it."""

    base: str
    app: Gateway
    supervisor: FakeSupervisor
    bus: Bus
    catalog: FakeCatalog
    upstream: Upstream
    engine: FakeEngine
    client: httpx.AsyncClient
    recorded: list[Request]
    done: list[tuple[str, Any]]
    server: listen.Server

    async def chat(self, *, stream: bool = False, **more: Any) -> httpx.Response:
        """A stream asks for its counts, as most agents do; what then comes is the engine's own."""
        asked = {"stream_options": {"include_usage": True}} if stream else {}
        body = {"model": "alpha", "messages": [], "stream": stream, **asked, **more}
        return await self.client.post("/v1/chat/completions", json=body)

    def rebuild(self, **changes: Any) -> None:
        """Give the gateway other dependencies."""
        self.app.__init__(replace(self.app._deps, **changes))  # type: ignore[misc]

    async def connect(self, said: bytes = b"", **how: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client that no library keeps to the rules."""
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.base.rpartition(":")[2]), **how)
        writer.write(said)
        return reader, writer

    async def raw(self, method: str, path: str, **more: Any) -> httpx.Response:
        """A request whose path no client library tidies up."""
        request = self.client.build_request(method, "/", **more)
        request.url = request.url.copy_with(raw_path=path.encode())
        return await self.client.send(request)

    async def until(self, seen: Callable[[Snapshot], bool]) -> Snapshot:
        return await until(self.bus, seen)  # type: ignore[no-any-return]

    async def ended(self, number: int = 1) -> Request:
        return (await self.until(lambda s: len(s.recent) >= number and not s.requests)).recent[0]

    async def in_state(self, state: RequestState) -> Request:
        assert state in OPEN
        snapshot = await self.until(lambda s: any(r.state is state for r in s.requests.values()))
        return next(r for r in snapshot.requests.values() if r.state is state)


@asynccontextmanager
async def living_house(engine: FakeEngine, settings: Settings) -> AsyncIterator[House]:
    catalog = FakeCatalog()
    info = DaemonInfo(
        version="0", host="h", pid=1, started_at=1000.0, runtime="fake", url="http://127.0.0.1:0/v1", simulated=False
    )
    bus = Bus(Snapshot(seq=0, at=0.0, daemon=info), time.time)
    bus.publish(ProfilesChanged(profiles=catalog.summaries(), problems=catalog.problems))
    bus.publish(EngineChanged(engine=ready("alpha")))
    supervisor = FakeSupervisor(catalog)
    supervisor.url = engine.url
    recorded: list[Request] = []
    done: list[tuple[str, Any]] = []

    def noted(what: str) -> Callable[..., Any]:
        async def note(*given: Any) -> None:
            done.append((what, *given))

        return note

    async def start_run(wish: StartRunBody) -> BenchPlan:
        done.append(("start", *wish.profiles, wish.suite, wish.begin))
        about = {"about": "", "arms": (), "order": (), "cells": 2, "gaps": 8, "expected_s": 60.0}
        return BenchPlan(suite=wish.suite, mode=wish.mode, begun=wish.begin, **about)

    async def settings_list() -> SettingList:
        return SettingList(file="config.toml", settings=())

    async def change_setting(wish: SettingBody) -> SettingList:
        done.append(("setting", *wish.key, wish.value))
        return await settings_list()

    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(Upstream())
        deps = Deps(
            supervisor=supervisor,
            bus=bus,
            upstream=upstream,
            catalog=lambda: catalog,
            settings=settings,
            body_budget=BodyBudget(settings.bodies_limit_mib),
            reload=noted("reload"),
            shutdown=noted("shutdown"),
            record=recorded.append,
            resume=noted("resume"),
            start_run=start_run,
            settings_list=settings_list,
            change_setting=change_setting,
        )
        app = Gateway(deps)
        server = listen.Server(app.serve)
        sock = listen.bind_tcp("127.0.0.1", 0)
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        base = f"http://127.0.0.1:{sock.getsockname()[1]}"
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=base, timeout=60, verify=False))
        try:
            yield House(base, app, supervisor, bus, catalog, upstream, engine, client, recorded, done, server)
        finally:
            await client.aclose()
            await deserted(server)
            server.stop()
            await serving


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as made:
        yield made


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with engine_on_a_socket() as fake:
        yield fake


@pytest.fixture
def settings() -> Settings:
    """Tests that want another value override this fixture."""
    return Settings()


@pytest.fixture
async def house(engine: FakeEngine, settings: Settings) -> AsyncIterator[House]:
    async with living_house(engine, settings) as built:
        yield built


@pytest.fixture
async def waiting(house: House) -> AsyncIterator[House]:
    """A house whose supervisor holds every request back."""
    house.supervisor.gate.clear()
    yield house
    house.supervisor.gate.set()


@asynccontextmanager
async def simulated_engine(house: House) -> AsyncIterator[None]:
    """A simulated vLLM behind the house's gateway."""
    profile = Profile(name="alpha", engine=EngineKind.SIM, context=65536, sim=SimSpec(kv_tokens=10**6))
    async with serving(profile, clock=LeapingClock()) as (_, house.supervisor.url):
        yield


# --- data -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def recorded_body() -> Callable[[str], bytes]:
    """The body of a recorded answer of a real engine, by file name without `.txt`."""

    def body(name: str) -> bytes:
        _, _, after = (SSE / f"{name}.txt").read_bytes().partition(b"\r\n\r\n")
        return after

    return body


@pytest.fixture(scope="session")
def streams() -> list[str]:
    """Names of all recorded streams that end as they should."""
    return sorted(p.stem for p in SSE.glob("*-stream*.txt"))


@pytest.fixture
def tools() -> SimpleNamespace:
    """Names of this file for test modules."""
    return SimpleNamespace(living_house=living_house, simulated_engine=simulated_engine, ready=ready)

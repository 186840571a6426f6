"""A small daemon over real HTTP: the control API on a real bus, in a thread of its own.

Tests script it: what a call publishes, what it refuses, when its links break, when it is born again.
"""

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from sparkdash.bus import Bus
from sparkdash.domain.container import PullProgress
from sparkdash.domain.engine import Engine, EngineState, Failure, IncidentList, LoadProgress
from sparkdash.domain.event import EVENT, EngineChanged, Event, Fact, SwapChanged
from sparkdash.domain.history import Replay
from sparkdash.domain.memory import MemoryAccount
from sparkdash.domain.metric import Sample
from sparkdash.domain.profile import EngineKind, Profile, ProfileSummary
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.domain.swap import Plan, Swap, SwapCause, SwapOutcome, SwapPhase

GIB = 1024**3
BIRTH = 1_000_000.0
_NUMBERS = itertools.count(1)


def summary(name: str, **more: Any) -> ProfileSummary:
    values: dict[str, Any] = {
        "name": name, "about": f"about {name}", "engine": EngineKind.VLLM, "engine_version": "0.22.1",
        "image": "localhost/vllm:test", "serves": (f"{name}-alias",), "context": 131072, "needs_bytes": 79 * GIB,
        "nodes": 1, "cannot_run": None, "nearest": None, "published_decode_tok_s": 59.0,
        "published_note": "ctx 0 (paper)", "speculation": None, "fingerprint": "0" * 12, "simulated": False,
    }  # fmt: skip
    return ProfileSummary(**(values | more))


def engine(name: str, state: EngineState = EngineState.READY, **more: Any) -> Engine:
    ready = {"ready_at": BIRTH, "url": "http://127.0.0.1:18000", "port": 18000} if state is EngineState.READY else {}
    values = {"profile": name, "kind": EngineKind.VLLM, "state": state, "since": BIRTH, "fingerprint": "0" * 12}
    return Engine(**(values | ready | more))


def swap(target: str | None, phase: SwapPhase = SwapPhase.DRAIN, **more: Any) -> Swap:
    values: dict[str, Any] = {
        "id": f"swap-{next(_NUMBERS)}", "target": target, "evict": (), "cause": SwapCause.USER, "phase": phase,
        "started_at": BIRTH + 60, "phase_at": BIRTH + 60,
    }  # fmt: skip
    return Swap(**(values | more))


class FakeDaemon:
    """The daemon's API. `calls` holds (method, path with query, body) of everything but the feed."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.errors: dict[str, tuple[int, dict[str, Any]]] = {}
        """Path -> (status, envelope's inside) that it answers with."""
        self.on_use: Callable[[str], list[Fact]] = self.comes_up
        self.on_stop: Callable[[str | None], list[Fact]] = self.goes
        self.carried_out = asyncio.Event()
        """While it is not set, no stop and no cancel is answered."""
        self.carried_out.set()
        self.ends = True
        """Is it gone soon after it was told to end?"""
        self.plans: dict[str, Plan] = {}
        self.whole: dict[str, Profile] = {}
        self.memory: MemoryAccount | None = None
        self.past: dict[str, Any] = {}
        """Answers of /api/history by the last part of the path."""
        self.replayed = Replay(
            request="c3", route="/v1/chat/completions", stream=True, profile="qwen", plan=Plan(profile="qwen")
        )
        """Answer of POST /api/replay; a plan has neither answer nor match."""
        self.log_lines: list[str] = ["first line", "second line"]
        self.pulls: list[PullProgress] = []
        self.pull_error: dict[str, Any] | None = None
        self.url = ""
        self.since: list[int | None] = []
        """Sequence number that each connection to the feed asked for."""
        self.reloads = 0
        self._feeds: set[asyncio.Transport] = set()
        self._listening = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._now = BIRTH
        self.be_born()

    def be_born(self, pid: int = 4711) -> None:
        """A new life: numbers begin anew."""
        info = DaemonInfo(
            version="0.1.0", host="spark-1", pid=pid, started_at=BIRTH, runtime="podman", url="http://127.0.0.1:8484/v1"
        )
        self.bus = Bus(Snapshot(seq=0, at=BIRTH, daemon=info), self.clock)

    def clock(self) -> float:
        self._now += 1
        return self._now

    def set(self, **changes: Any) -> None:
        world = self.bus.snapshot.model_copy(update=changes)
        self.bus._known, self.bus._seq = world, world.seq  # nobody else may: to those who listen it is a gap

    # what it does of itself

    def comes_up(self, name: str) -> list[Fact]:
        began = swap(name, evict=tuple(self.bus.snapshot.engines), expected_s=100)
        old = [EngineChanged(engine=engine(n, EngineState.ABSENT)) for n in self.bus.snapshot.engines if n != name]
        load = LoadProgress(stage="weights", fraction=0.63)
        return [
            SwapChanged(swap=began),
            *old,
            SwapChanged(swap=began.model_copy(update={"phase": SwapPhase.LOAD, "progress": load})),
            EngineChanged(engine=engine(name, EngineState.LOADING)),
            EngineChanged(engine=engine(name, load_s=43.0)),
            SwapChanged(swap=began.model_copy(update={"ended_at": self._now, "outcome": SwapOutcome.DONE})),
        ]

    def breaks(self, name: str) -> list[Fact]:
        failure = Failure(
            code="out_of_memory", message="CUDA out of memory.", hint="Lower gpu-memory-utilization.", phase="load",
            exit_code=1, log_tail=("loading weights", "torch.OutOfMemoryError: CUDA out of memory"),
            evidence="/state/incidents/1",
        )  # fmt: skip
        began = swap(name)
        ended = {"ended_at": self._now, "outcome": SwapOutcome.FAILED, "failure": failure}
        return [SwapChanged(swap=began), SwapChanged(swap=began.model_copy(update=ended))]

    def goes(self, name: str | None) -> list[Fact]:
        names = [name] if name else list(self.bus.snapshot.engines)
        return [EngineChanged(engine=engine(n, EngineState.ABSENT)) for n in names]

    # for the tests' thread

    def publish(self, *facts: Fact) -> None:
        self._call(lambda: [self.bus.publish(fact) for fact in facts])

    def drop(self) -> None:
        self._call(lambda: [link.abort() for link in list(self._feeds)])

    def carry_out(self) -> None:
        self._call(self.carried_out.set)

    def be_gone(self) -> None:
        self._loop.call_soon_threadsafe(self.be_gone_soon)

    def be_gone_soon(self) -> None:
        self._loop.call_later(0.2, self._stop.set)

    def be_gone_soon_after_a_listener(self) -> None:
        threading.Thread(target=lambda: (self.until_listeners(1), self.be_gone()), daemon=True).start()

    def until_listeners(self, count: int) -> None:
        """Wait until the feed has been connected to `count` times in all."""
        with self._listening:
            assert self._listening.wait_for(lambda: len(self.since) >= count, timeout=20)

    def until_nobody_listens(self) -> None:
        with self._listening:
            assert self._listening.wait_for(lambda: not self._feeds, timeout=20)

    def _call(self, work: Callable[[], object]) -> None:
        async def on_loop() -> None:
            work()

        asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result(timeout=20)

    # life

    def start(self, uds: Path | None = None) -> threading.Thread:
        ready = threading.Event()
        thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._live(ready, uds)), daemon=True)
        thread.start()
        assert ready.wait(timeout=20)
        return thread

    def end(self, thread: threading.Thread) -> None:
        if thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(timeout=20)
        if not self._loop.is_closed():
            for _ in range(5):  # sockets are closed in the turns after the one that was told so
                self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    async def _live(self, ready: threading.Event, uds: Path | None) -> None:
        app = web.Application(middlewares=[self._noted])
        app.add_routes(self._routes())
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.UnixSite(runner, uds) if uds else web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        if uds is None:
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await self._stop.wait()
        for link in self._feeds:
            link.close()
        await runner.cleanup()

    # the API

    @web.middleware
    async def _noted(self, request: web.Request, handler: Any) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        if request.path != "/api/events":
            self.calls.append((request.method, request.path_qs, body))
        if request.path in self.errors:
            status, inside = self.errors[request.path]
            text = f"{inside['message']} {inside.get('hint') or ''}".strip()
            return web.json_response({"error": {"type": "x", "param": None, **inside, "message": text}}, status=status)
        return await handler(request)

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.get("/health", self._health),
            web.get("/api/state", self._state),
            web.get("/api/events", self._events),
            web.get("/api/profiles", self._profiles),
            web.get("/api/profiles/{name:.+}", self._profile),
            web.get("/api/plan/{name:.+}", self._plan),
            web.get("/api/incidents", self._incidents),
            web.get("/api/history/{part}", self._past),
            web.get("/api/logs/{name:.+}", self._logs),
            web.get("/api/memory", self._memory),
            web.post("/api/use", self._use),
            web.post("/api/stop", self._stopped),
            web.post("/api/replay", self._replay),
            web.post("/api/toggle", self._toggle),
            web.post("/api/pull-image", self._pull),
            web.post("/api/shutdown", self._shutdown),
            web.post("/api/reload", self._reloaded),
            web.post("/api/cancel", self._done),
            web.post("/api/release", self._health),
            web.post("/api/requests/{id}/cancel", self._health),
        ]

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({})

    async def _state(self, _request: web.Request) -> web.Response:
        return _json(self.bus.snapshot)

    async def _memory(self, _request: web.Request) -> web.Response:
        if self.memory is None:
            return web.json_response({"error": {"message": "Simulated.", "code": "no_memory_account"}}, status=404)
        return _json(self.memory)

    async def _profiles(self, _request: web.Request) -> web.Response:
        world = self.bus.snapshot
        return web.json_response(
            {"profiles": [p.model_dump(mode="json") for p in world.profiles], "problems": list(world.problems)}
        )

    async def _reloaded(self, request: web.Request) -> web.Response:
        self.reloads += 1
        return await self._profiles(request)

    async def _profile(self, request: web.Request) -> web.Response:
        return _json(self.whole[request.match_info["name"]])

    async def _incidents(self, request: web.Request) -> web.Response:
        world, profile = self.bus.snapshot, request.query.get("profile")
        kept = tuple(one for one in world.incidents if profile in (None, one.profile))
        return _json(IncidentList(incidents=kept, repairs=world.repairs))

    async def _past(self, request: web.Request) -> web.Response:
        told = self.past[request.match_info["part"]]
        return _json(told.pop(0) if isinstance(told, list) else told)

    async def _plan(self, request: web.Request) -> web.Response:
        return _json(self._planned(request.match_info["name"]))

    def _planned(self, name: str) -> Plan:
        name = name.removesuffix("-alias")
        evict = tuple(n for n in self.bus.snapshot.engines if n != name)
        return self.plans.get(name) or Plan(profile=name, evict=evict)

    async def _use(self, request: web.Request) -> web.Response:
        plan = self._planned((await request.json())["profile"])
        self._loop.call_soon(self._publish_all, self.on_use(plan.profile))
        return _json(plan, 202)

    async def _replay(self, request: web.Request) -> web.Response:
        asked = await request.json()
        planned = self.replayed.replace(answer=None, match=None)
        return _json(self.replayed if asked.get("begin") else planned)

    async def _stopped(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self._loop.call_soon(self._publish_all, self.on_stop(asked.get("profile")))
        await asyncio.sleep(0)  # an answer that came before its facts would let the test change the world between them
        return await self._done(request) if asked.get("wait", True) else web.json_response({})

    async def _done(self, _request: web.Request) -> web.Response:
        await self.carried_out.wait()
        return web.json_response({})

    def _publish_all(self, facts: list[Fact]) -> None:
        for fact in facts:
            self.bus.publish(fact)

    async def _toggle(self, request: web.Request) -> web.Response:
        asked = await request.json()
        world = self.bus.snapshot
        a, b = asked.get("a") or world.toggle_a, asked.get("b") or world.toggle_b
        self.set(toggle_a=a, toggle_b=b)
        active = world.active.profile if world.active else None
        if asked.get("flip"):
            active = b if active == a else a
            self._loop.call_soon(self._publish_all, self.on_use(active))
        return web.json_response({"a": a, "b": b, "active": active})

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        await answer.prepare(request)
        for line in self.log_lines:
            await answer.write(f"{line}\n".encode())
        return answer

    async def _pull(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for step in self.pulls:
            await answer.write(f"event: progress\ndata: {step.model_dump_json()}\n\n".encode())
        if self.pull_error:
            await answer.write(f"event: error\ndata: {json.dumps({'error': self.pull_error})}\n\n".encode())
        return answer

    async def _shutdown(self, request: web.Request) -> web.Response:
        await request.json()
        if self.ends:
            self._loop.call_later(0.05, self._stop.set)
        return web.json_response({}, status=202)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["since"]) if "since" in request.query else None
        subscription = self.bus.subscribe(since)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b": hello\n\n")
        link = request.transport
        assert isinstance(link, asyncio.Transport)
        self._feeds.add(link)
        with self._listening:
            self.since.append(since)
            self._listening.notify_all()
        try:
            async for item in subscription:
                await answer.write(_frame(item))
        finally:
            self.bus.unsubscribe(subscription)
            self._feeds.discard(link)
            with self._listening:
                self._listening.notify_all()
        return answer


def _frame(item: Event | Snapshot) -> bytes:
    if isinstance(item, Snapshot):
        return f"event: snapshot\ndata: {item.model_dump_json()}\n\n".encode()
    return b"event: fact\nid: %d\ndata: %s\n\n" % (item.seq, EVENT.dump_json(item))


def _json(value: Any, status: int = 200) -> web.Response:
    return web.json_response(text=value.model_dump_json(), status=status)


def sample(at: float = BIRTH + 1, **more: Any) -> Sample:
    return Sample(at=at, **more)

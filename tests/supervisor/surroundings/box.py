"""A box in memory: its containers, whose engines are small HTTP servers on real ports, and its figures."""

import asyncio
import json
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from sparkdash.domain.container import ContainerInfo, ContainerSpec, ContainerState, Leftovers, PullProgress
from sparkdash.domain.memory import Contiguity
from sparkdash.domain.metric import Memory
from sparkdash.errors import HostError
from sparkdash.host.box import GpuReading
from sparkdash.units import GIB
from surroundings.clock import FakeClock


def pid_of(profile: str) -> int:
    return zlib.crc32(profile.encode())


@dataclass
class Behaviour:
    """Behaviour of one profile's engine."""

    load_s: float = 3.0
    never_ready: bool = False
    dies_after_s: float | None = None
    empty_answers: bool = False
    talks_nonsense: bool = False
    hangs: bool = False
    """Takes a chat and never answers it."""
    health: int = 200
    silent: bool = False
    """Takes a liveness probe and never answers it."""
    looks: int = 0
    wont_stop: bool = False
    heartbeat: bool = False
    """Says the same line for ever."""
    leftovers: Leftovers = field(default_factory=Leftovers)
    says: str = ""
    """Answers instead of its greeting, divided by "|"; each is given once, the last one always."""
    dies_of_cache: bool = False
    """Dies without a known reason if its compile cache holds anything."""
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


def _next_answer(does: Behaviour) -> str:
    now, _, later = does.says.partition("|")
    does.says = later or now
    return now


hung: set[object] = set()
"""Requests that are never answered."""


async def never() -> None:
    """Hang until the client gives up; the fake clock lets time pass meanwhile."""
    hung.add(mine := object())
    try:
        await asyncio.Event().wait()
    finally:
        hung.discard(mine)


async def serve_engine(model: str, port: int, *, empty: bool = False, does: Behaviour | None = None) -> web.AppRunner:
    does = does or Behaviour(empty_answers=empty)

    async def chat(_request: web.Request) -> web.Response:
        if does.hangs:
            await never()
        if does.talks_nonsense:
            return web.Response(text="<html>Welcome to nginx!</html>", content_type="text/html")
        words = [] if does.empty_answers else [_next_answer(does) or f"{model} says hello"]
        events = [json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}) for word in words]
        body = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
        return web.Response(text=body, content_type="text/event-stream")

    async def ok(_request: web.Request) -> web.Response:
        return web.json_response({"version": "0.99", "data": []})

    async def health(_request: web.Request) -> web.Response:
        does.looks += 1
        if does.silent:
            await never()
        return web.json_response({}, status=does.health)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/health", health)
    for path in ("/version", "/v1/models"):
        app.router.add_get(path, ok)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    sock = socket.create_server(("127.0.0.1", port))
    try:
        await web.SockSite(runner, sock).start()
    except BaseException:  # its container is stopped while it begins to listen: asyncio then forgets the socket
        sock.close()
        await runner.cleanup()
        raise
    return runner


class FakeRuntime:
    """Containers in memory; each engine that comes up listens on its real port."""

    name = "podman"
    containerised = True

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.here: dict[str, Container] = {}
        self.zoo: dict[str, Behaviour] = {}
        """By image, else by profile."""
        self.present = {"image"}
        self.missing = False
        self.refuses: dict[str, HostError] = {}
        self.gate: asyncio.Event | None = None
        """Starts and stops take until it is set."""
        self.pid: int | None = None
        self.stopped: set[str] = set()
        self.stray = Leftovers()
        self.out_of_reach = False
        """Stops do nothing: the daemon that would stop is dead."""
        self.deaf = False
        """Followers of a log lose it at once."""
        self.calls: list[tuple[str, str]] = []

    async def image_id(self, image: str) -> str | None:
        self._must_be_there()
        return f"id of {image}" if image in self.present else None

    async def pull(self, image: str) -> AsyncIterator[PullProgress]:
        self.present.add(image)
        yield PullProgress(image=image, detail="pulled", done=True)

    async def check_start(self, spec: ContainerSpec) -> None:
        if error := self.refuses.get(spec.labels["sparkdash.profile"]):
            raise error

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        await self._pass()
        behaviour = self.zoo.get(spec.image) or self.zoo.get(spec.labels["sparkdash.profile"], Behaviour())
        container = Container(spec, behaviour, self.clock.now())
        self.calls.append(("start", container.profile))
        self.here[spec.name] = container
        container.life = asyncio.create_task(self._live(container))
        return self._info(container)

    async def stop(self, name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> Leftovers:
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
        if before_removal is not None:
            await before_removal
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
        if follow and self.deaf:
            return
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
        container = self.of(profile)
        for line in words:
            container.say(line)
        return self.end(container, 1)

    async def remove(self, profile: str) -> None:
        """Somebody else takes its container away: `podman rm -f`."""
        container = self.here.pop(self.of(profile).spec.name)
        await self.end(container, 137)

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
        if does.dies_of_cache and _has_cache(container.spec):
            await self.end(container, 139)
            return
        container.server = await serve_engine(container.profile, container.spec.port, does=does)

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


def _has_cache(spec: ContainerSpec) -> bool:
    return any(any(Path(mount.source).glob("*")) for mount in spec.mounts if not mount.read_only)


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
        self.reading = GpuReading(None)
        self.page_cache: int | None = None
        self.contiguities: list[Contiguity] = []
        """Free blocks that looks give, one after the other; the last one stays."""
        self.own: int | None = None
        """Bytes of each engine's processes, where a test says otherwise than `sizes`."""

    def memory(self) -> Memory:
        held = sum(self.sizes.get(name, 0) for name in self.runtime.running())
        leaked = sum(self.leaks.get(name, 0) for name in self.runtime.stopped)
        available = 120 * GIB - held - self.others - leaked
        return Memory(total=128 * GIB, available=available, free=available, page_cache=self.page_cache)

    def contiguity(self) -> Contiguity | None:
        return self.contiguities.pop(0) if len(self.contiguities) > 1 else next(iter(self.contiguities), None)

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

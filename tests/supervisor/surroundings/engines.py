"""Engines: what each does, and the small HTTP server that it comes up as."""

from __future__ import annotations

import asyncio
import json
import socket
import zlib
from dataclasses import dataclass, field

from aiohttp import web

from sparkdash.domain.container import ContainerSpec, ContainerState, Leftovers


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
    """Answers a chat with a web page."""
    hangs: bool = False
    """Takes a chat and never answers it."""
    health: int = 200
    """Status of its liveness probe."""
    looks: int = 0
    """How often it was probed."""
    wont_stop: bool = False
    heartbeat: bool = False
    """Says the same line for ever."""
    leftovers: Leftovers = field(default_factory=Leftovers)
    """Leftovers that its stop finds."""
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

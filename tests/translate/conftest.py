"""A whole daemon in this process, before engines that are not its own: simulated ones, and scripted ones on a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from simulated import serving

from sparkdash import daemon, upstream
from sparkdash.catalog import Catalog
from sparkdash.domain.profile import EngineKind, Profile, SimSpec, SimSpeed
from sparkdash.domain.request import Request
from sparkdash.host.box import BoxReader
from sparkdash.host.processes.process import Process
from sparkdash.settings import Settings
from sparkdash.supervisor import probe

KEY = "sk-far-0123456789abcdef"
FAST = (SimSpeed(context=0, decode_tok_s=2000, prefill_tok_s=200_000),)


@dataclass
class Engine:
    """An engine that speaks chat completions alone, as `script` says; it keeps what it was asked and who hung up."""

    script: Callable[[dict[str, Any], Answer], Awaitable[None]]
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:")), 0
            )
            body = json.loads(await reader.readexactly(length) or b"{}")
            answer = Answer(reader, writer, self.left)
            if head.startswith("GET"):
                await answer.whole(200, {"object": "list", "data": []})
            elif not head.startswith("POST /v1/chat/completions"):
                await answer.whole(404, {"detail": "Not Found"})
            else:
                self.asked.append(body)
                self.heads.append(head)
                await self.script(body, answer)
        writer.close()
        self.tasks.discard(task)


@dataclass
class Answer:
    """The engine's end of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    left: asyncio.Event

    async def whole(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        self.writer.write(head.encode() + b"Connection: close\r\n\r\n" + data)
        await self.writer.drain()

    async def begin(self) -> None:
        self.writer.write(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await self.writer.drain()

    async def say(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        await self._event({"choices": [choice], **more})

    async def counts(self, prompt: int, completion: int) -> None:
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        await self._event({"choices": [], "usage": usage})

    async def _event(self, body: dict[str, Any]) -> None:
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", **body}
        await self._chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    async def _chunk(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def end(self) -> None:
        await self._chunk(b"data: [DONE]\n\n")
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def until_left(self) -> None:
        """Returns when who asked has hung up."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.left.set()

    def abort(self) -> None:
        self.writer.transport.abort()


async def _silent(_body: dict[str, Any], answer: Answer) -> None:
    await answer.whole(500, {"error": {"message": "no script"}})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """`.house` of the daemon, `.client` to its gateway, `.newest()` row, `.engine` (scripted), `.url`, `.key`; one for a module."""
    root = tmp_path_factory.mktemp("box")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CONFIG", "STATE", "RUNTIME"):
            (root / name.lower()).mkdir()
            patch.setenv(f"SPARKDASH_{name}_DIR", str(root / name.lower()))
        patch.setenv("TEST_FAR_KEY", KEY)
        for module, limit in (
            (probe, "PROBE_S"),
            (upstream.client, "CONNECT_S"),
        ):  # a busy machine is no engine that is away
            patch.setattr(module, limit, 60)
        async with AsyncExitStack() as stack:
            yield await _built(root, stack)


async def _built(root: Path, stack: AsyncExitStack) -> Any:
    engine = Engine(_silent)
    server = await asyncio.start_server(engine.connected, "127.0.0.1", 0)
    stack.callback(server.close)
    engine.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    sim = Profile(name="m", engine=EngineKind.SIM, sim=SimSpec(fault="only-chat", reasoning_tokens=4, speeds=FAST))
    _, sim_url = await stack.enter_async_context(serving(sim))
    far = Profile(
        name="far", engine=EngineKind.REMOTE, url=f"{engine.url}/v1", model_id="org/model", key_env="TEST_FAR_KEY"
    )
    profiles = [
        Profile(name="scripted", engine=EngineKind.OPENAI, url=engine.url, protocols=("chat",), request={"min_p": 0.5}),
        Profile(name="m", engine=EngineKind.OPENAI, url=sim_url),
        far,
        far.model_copy(update={"name": "far/safe", "fallbacks": ("far/unset", "nobody", "m")}),
        far.model_copy(update={"name": "far/unset", "key_env": "TEST_NO_KEY"}),
        far.model_copy(update={"name": "far/nowhere", "url": "http://127.0.0.1:1/v1", "fallbacks": ("m",)}),
        far.model_copy(update={"name": "far/vain", "url": "http://127.0.0.1:1/v1", "fallbacks": ("far/unset",)}),
        Profile(name="down", engine=EngineKind.OPENAI, url="http://127.0.0.1:1", fallbacks=("far/safe", "far")),
    ]
    parts = daemon.Parts(
        settings=(given := Settings(port=0)),
        load_settings=lambda: given,
        runtime=Process(root / "processes"),
        reader=BoxReader(),
        load_catalog=lambda: Catalog({profile.name: profile for profile in profiles}),
    )
    ready: asyncio.Future[daemon.Daemon] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(daemon.serve(parts, ready=ready.set_result))
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    house = ready.result() if ready.done() else await task  # which raises why not

    async def stop() -> None:
        house.server.stop()
        await task

    stack.push_async_callback(stop)
    ended: list[str] = []

    async def note(_request: httpx.Request) -> None:
        ended[:] = [row.id for row in house.bus.snapshot.recent]

    async def newest() -> Request:
        """The row of what `.client` asked last, once it is over; an answer is whole a moment before."""
        seen = house.bus.subscribe()
        try:
            async for _ in seen:
                world = house.bus.snapshot
                if not world.requests and world.recent and world.recent[0].id not in ended:
                    return world.recent[0]
        finally:
            house.bus.unsubscribe(seen)
        raise AssertionError

    hooks = {"request": [note]}
    client = await stack.enter_async_context(httpx.AsyncClient(base_url=house.url, timeout=60, event_hooks=hooks))
    return SimpleNamespace(house=house, client=client, newest=newest, engine=engine, url=house.url, key=KEY)

"""Translator: client of the translator process, with early start and what it has learned of engines.

An engine's key comes with each request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sparkdash.domain.event import Fact, Level, Notice
from sparkdash.domain.profile import ApiProtocol, Profile
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import HostError, UpstreamError
from sparkdash.gateway.child_process import ChildProcess
from sparkdash.gateway.protocol.route import Route
from sparkdash.paths import PYTHON, install_command
from sparkdash.units import duration, gib


class Translator(ChildProcess):
    """Client of the translator; an async context manager. `publish` gets a notice of its start and size."""

    name = "translator"
    packages = ("litellm",)

    def __init__(
        self,
        folder: Path,
        idle_s: float,
        publish: Callable[[Fact], object],
        argv: Sequence[str] = (*PYTHON, "-m", "sparkdash.gateway.translate"),
    ) -> None:
        super().__init__(folder, idle_s, argv)
        self._publish = publish
        self.unsupported: set[tuple[str, float | None, str]] = set()
        """Incarnations of engines, with the paths that they answered with 404."""
        self._early: asyncio.Task[None] | None = None

    async def __aexit__(self, *_: object) -> None:
        if self._early:
            self._early.cancel()
        await super().__aexit__()

    def start_early(self) -> None:
        """Start the translator while a request that needs it still waits for its engine."""
        if self._running is None and not self._starting.locked() and self.installed:
            self._early = asyncio.ensure_future(self._start_early())
            self._keep(self._early)

    async def _start_early(self) -> None:
        with suppress(HostError), self._in_use():  # the request that needs it gets the error
            await self._started()

    def on_started(self, rss: int | None) -> None:
        """Publish a notice with the translator's memory."""
        size = f"It takes {gib(rss)} of memory and ends after {duration(self._idle_s)} without use."
        text = f"The translator has started, as an engine does not speak its client's protocol. {size}"
        self._publish(Notice(level=Level.INFO, code="translator_started", text=text))

    def broke_off_error(self) -> UpstreamError:
        words = "The engine broke off in the middle of its answer, which was being translated."
        return UpstreamError(words, code="engine_died")

    def not_installed_error(self) -> HostError:
        """Build the error for a missing installation, with a status that no client retries."""
        return HostError(
            "This engine does not speak the request's protocol, and the translator is not installed.",
            code="translator_missing",
            status=501,
            hint=(f"Install it with `{install_command('translate')}`, or have the client use chat completions."),
        )


TRANSLATED = {"/v1/messages": ApiProtocol.MESSAGES, "/v1/responses": ApiProtocol.RESPONSES}
"""Paths that can be sent as a chat instead."""


def needs_translation(profile: Profile, version: str | None, route: Route) -> bool | None:
    """Return whether to translate: False: not needed or impossible; None: only the engine's 404 tells."""
    protocol = TRANSLATED.get(route.path) if route.profile is None else None
    return False if protocol is None else adapter_of(profile).lacks_protocol(profile, version, protocol)


ENGINE = "x-sparkdash-engine"
"""Request: base URL, with /v1, of the engine. Its key, if any, is in Authorization."""
FAULT = b"x-sparkdash-fault"
"""Answer: not from an engine. `unreachable`: the engine did not answer; the body says why."""
UNREACHABLE = b"unreachable"


IDLE_S = 60.0
"""Time after which the translator would end by itself; it ends with the last request."""
_ANSWER = json.dumps({
    "id": "x", "object": "chat.completion", "created": 0, "model": "x",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}).encode()  # fmt: skip
"""Answer of the stand-in; nobody reads it."""


async def chats_of_requests(requests: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Mapping[str, Any] | None]:
    """Return the chat of each request (path, body), in their order; None: the translator refuses it.

    The translator is one of its own: a daemon that runs has another one, and its socket in the runtime folder.

    Raises:
        HostError: translator_missing, or it does not start.
    """
    with TemporaryDirectory(prefix="sparkdash-") as folder:
        async with _Engine().serving() as engine, Translator(Path(folder), IDLE_S, lambda _: None) as translator:
            return [await _chat(translator, engine, path, body) for path, body in requests]


async def _chat(
    translator: Translator, engine: _Engine, path: str, body: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    engine.asked = None
    headers = [(b"content-type", b"application/json"), (ENGINE.encode(), f"{engine.url}/v1".encode())]
    asked = json.dumps({**body, "model": "x", "stream": False}).encode("utf-8", "replace")
    with suppress(UpstreamError):
        async with translator.open(path, headers, asked) as answer:
            async for _ in answer.chunks():
                pass
    return engine.asked


class _Engine:
    """Engine that answers every chat with one word, and keeps the last one."""

    url = ""
    asked: Mapping[str, Any] | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[_Engine]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next(line[15:] for line in head.splitlines() if line.startswith(b"content-length:"))
            self.asked = json.loads(await reader.readexactly(int(length)))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(_ANSWER), _ANSWER))
            await writer.drain()
        writer.close()

"""Chats of requests in other protocols: what the translator would ask an engine that only speaks chat completions.

Owns: a stand-in for that engine, which keeps what it is asked. Must not know: what the chats are for.
So a captured request of Claude Code or Codex becomes the very chat that an engine would get.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sparkdash.errors import UpstreamError
from sparkdash.gateway.translate.translator import Translator
from sparkdash.gateway.translate.words import ENGINE

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

"""`python -m sparkdash.gateway.translate --fd N`: the translator, a process of its own.

Owns: HTTP towards the gateway, on a socket that the gateway made. Its standard input is the gateway's hand: when that
closes, whoever held it is gone, and so is the translator.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from sparkdash import listen
from sparkdash.errors import AdmissionError
from sparkdash.gateway import problems
from sparkdash.gateway.route import Dialect, understand
from sparkdash.gateway.translate import litellm_calls
from sparkdash.gateway.translate.words import ENGINE, FAULT, READY, UNREACHABLE

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = (b"content-type", b"application/json")
STREAM = (b"content-type", b"text/event-stream; charset=utf-8")


async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """One request, until it is answered or the gateway hangs up, which ends it at the engine too."""
    body = await _body(receive)
    work = asyncio.ensure_future(_answer(scope, body, send))
    gone = asyncio.ensure_future(_gone(receive))
    await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if not work.done():
        work.cancel()
    with suppress(asyncio.CancelledError):
        await work


async def _body(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(scope: MutableMapping[str, Any], body: bytes, send: Send) -> None:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    path = scope["path"]
    try:
        answer = await litellm_calls.ask(path, json.loads(body), headers[ENGINE], headers.get("authorization"))
    except litellm_calls.Unreachable as error:
        await _whole(send, 502, str(error).encode("utf-8", "replace"), (FAULT, UNREACHABLE))
    except litellm_calls.Refused as error:
        await _whole(send, error.status, _refusal(error, path), JSON)
    else:
        await (_whole(send, 200, answer, JSON) if isinstance(answer, bytes) else _stream(send, answer))


async def _whole(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def _stream(send: Send, frames: AsyncIterator[bytes]) -> None:
    """What goes wrong in here ends the connection before its time: the gateway has the words for that."""
    await send({"type": "http.response.start", "status": 200, "headers": [STREAM]})
    async for frame in frames:
        await send({"type": "http.response.body", "body": frame, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _refusal(error: litellm_calls.Refused, path: str) -> bytes:
    route = understand(path)
    words = AdmissionError(str(error), code=error.code, status=error.status)
    told = problems.envelope(words, route.dialect if route else Dialect.OTHER)
    told["error"] |= {"src": "engine" if error.code == "engine_refused" else "sparkdash"}
    return problems.encode(told)


async def _serve(fd: int) -> None:
    server = listen.Server(app)
    loop = asyncio.get_running_loop()

    def released() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            server.stop()

    loop.add_reader(0, released)
    loop.call_soon(_say_ready)
    await server.serve(sockets=[socket.socket(fileno=fd)])


def _say_ready() -> None:
    """The socket listens since it was made: what came meanwhile is waiting in it."""
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m sparkdash.gateway.translate")
    parser.add_argument("--fd", type=int, required=True, help="a listening socket")
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a stream that broke off is told by its end
    asyncio.run(_serve(parser.parse_args().fd))
    os._exit(0)  # taking litellm's modules down in order takes a second, and the daemon's end waits for ours


if __name__ == "__main__":
    main()

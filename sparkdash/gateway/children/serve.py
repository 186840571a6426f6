"""The child's own side: an HTTP server on a socket that the daemon made.

Owns: the server's life: it ends when standard input closes, as that means that the daemon is gone.
Must not know what is served.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from sparkdash import listen

READY = b"ready\n"
"""Line on standard output that says that the server answers."""
JSON = (b"content-type", b"application/json")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def serve_child(app: App, program: str) -> None:
    """Serve `app` until standard input ends; `program` is how the process was started, for its usage."""
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--fd", type=int, required=True, help="a listening socket")
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # the gateway sees a broken stream by its end
    asyncio.run(_serve(app, parser.parse_args().fd))
    os._exit(0)  # an orderly exit with litellm takes a second, and the daemon waits for it


async def read_body(receive: Receive) -> bytes:
    """Read a request's whole body."""
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def send_answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Send a whole answer at once."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def _serve(app: App, fd: int) -> None:
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
    os.dup2(2, 1)  # the pipe is not read any more: a library that prints would fill it and block

"""`python -m sparkdash.gateway.translate --fd N`: the translator, a child process of the daemon.

`child_process` has the server and its life.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.child_process import JSON, Message, Receive, Send, read_body, send_answer, serve_child
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.route import Dialect, find_route
from sparkdash.gateway.translate import litellm_calls
from sparkdash.gateway.translate.translator import ENGINE, FAULT, UNREACHABLE

STREAM = (b"content-type", b"text/event-stream; charset=utf-8")


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Answer one request; if the gateway hangs up, the engine's request ends too."""
    body = await read_body(receive)
    work = asyncio.ensure_future(_answer(scope, body, send))
    gone = asyncio.ensure_future(_gone(receive))
    await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if not work.done():
        work.cancel()
    with suppress(asyncio.CancelledError):
        await work


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(scope: Message, body: bytes, send: Send) -> None:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    path = scope["path"]
    try:
        answer = await litellm_calls.ask_as_chat(path, json.loads(body), headers[ENGINE], headers.get("authorization"))
    except litellm_calls.EngineUnreachable as error:
        await send_answer(send, 502, str(error).encode("utf-8", "replace"), (FAULT, UNREACHABLE))
    except litellm_calls.TranslationRefused as error:
        await send_answer(send, error.status, _refusal(error, path), JSON)
    else:
        await (send_answer(send, 200, answer, JSON) if isinstance(answer, bytes) else _stream(send, answer))


async def _stream(send: Send, frames: AsyncIterator[bytes]) -> None:
    """Stream the frames. A failure breaks the connection off; the gateway has the words for that."""
    await send({"type": "http.response.start", "status": 200, "headers": [STREAM]})
    async for frame in frames:
        await send({"type": "http.response.body", "body": frame, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _refusal(error: litellm_calls.TranslationRefused, path: str) -> bytes:
    route = find_route(path)
    family = AdmissionError if error.status < 500 else SparkdashError  # an engine's failure may be retried
    words = family(str(error), code=error.code, status=error.status)
    refusal = problems.error_body(words, route.dialect if route else Dialect.OTHER)
    refusal["error"] |= {"src": "engine" if error.code == "engine_refused" else "sparkdash"}
    return problems.encode_json(refusal)


if __name__ == "__main__":
    serve_child(app, "python -m sparkdash.gateway.translate")

"""`python -m sparkdash.gateway.translate --fd N`: the translator, a child process of the daemon.

`child_process` has the server and its life.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Collection
from contextlib import suppress

from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.child_process import JSON, Message, Receive, Send, read_body, send_answer, serve_child
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.frames import failure_frames
from sparkdash.gateway.protocol.route import Dialect, find_route
from sparkdash.gateway.protocol.tap import Tap
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
    path, asked = scope["path"], json.loads(body)
    try:
        answer = await litellm_calls.ask_as_chat(path, asked, headers[ENGINE], headers.get("authorization"))
    except litellm_calls.EngineUnreachable as error:
        await send_answer(send, 502, str(error).encode("utf-8", "replace"), (FAULT, UNREACHABLE))
    except litellm_calls.TranslationRefused as error:
        await send_answer(send, error.status, _refusal(error, path), JSON)
    else:
        if isinstance(answer, bytes):
            await send_answer(send, 200, answer, JSON)
        else:
            await _stream(send, answer, _dialect(path), str(asked.get("model", "")))


async def _stream(send: Send, frames: AsyncIterator[bytes], dialect: Dialect, model: str) -> None:
    """Stream the frames. The engine's own error ends them; its death breaks the connection off."""
    await send({"type": "http.response.start", "status": 200, "headers": [STREAM]})
    tap = Tap(dialect)
    try:
        async for frame in frames:
            tap.feed(frame, 0.0)
            await send({"type": "http.response.body", "body": frame, "more_body": True})
    except litellm_calls.TranslationRefused as error:
        last = failure_frames(
            _error(error, passing=(429,)),
            dialect,
            model=model,
            now=time.time(),
            response_id=tap.response_id or "",
            sequence=tap.sequence,
        )
        await send({"type": "http.response.body", "body": last, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _dialect(path: str) -> Dialect:
    route = find_route(path)
    return route.dialect if route else Dialect.OTHER


def _error(error: litellm_calls.TranslationRefused, *, passing: Collection[int] = ()) -> SparkdashError:
    """Make the error; an engine's failure, and a `passing` status, may be tried again."""
    family = SparkdashError if error.status >= 500 or error.status in passing else AdmissionError
    return family(str(error), code=error.code, status=error.status)


def _refusal(error: litellm_calls.TranslationRefused, path: str) -> bytes:
    refusal = problems.error_body(_error(error), _dialect(path))
    refusal["error"] |= {"src": "engine" if error.code == "engine_refused" else "sparkdash"}
    return problems.encode_json(refusal)


if __name__ == "__main__":
    serve_child(app, "python -m sparkdash.gateway.translate")

"""A stand-in for an engine that takes any parameters: well-formed answers on the routes that engines have, an empty object
elsewhere. It notes each request's method, path and the digest of its JSON in the file that it is given.

What it answers was written by hand from the SDKs' types; no model is behind it. Prints its address on stderr.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
RESPONSE_USAGE = {
    "input_tokens": 3, "output_tokens": 2, "total_tokens": 5,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
}  # fmt: skip
MODEL = {
    "id": "model",
    "object": "model",
    "created": 0,
    "owned_by": "x",
    "type": "model",
    "display_name": "model",
    "created_at": "2026-01-01T00:00:00Z",
    "lifecycle": "active",
}
CHAT = {"id": "chatcmpl-1", "created": 0, "model": "model"}


def chat(body: dict[str, Any]) -> Any:
    if not body.get("stream"):
        message = {"role": "assistant", "content": "well", "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return CHAT | {"object": "chat.completion", "choices": [choice], "usage": USAGE}
    delta = {"index": 0, "delta": {"role": "assistant", "content": "well"}, "logprobs": None, "finish_reason": None}
    chunk = CHAT | {"object": "chat.completion.chunk"}
    end = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    counts = (
        [chunk | {"choices": [], "usage": USAGE}] if (body.get("stream_options") or {}).get("include_usage") else []
    )
    return [("", one) for one in (chunk | {"choices": [delta]}, chunk | {"choices": [end]}, *counts)]


def completion(body: dict[str, Any]) -> Any:
    choice = {"index": 0, "text": "well", "logprobs": None, "finish_reason": "stop"}
    made = CHAT | {"object": "text_completion", "choices": [choice], "usage": USAGE}
    return [("", made)] if body.get("stream") else made


def response(body: dict[str, Any]) -> Any:
    text = {"type": "output_text", "text": "well", "annotations": [], "logprobs": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    made = {
        "id": "resp_1", "object": "response", "created_at": 0, "status": "completed", "model": "model", "output": [message],
        "error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True,
        "temperature": 1, "tool_choice": "auto", "tools": [], "top_p": 1, "usage": RESPONSE_USAGE,
    }  # fmt: skip
    if not body.get("stream"):
        return made
    begun = made | {"status": "in_progress", "output": [], "usage": None}
    delta = {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "well",
        "logprobs": [],
    }
    told = [
        {"type": "response.created", "response": begun}, delta, {"type": "response.completed", "response": made},
    ]  # fmt: skip
    return [(event["type"], event | {"sequence_number": number}) for number, event in enumerate(told)]


def message(body: dict[str, Any]) -> Any:
    usage = {"input_tokens": 3, "output_tokens": 2}
    made = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "model", "stop_reason": "end_turn", "stop_sequence": None,
        "content": [{"type": "text", "text": "well", "citations": None}], "usage": usage,
    }  # fmt: skip
    if not body.get("stream"):
        return made
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": made | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "well"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return [(event["type"], event) for event in told]


def embedding(_body: dict[str, Any]) -> Any:
    data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]
    return {"object": "list", "model": "model", "data": data, "usage": {"prompt_tokens": 3, "total_tokens": 3}}


AT = "2026-01-01T00:00:00Z"
COUNTS = dict.fromkeys(("canceled", "errored", "expired", "processing", "succeeded"), 0)
BATCH = {
    "id": "b_1", "type": "message_batch", "created_at": AT, "expires_at": AT, "processing_status": "ended", "request_counts": COUNTS,
}  # fmt: skip
FILE = {
    "id": "file_1", "object": "file", "bytes": 1, "created_at": 0, "filename": "x", "purpose": "batch", "status": "processed",
}  # fmt: skip
PAGE = {"object": "list", "has_more": False, "first_id": None, "last_id": None}
COMPACTED = {
    "id": "resp_2", "object": "response.compaction", "created_at": 0, "output": [], "usage": RESPONSE_USAGE,
    "context_compression": "enabled",
}  # fmt: skip

Made = Callable[[dict[str, Any]], Any]


def always(made: Any) -> Made:
    return lambda _body: made


ROUTES: list[tuple[str, Made]] = [
    ("POST /v1/chat/completions", chat),
    ("(GET|POST) /v1/chat/completions/[^/]+", lambda _body: chat({})),
    ("DELETE /v1/chat/completions/.*", always({"id": "c", "object": "chat.completion.deleted", "deleted": True})),
    ("GET /v1/chat/completions.*", always(PAGE | {"data": []})),
    ("POST /v1/completions", completion),
    ("POST /v1/responses/input_tokens", always({"object": "response.input_tokens", "input_tokens": 3})),
    ("POST /v1/responses/compact", always(COMPACTED)),
    ("GET /v1/responses/[^/]+/input_items", always(PAGE | {"data": []})),
    ("(GET|POST) /v1/responses.*", response),
    ("POST /v1/messages", message),
    ("POST /v1/messages/count_tokens", always({"input_tokens": 3})),
    ("GET /v1/messages/batches", always(PAGE | {"data": [BATCH]})),
    ("DELETE /v1/messages/batches/.*", always({"id": "b_1", "type": "message_batch_deleted"})),
    ("(GET|POST) /v1/messages/batches.*", always(BATCH)),
    ("POST /v1/embeddings", embedding),
    ("POST /v1/moderations", always({"id": "m", "model": "model", "results": []})),
    ("POST /v1/images/.*", always({"created": 0, "data": []})),
    ("POST /v1/audio/(transcriptions|translations)", always({"text": "well"})),
    ("GET /v1/files", always(PAGE | {"data": [FILE]})),
    ("DELETE /v1/files/.*", always({"id": "file_1", "object": "file", "deleted": True})),
    ("(GET|POST) /v1/files.*", always(FILE)),
    ("GET /v1/models", always(PAGE | {"data": [MODEL]})),
    ("GET /v1/models/.*", always(MODEL)),
]


def framed(events: list[tuple[str, Any]], *, done: bool) -> Iterator[bytes]:
    for name, event in events:
        yield (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(event).encode() + b"\n\n"
    if done:
        yield b"data: [DONE]\n\n"


async def answered(request: web.Request) -> web.StreamResponse:
    raw = await request.read()
    try:
        body = json.loads(raw)
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    noted(request, raw, body)
    asked = f"{request.method} {request.path}"
    made = next((make for pattern, make in ROUTES if re.fullmatch(pattern, asked)), always({}))(body)
    if not isinstance(made, list):
        return web.json_response(made)
    reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await reply.prepare(request)
    for frame in framed(made, done="completions" in request.path):
        await reply.write(frame)
    return reply


def noted(request: web.Request, raw: bytes, body: dict[str, Any]) -> None:
    """A line of what came, but for what differs from run to run: the model's name and a multipart body's boundary."""
    kind = request.content_type
    if boundary := request.headers.get("content-type", "").partition("boundary=")[2]:
        raw = _MODEL_PART.sub(b"", raw.replace(boundary.encode(), b""))
    rest = json.dumps({**body, "model": ""}, sort_keys=True).encode() if body else raw
    what = hashlib.sha256(rest).hexdigest()[:8]
    print(request.method, request.path_qs, kind, what, sorted(body), file=request.app[NOTES], flush=True)


_MODEL_PART = re.compile(rb'name="model"\r\n\r\n[^\r]*')
NOTES: web.AppKey[Any] = web.AppKey("notes", object)


async def serve(notes: Path) -> None:
    with notes.open("w") as file:
        app = web.Application(client_max_size=1 << 28)
        app[NOTES] = file
        app.router.add_route("*", "/{tail:.*}", answered)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        print(f"serving http://127.0.0.1:{port}", file=sys.stderr, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))

"""Ollama's embeddings over /v1/embeddings: /api/embed, and the older /api/embeddings.

Owns: both formats, there and back, and the request that passthrough gets in the client's place. Must not know leases.
Source of the shapes: Ollama's docs/api.md and its Python client 0.6.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sparkdash.errors import AdmissionError
from sparkdash.gateway.apis.ollama_chat import HEADERS, error_text, redirect_scope
from sparkdash.gateway.apis.ollama_wire import nanoseconds
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.asgi import Message, replay_body
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.relay import passthrough

WORDS = frozenset({"embed", "embeddings"})
PATH = "/v1/embeddings"


async def relay_embedding(deps: Deps, exchange: Exchange, body: Mapping[str, Any], name: str, *, older: bool) -> None:
    """Answer one request whose model is `name` here. `older`: in the shape of /api/embeddings."""
    scope, receive, send = exchange.asgi_triple()
    begun, status, kept, raw = deps.monotonic(), 200, list[tuple[bytes, bytes]](), bytearray()

    async def take(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            kept.extend(pair for pair in message["headers"] if pair[0] in (b"retry-after", b"x-should-retry"))
            return
        raw.extend(message.get("body", b""))
        if not message.get("more_body", False):
            took = nanoseconds(deps.monotonic() - begun)
            code, answer = _client_answer(status, bytes(raw), str(body.get("model")), took, older=older)
            text = problems.encode_json(answer)
            headers = [*HEADERS, *kept, (b"content-length", b"%d" % len(text))]
            await send({"type": "http.response.start", "status": code, "headers": headers})
            await send({"type": "http.response.body", "body": text, "more_body": False})

    request_body = problems.encode_json({"model": name, **parse_embed_request(body, older=older)})
    inner = Exchange.from_asgi(
        redirect_scope(scope, PATH), replay_body(request_body, receive), take, exchange.key, collected=True
    )
    await passthrough.relay_request(deps, inner)


def parse_embed_request(body: Mapping[str, Any], *, older: bool) -> dict[str, Any]:
    """Translate the request into OpenAI's format, without the model.

    Raises:
        AdmissionError: there is nothing to embed, or it is no text.
    """
    key, allowed = ("prompt", "a text") if older else ("input", "a text, or a list of texts")
    texts = body.get(key)
    each = texts if isinstance(texts, list) and not older else [texts]
    if not each or not all(isinstance(text, str) for text in each):
        raise AdmissionError(f"{key} must be {allowed}.", code="invalid_request")
    request = {"input": texts, "encoding_format": "float"}
    size = body.get("dimensions")
    if size and isinstance(size, int):
        request["dimensions"] = size
    return request


def _client_answer(status: int, raw: bytes, model: str, took: int, *, older: bool) -> tuple[int, dict[str, Any]]:
    """Return status and body for the client."""
    try:
        reply = json.loads(raw)
    except ValueError:
        reply = {"error": {"message": raw[:500].decode("utf-8", "replace")}}
    if status >= 400:
        return status, {"error": error_text(reply)}
    try:
        vectors = [item["embedding"] for item in sorted(reply["data"], key=lambda item: item["index"])]
        counted = (reply.get("usage") or {}).get("prompt_tokens")
    except (KeyError, TypeError, AttributeError):
        return 502, {"error": "The engine's answer has no embeddings in it."}
    if older:
        return status, {"embedding": vectors[0] if vectors else []}
    counts = {} if counted is None else {"prompt_eval_count": counted}
    return status, {"model": model, "embeddings": vectors, "total_duration": took, **counts}

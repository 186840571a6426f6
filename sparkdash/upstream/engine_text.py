"""Words: what an engine says in an error's body, and in a short chat. Pure but for the answer it reads."""

from __future__ import annotations

import json
from typing import Any

from sparkdash.errors import UpstreamError
from sparkdash.sse import Lines
from sparkdash.upstream.engine_response import EngineResponse

WORDS_LIMIT = 600
GENERATE_TOKENS = 16


def engine_error_text(body: bytes) -> str:
    """What an engine's error body says, shortened; engines put it in `error`, `error.message`, `message` or `detail`."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = body.decode("utf-8", "replace").strip()
    for key in ("error", "message", "detail"):
        value = value.get(key) or value if isinstance(value, dict) else value
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:WORDS_LIMIT] or "nothing"


def refused(where: str, status: int, body: bytes) -> UpstreamError:
    """An engine's error, in its own words: code `engine_refused`. `where` is host:port."""
    return UpstreamError(f"The engine at {where} answered {status}: {engine_error_text(body)}", code="engine_refused")


def short_chat(model: str) -> bytes:
    """The body of a streamed chat of a few tokens, at temperature 0."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Count from one to five."}],
        "max_tokens": GENERATE_TOKENS,
        "temperature": 0,
        "stream": True,
    }
    return json.dumps(body).encode()


async def text_of(answer: EngineResponse, where: str) -> str:
    """All text of a streamed chat, content and reasoning, in order.

    It may be none where the answer was cut by its length: reasoning that an engine keeps to itself was generated all the same.

    Raises:
        UpstreamError: `engine_refused`; `engine_mute` when the answer ended by itself and there was no text in it.
    """
    texts: list[str] = []
    cut = False
    lines = Lines()
    async for chunk in answer.chunks():
        for choice in (choice for line in lines.feed(chunk) for choice in _choices(line.strip(), where)):
            delta = choice.get("delta") or {}
            texts += (delta[key] for key in ("reasoning", "reasoning_content", "content") if delta.get(key))
            cut = cut or choice.get("finish_reason") == "length"
    text = "".join(texts)
    if not (cut or text.strip()):
        raise UpstreamError("its answer was empty", code="engine_mute")
    return text


def _choices(line: str, where: str) -> list[dict[str, Any]]:
    if not line.startswith("data:") or line.endswith("[DONE]"):
        return []
    try:
        event = json.loads(line[5:])
    except (ValueError, RecursionError):
        raise refused(where, 200, line.encode()) from None
    if not isinstance(event, dict) or "error" in event:
        raise refused(where, 200, line[5:].encode())
    return event.get("choices") or []

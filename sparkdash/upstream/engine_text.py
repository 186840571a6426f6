"""Text of engines: of an error's body, and of a short chat.

Owns: where engines put it. Must not know connections: a chat is read from an EngineResponse.
"""

from __future__ import annotations

import json
from typing import Any

from sparkdash.errors import UpstreamError
from sparkdash.sse import Lines
from sparkdash.upstream.engine_response import EngineResponse

ERROR_TEXT_LIMIT = 600
GENERATE_TOKENS = 16


def engine_error_text(body: bytes) -> str:
    """Return the text of an engine's error body, shortened.

    Engines put it in `error`, `error.message`, `message` or `detail`.
    """
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = body.decode("utf-8", "replace").strip()
    for key in ("error", "message", "detail"):
        value = value.get(key) or value if isinstance(value, dict) else value
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:ERROR_TEXT_LIMIT] or "nothing"


def engine_refused(where: str, status: int, body: bytes) -> UpstreamError:
    """Make the error of an engine's error answer: code `engine_refused`. `where`: host:port."""
    return UpstreamError(f"The engine at {where} answered {status}: {engine_error_text(body)}", code="engine_refused")


def short_chat(model: str) -> bytes:
    """Make the body of a streamed chat of a few tokens, at temperature 0."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Count from one to five."}],
        "max_tokens": GENERATE_TOKENS,
        "temperature": 0,
        "stream": True,
    }
    return json.dumps(body).encode()


async def chat_text(answer: EngineResponse, where: str) -> str:
    """Return all text of a streamed chat, content and reasoning, in order.

    The text of an answer that was cut by its length may be empty: some engines do not show their reasoning.

    Raises:
        UpstreamError: `engine_refused`; `engine_mute` when the answer ended by itself and contains no text.
    """
    texts: list[str] = []
    cut = False
    lines = Lines()
    async for chunk in answer.chunks():
        for choice in (choice for line in lines.feed(chunk) for choice in _choices(line.strip(), where)):
            texts += _delta_texts(choice)
            cut = cut or choice.get("finish_reason") == "length"
    text = "".join(texts)
    if not (cut or text.strip()):
        raise UpstreamError("its answer was empty", code="engine_mute")
    return text


def _delta_texts(choice: dict[str, Any]) -> list[str]:
    delta = choice.get("delta") or {}
    return [delta[key] for key in ("reasoning", "reasoning_content", "content") if delta.get(key)]


def _choices(line: str, where: str) -> list[dict[str, Any]]:
    if not line.startswith("data:") or line.endswith("[DONE]"):
        return []
    try:
        event = json.loads(line[5:])
    except (ValueError, RecursionError):
        raise engine_refused(where, 200, line.encode()) from None
    if not isinstance(event, dict) or "error" in event:
        raise engine_refused(where, 200, line[5:].encode())
    return event.get("choices") or []

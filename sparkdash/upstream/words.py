"""Words: what an engine says in an error's body, and in a short chat. Pure but for the answer it reads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from sparkdash.errors import UpstreamError
from sparkdash.upstream.answer import Answer

WORDS_LIMIT = 600
GENERATE_TOKENS = 16


def engine_words(body: bytes) -> str:
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
    return UpstreamError(f"The engine at {where} answered {status}: {engine_words(body)}", code="engine_refused")


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


async def texts(answer: Answer, where: str) -> AsyncIterator[str]:
    """All text of a streamed chat, content and reasoning, in order. Raises UpstreamError `engine_refused`."""
    rest = b""
    async for chunk in answer.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            for text in _texts_of(line.strip(), where):
                yield text


def _texts_of(line: bytes, where: str) -> Iterator[str]:
    if not line.startswith(b"data:") or line.endswith(b"[DONE]"):
        return
    try:
        event = json.loads(line[5:])
    except (ValueError, RecursionError):
        raise refused(where, 200, line) from None
    if not isinstance(event, dict) or "error" in event:
        raise refused(where, 200, line[5:])
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        yield from (delta[key] for key in ("reasoning", "reasoning_content", "content") if delta.get(key))

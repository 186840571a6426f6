"""One request of any protocol, and what became of it in a word: whole, told with a reason, left, or wrong."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

WHOLE, LEFT, GONE = "answered whole", "left by its client", "WRONG no end"


@dataclass(frozen=True)
class Protocol:
    """How one asks, and what the last word of a whole stream is."""

    path: str
    asks: str
    limit: str
    last: str


PROTOCOLS = (
    Protocol("/v1/chat/completions", "messages", "max_tokens", "[DONE]"),
    Protocol("/v1/completions", "prompt", "max_tokens", "[DONE]"),
    Protocol("/v1/messages", "messages", "max_tokens", "message_stop"),
    Protocol("/v1/responses", "input", "max_output_tokens", "response.completed"),
)


def is_wrong(end: str) -> bool:
    """Is that an end which no request may have?"""
    return "WRONG" in end


async def ask(http: httpx.AsyncClient, profile: str, rng: random.Random, tokens: int, *, leaves: bool) -> str:
    """Ask, and say what came of it."""
    protocol, stream = rng.choice(PROTOCOLS), leaves or rng.random() < 0.6
    text = f"{rng.random()} {'word ' * rng.choice((3, 30, 300))}"
    given: Any = text if protocol.asks != "messages" else [{"role": "user", "content": text}]
    body = {"model": profile, protocol.asks: given, protocol.limit: tokens, "stream": stream, "ignore_eos": True}
    try:
        async with http.stream("POST", protocol.path, json=body) as reply:
            if reply.status_code != 200:
                return _refused(reply.status_code, await reply.aread())
            if not stream:
                return _whole(await reply.aread())
            return await _streamed(reply.aiter_lines(), protocol.last, leaves=leaves)
    except httpx.HTTPError as error:
        return f"WRONG {type(error).__name__}: {error}"


async def _streamed(lines: AsyncIterator[str], last: str, *, leaves: bool) -> str:
    ended = False
    async for line in lines:
        if not line.startswith("data: "):
            continue
        if leaves:
            return LEFT
        data = line[6:]
        if data == "[DONE]":
            ended = ended or last == data
            continue
        event = json.loads(data)
        if error := event.get("error") or (event.get("response") or {}).get("error"):
            return f"told in its stream: {_code(error)}"
        if event.get("type") == "error":
            return f"told in its stream: {_code(event)}"
        ended = ended or event.get("type") == last
    return WHOLE if ended else f"WRONG a stream without an end ({last})"


def _whole(body: bytes) -> str:
    answer = json.loads(body)
    if error := answer.get("error"):
        return f"told in its answer: {_code(error)}"
    return WHOLE


def _refused(status: int, body: bytes) -> str:
    try:
        return f"told by status {status}: {_code(json.loads(body)['error'])}"
    except (ValueError, KeyError, TypeError):
        return f"WRONG status {status} without a reason: {body[:100]!r}"


def _code(error: dict[str, Any]) -> str:
    if not error.get("message"):
        return "WRONG without a message"
    return str(error.get("code") or error.get("type"))

"""Captured requests of the owner as the prompts of a suite.

Owns: which captured requests become prompts, and their format. Must not know: files, the gateway.
Rule: their text stays in the file beside the suite. A run keeps their digests, never their words.
Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

TEXT = "captured"
"""Class of text of cells with captured requests."""
ROUTE = "/v1/chat/completions"
TRANSLATED = ("/v1/messages", "/v1/responses")
"""Routes whose requests become chats once they are translated."""
VOLATILE = frozenset({"client_metadata", "metadata", "model", "prompt_cache_key", "stream", "temperature"})
"""Fields of a request to another route that do not make it a different one."""
KEPT = ("messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "chat_template_kwargs")
"""Fields of a request that the engine reads. The cell decides how much it answers."""
UNFORCED = ("response_format",)
"""Fields that cells of a forced length leave out: a grammar ends an answer by itself."""

Chat = Mapping[str, Any]
CapturedRequest = tuple[str, Mapping[str, Any]]
"""Route, and the body as far as it counts."""


def select_requests(lines: Iterable[str], most: int) -> tuple[tuple[CapturedRequest, ...], int]:
    """Return the last `most` different requests of a capture file that can become chats, oldest first, and the number
    of other lines.
    """
    found: dict[str, CapturedRequest] = {}
    others = 0
    for line in lines:
        request = _request(line)
        if request is None:
            others += 1
        else:
            digest = chats_digest([{"path": request[0], **request[1]}])
            found.pop(digest, None)
            found[digest] = request
    return tuple(found.values())[-most:], others


def different_chats(bodies: Iterable[Mapping[str, Any]]) -> tuple[Chat, ...]:
    """Return the chats of the bodies of chat requests, each once, at its last place; bodies without messages are left
    out.
    """
    found: dict[str, Chat] = {}
    for body in bodies:
        if _has_messages(body):
            chat = _kept(body)
            found.pop(chats_digest([chat]), None)
            found[chats_digest([chat])] = chat
    return tuple(found.values())


def chats_digest(chats: Sequence[Chat]) -> str:
    """Return the SHA-256 of the chats."""
    return hashlib.sha256("\n".join(map(chat_line, chats)).encode()).hexdigest()


def chat_line(chat: Chat) -> str:
    """Serialize a chat as a line of the prompts file."""
    return json.dumps(chat, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _request(line: str) -> CapturedRequest | None:
    """Return a captured request that can become a chat; None for another route, and for one too long to be kept."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    path, body = (entry.get("path"), entry.get("body")) if isinstance(entry, dict) else (None, None)
    if not isinstance(body, dict):
        return None
    if path == ROUTE:
        return (path, _kept(body)) if _has_messages(body) else None
    if path not in TRANSLATED:
        return None
    return path, {name: value for name, value in body.items() if name not in VOLATILE and value is not None}


def _kept(body: Mapping[str, Any]) -> Chat:
    return {name: body[name] for name in KEPT if body.get(name) is not None}


def _has_messages(body: Mapping[str, Any]) -> bool:
    messages = body.get("messages")
    return isinstance(messages, list) and bool(messages) and all(isinstance(one, dict) for one in messages)

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
KEPT = ("messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "chat_template_kwargs")
"""Fields of a request that the engine reads. The cell decides how much it answers."""
UNFORCED = ("response_format",)
"""Fields that cells of a forced length leave out: a grammar ends an answer by itself."""

Chat = Mapping[str, Any]


def select_chats(lines: Iterable[str], most: int) -> tuple[tuple[Chat, ...], int]:
    """Return the last `most` different chats of a capture file, oldest first, and the number of other lines."""
    found: dict[str, Chat] = {}
    others = 0
    for line in lines:
        chat = _chat(line)
        if chat is None:
            others += 1
        else:
            found.pop(chats_digest([chat]), None)
            found[chats_digest([chat])] = chat
    return tuple(found.values())[-most:], others


def chats_digest(chats: Sequence[Chat]) -> str:
    """Return the SHA-256 of the chats."""
    return hashlib.sha256("\n".join(map(chat_line, chats)).encode()).hexdigest()


def chat_line(chat: Chat) -> str:
    """Serialize a chat as a line of the prompts file."""
    return json.dumps(chat, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def chats_text(chats: Iterable[Chat]) -> str:
    """Return the words of all messages, for needles to lie in."""
    contents = (message.get("content") for chat in chats for message in chat["messages"])
    return "\n\n".join(text for content in contents for text in _texts(content))


def _texts(content: Any) -> list[str]:
    """Return the texts of a message's content: a string, or parts."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _chat(line: str) -> Chat | None:
    """Return the chat of a captured request; None for another route, and for requests too long to be kept."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    body = entry.get("body") if isinstance(entry, dict) and entry.get("path") == ROUTE else None
    if not isinstance(body, dict):
        return None
    if not _has_messages(body):
        return None
    return {name: body[name] for name in KEPT if body.get(name) is not None}


def _has_messages(body: dict[str, Any]) -> bool:
    messages = body.get("messages")
    return isinstance(messages, list) and bool(messages) and all(isinstance(one, dict) for one in messages)

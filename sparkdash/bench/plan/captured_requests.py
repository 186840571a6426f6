"""Captured: the owner's own requests as the prompts of a suite. Pure.

Owns: which of the captured requests become prompts, and how they are kept. Must not know: files, the gateway.
Rule: their text stays in the file beside the suite. A run keeps their digests, never their words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

TEXT = "captured"
"""The class of text of such a cell."""
ROUTE = "/v1/chat/completions"
KEPT = ("messages", "tools", "tool_choice", "chat_template_kwargs")
"""Of a request: what the engine reads. How much it answers, and how, is the cell's."""

Chat = Mapping[str, Any]


def select_chats(lines: Iterable[str], most: int) -> tuple[tuple[Chat, ...], int]:
    """Out of gateway/capture.py's lines the last `most` different chats, the oldest first; and how many other lines there were."""
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
    """SHA-256 over what is sent."""
    return hashlib.sha256("\n".join(map(chat_line, chats)).encode()).hexdigest()


def chat_line(chat: Chat) -> str:
    """As the prompts' file keeps it."""
    return json.dumps(chat, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _chat(line: str) -> Chat | None:
    """The chat of a captured request; None for another route, and for what was too long to be kept."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    body = entry.get("body") if isinstance(entry, dict) and entry.get("path") == ROUTE else None
    if not isinstance(body, dict):
        return None
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        return None
    return {name: body[name] for name in KEPT if body.get(name) is not None}

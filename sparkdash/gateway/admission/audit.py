"""Audit: one line for each change through /api."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from sparkdash.gateway.http.channel import Message, Scope, Send
from sparkdash.redaction import is_secret_flag, masked_addresses, masked_values

BODY_LIMIT = 2048
"""Bytes of a body that is kept; control requests name a profile and little else."""
SECRET = "token"  # noqa: S105 - the key's name


def audited_send(
    send: Send, keep: Callable[[Mapping[str, object]], object], who: str, scope: Scope, body: bytes, at: float
) -> Send:
    """Return a `send` that keeps a line about the request, in a thread, before the caller sees the answer.

    `who`: `socket`, `anyone`, or `key NAME`. Renewals of an exclusive lease are left out: they come every few seconds.
    """
    said, client = _said(body), scope.get("client")
    entry = {
        "at": round(at, 3),
        "who": who,
        "from": client[0] if client else None,
        "did": f"{scope['method']} {scope['path']}",
        "said": _shown({key: value for key, value in said.items() if key != SECRET}),
    }

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            status = message["status"]
            if not (scope["path"] == "/api/lease" and said.get(SECRET) and status == 200):
                await asyncio.to_thread(keep, {**entry, "status": status})
        await send(message)

    return sent


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in masked_values(value, is_secret_flag).items()}
    if isinstance(value, list):
        return list(map(_shown, value))
    return masked_addresses(value) if isinstance(value, str) else value


def _said(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body) if len(body) <= BODY_LIMIT else None
    except (ValueError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {}

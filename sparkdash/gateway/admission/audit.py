"""Audit: one line for each change through /api."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from sparkdash.gateway.http.channel import Message, Receive, Scope, Send

BODY_LIMIT = 2048
"""Bytes of a body that are kept; control requests name a profile and little else."""
SECRET = "token"  # noqa: S105 - the key's name


class AuditRecord:
    """Records one request while it is served."""

    def __init__(self, who: str, scope: Scope, at: float) -> None:
        self._who = who
        self._scope = scope
        self._at = at
        self._body = b""
        self._status: int | None = None

    def hearing(self, receive: Receive) -> Receive:
        """Return a `receive` that keeps the beginning of the body."""

        async def received() -> Message:
            message = await receive()
            if len(self._body) <= BODY_LIMIT:
                self._body += message.get("body", b"")[: BODY_LIMIT + 1]
            return message

        return received

    def seeing(self, send: Send, keep: Callable[[dict[str, object]], object]) -> Send:
        """Return a `send` that notes the status, and keeps the line (in a thread) before the caller sees the answer."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._status = message["status"]
                if self._worth_keeping:
                    await asyncio.to_thread(keep, self._line())
            await send(message)

        return sent

    @property
    def _worth_keeping(self) -> bool:
        """Whether to keep the line. Renewals of an exclusive lease are left out: they come every few seconds."""
        return not (self._scope["path"] == "/api/lease" and self._said().get(SECRET) and self._status == 200)

    def _line(self) -> dict[str, object]:
        """Describe the request: caller, address, route, body and status."""
        client = self._scope.get("client")
        return {
            "at": round(self._at, 3),
            "who": self._who,
            "from": client[0] if client else None,
            "did": f"{self._scope['method']} {self._scope['path']}",
            "said": {key: value for key, value in self._said().items() if key != SECRET},
            "status": self._status,
        }

    def _said(self) -> dict[str, Any]:
        try:
            said = json.loads(self._body) if len(self._body) <= BODY_LIMIT else None
        except (ValueError, RecursionError):
            said = None
        return said if isinstance(said, dict) else {}

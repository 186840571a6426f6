"""Request that is held open: whether its first token has come, and whether it has ended.

Owns: one streamed chat without timestamps. Must not know: cells, what the answer says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.errors import UpstreamError

TEXTS = ("content", "reasoning", "reasoning_content", "tool_calls")


class HeldRequest:
    """Streamed chat, sent when made. An answer that ends by its length is asked for again, so that its user stays."""

    def __init__(self, client: BenchClient, body: Mapping[str, Any], changed: asyncio.Event) -> None:
        self.begun = False
        """Whether the answer's first token has come."""
        self.error: str | None = None
        self._client = client
        self._body = {**body, "stream": True}
        self._changed = changed
        self._task = asyncio.create_task(self._stay())

    async def drop(self) -> None:
        """Close the connection; the engine aborts the request."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _stay(self) -> None:
        try:
            while True:
                async for event in self._client.events("/v1/chat/completions", self._body):
                    if not self.begun and has_text(event):
                        self.begun = True
                        self._changed.set()
                if not self.begun:
                    self.error = "an answer ended without a token"
                    self._changed.set()
                    return
                self.begun = False
        except UpstreamError as error:
            self.error = str(error)
            self._changed.set()


def has_text(event: bytes) -> bool:
    """Whether a line of an event stream carries a token."""
    try:
        told = json.loads(event.removeprefix(b"data:"))
        deltas = [choice.get("delta") or {} for choice in told["choices"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return any(delta.get(name) for delta in deltas for name in TEXTS)

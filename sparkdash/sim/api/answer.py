"""State of one answer while it is generated, independent of any protocol.

Owns: the text and token counts gathered so far, and the id. Must not know HTTP or event shapes.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from sparkdash.sim.api.prompt_orders import OrderedCall
from sparkdash.sim.engine.generation import AnswerPiece, SimulatedRequest
from sparkdash.sim.engine.simulated_engine import SimulatedEngine


class GeneratedAnswer:
    """Answer that grows while `pieces` is read. Counts are the engine's own."""

    def __init__(
        self,
        engine: SimulatedEngine,
        run: SimulatedRequest,
        model: str,
        *,
        reasoning_tokens: int = 0,
        call: OrderedCall | None = None,
    ) -> None:
        self.model = model
        self.call = call
        """Tool to call. The text is then its arguments, and there is no reasoning."""
        self.id = uuid.uuid4().hex[:16]
        self.created = int(time.time())
        self.text = ""
        self.thought = ""
        """Reasoning, which precedes the text."""
        self.completion = 0
        self.finish: str | None = None
        self.stop_reason: str | None = None
        self._engine = engine
        self._run = run
        self._reasoning_tokens = 0 if call else reasoning_tokens

    async def pieces(self) -> AsyncIterator[AnswerPiece]:
        """Yield each step's addition; the last one has `finish`."""
        async for piece in self._engine.stream(self._run):
            if self.thinks:
                self.thought += piece.text
            else:
                self.text += piece.text
            self.completion += piece.tokens
            self.finish, self.stop_reason = piece.finish, piece.stop_reason
            yield piece

    @property
    def thinks(self) -> bool:
        """Whether the next piece is reasoning."""
        return self.completion < self._reasoning_tokens

    @property
    def reasoning(self) -> int:
        """Completion tokens that are reasoning."""
        return min(self.completion, self._reasoning_tokens)

    async def whole(self) -> None:
        """Wait for the complete answer."""
        async for _ in self.pieces():
            pass

    def drop(self) -> None:
        """Abort the request; a no-op once it has ended."""
        self._engine.abort(self._run)

    @property
    def prompt(self) -> int:
        """Number of prompt tokens."""
        return self._run.prompt

    @property
    def cached(self) -> int:
        """Prompt tokens from the prefix cache; known once the first piece is there."""
        return self._run.cached


def compact(value: Any) -> bytes:
    """Serialize JSON as the engines write it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

"""One answer in the making, before any protocol shapes it.

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
    """Grows while `pieces` is read. Counts are the engine's own."""

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
        """The tool that is called; then the text is its arguments, and there is no reasoning."""
        self.id = uuid.uuid4().hex[:16]
        self.created = int(time.time())
        self.text = ""
        self.thought = ""
        """The reasoning, which comes first."""
        self.completion = 0
        self.finish: str | None = None
        self.stop_reason: str | None = None
        self._engine = engine
        self._run = run
        self._reasoning_tokens = 0 if call else reasoning_tokens

    async def pieces(self) -> AsyncIterator[AnswerPiece]:
        """Each step's addition; the last one has `finish`."""
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
        """Is what comes next reasoning?"""
        return self.completion < self._reasoning_tokens

    @property
    def reasoning(self) -> int:
        """How many of the completion's tokens are reasoning."""
        return min(self.completion, self._reasoning_tokens)

    async def whole(self) -> None:
        """Wait for all of it."""
        async for _ in self.pieces():
            pass

    def drop(self) -> None:
        """Abort it; nothing happens when it is over."""
        self._engine.abort(self._run)

    @property
    def prompt(self) -> int:
        """Prompt tokens."""
        return self._run.prompt

    @property
    def cached(self) -> int:
        """Prompt tokens that came from the prefix cache; known once the first piece is there."""
        return self._run.cached


def compact(value: Any) -> bytes:
    """JSON as the engines write it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

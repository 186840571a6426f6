"""Request inside the simulated engine, and the pieces of its answer. Must not know who schedules it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from sparkdash.sim.engine.prefix_cache import HeldBlocks
from sparkdash.sim.engine.prose import GeneratedToken


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """Addition of one step to one answer."""

    text: str
    tokens: int
    finish: str | None = None
    """Finish reason, stop or length; None while generating."""
    stop_reason: str | None = None


@dataclass(eq=False, slots=True)
class SimulatedRequest:
    """Request inside the simulated engine."""

    tokens: list[bytes]
    """Prompt tokens, then generated ones."""
    words: Iterator[GeneratedToken]
    rng: random.Random
    arrived: float
    limit: int
    prompt: int = 0
    """Number of prompt tokens."""
    cached: int = 0
    """Prompt tokens found in the prefix cache."""
    computed: int = 0
    produced: int = 0
    deferred: bool = False
    """Waits for its grammar, not for room."""
    prefill_s: float | None = None
    """Fixed prefill time of the whole prompt; None: computed by SimulatedTiming."""
    holding: HeldBlocks = field(default_factory=HeldBlocks)
    out: asyncio.Queue[AnswerPiece] = field(default_factory=asyncio.Queue)
    admitted: float | None = None
    first: float | None = None
    last: float = 0.0

    @property
    def prefilled(self) -> bool:
        """Whether all but the next token are computed."""
        return self.computed >= len(self.tokens)

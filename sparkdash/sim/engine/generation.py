"""One request inside the simulated engine, and what its answer consists of. Must not know who schedules it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from sparkdash.sim.engine.prefix_cache import HeldBlocks
from sparkdash.sim.engine.prose import GeneratedToken


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """What one step added to one answer."""

    text: str
    tokens: int
    finish: str | None = None
    """stop or length; None while it goes on."""
    stop_reason: str | None = None


@dataclass(eq=False, slots=True)
class SimulatedRequest:
    """One request inside the engine."""

    tokens: list[bytes]
    """The prompt, then what was generated."""
    words: Iterator[GeneratedToken]
    rng: random.Random
    arrived: float
    limit: int
    prompt: int = 0
    """Length of the prompt."""
    cached: int = 0
    """Prompt tokens found in the prefix cache."""
    computed: int = 0
    produced: int = 0
    deferred: bool = False
    """It waits for its grammar, not for room."""
    prefill_s: float | None = None
    """How long its whole prompt takes, where that does not follow from the pace."""
    holding: HeldBlocks = field(default_factory=HeldBlocks)
    out: asyncio.Queue[AnswerPiece] = field(default_factory=asyncio.Queue)
    admitted: float | None = None
    first: float | None = None
    last: float = 0.0

    @property
    def prefilled(self) -> bool:
        """Is all but the next token computed?"""
        return self.computed >= len(self.tokens)

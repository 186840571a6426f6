"""One request inside the simulated engine, and what its answer consists of. Must not know who schedules it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from sparkdash.sim.engine.prefix_cache import Holding
from sparkdash.sim.engine.prose import Word


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step added to one answer."""

    text: str
    tokens: int
    finish: str | None = None
    """stop or length; None while it goes on."""
    stop_reason: str | None = None


@dataclass(eq=False, slots=True)
class Run:
    """One request inside the engine."""

    tokens: list[bytes]
    """The prompt, then what was generated."""
    words: Iterator[Word]
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
    holding: Holding = field(default_factory=Holding)
    out: asyncio.Queue[Piece] = field(default_factory=asyncio.Queue)
    admitted: float | None = None
    first: float | None = None
    last: float = 0.0

    @property
    def prefilled(self) -> bool:
        """Is all but the next token computed?"""
        return self.computed >= len(self.tokens)

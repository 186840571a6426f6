"""Durations of a SimSpec, as functions of context and of concurrent requests.

Owns: the formulas, and the clock that time is read from. Must not know requests or HTTP.

* Prefill of `n` tokens at context `c`: `n / prefill(c)`.
* One decode step of `s` streams: `mean(E / decode(c)) * s ** 0.45`, where E = 1 + expected accepted drafts. The
  decode speeds of a spec are net, speculation included, so a step of E tokens takes E of their intervals. All
  streams together so make `decode * s ** 0.55` tok/s: published for one model at 1, 2 and 4 streams are 17.0,
  24.1 and 36.4 tok/s, exponents 0.50 and 0.55.
* `time_scale` multiplies every speed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from sparkdash.domain.profile import SimSpec, SimSpeed

SHARING = 0.45
"""Exponent by which concurrent streams slow a step."""


class SimulationClock(Protocol):
    """Source of monotonic seconds, with waiting."""

    def now(self) -> float:
        """Return monotonic seconds."""
        ...

    async def sleep_until(self, when: float) -> None:
        """Return at `when`, at once if it has passed. Always yields to other tasks."""
        ...


class WallClock:
    """Clock of the machine."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    async def sleep_until(self, when: float) -> None:
        """Return at `when`, at once if it has passed. Always yields to other tasks."""
        await asyncio.sleep(max(0.0, when - self.now()))


class SimulatedTiming:
    """Durations of one spec."""

    def __init__(self, spec: SimSpec, factor: float = 1.0) -> None:
        """`factor` scales all speeds beyond the spec's own time_scale."""
        self.scale = spec.time_scale * factor
        self.acceptance = spec.acceptance
        self.tokens_per_step = 1.0 + expected_accepted(spec.acceptance)
        self._speeds = tuple(sorted(spec.speeds, key=lambda speed: speed.context)) or (
            SimSpeed(context=0, decode_tok_s=40, prefill_tok_s=2000),
        )

    def prefill_s(self, tokens: int, context: int) -> float:
        """Return the time to compute `tokens` of a prompt that begin at `context`."""
        return tokens / (self._at(context).prefill_tok_s * self.scale)

    def step_s(self, contexts: Sequence[int]) -> float:
        """Return the time of one decode step of streams at these context lengths; 0 for none."""
        if not contexts:
            return 0.0
        single = sum(self.tokens_per_step / self._at(context).decode_tok_s for context in contexts) / len(contexts)
        return float(single * len(contexts) ** SHARING / self.scale)

    def _at(self, context: int) -> SimSpeed:
        """Interpolate linearly between two neighbours, constant beyond the ends."""
        for low, high in pairwise(self._speeds):
            if low.context <= context < high.context:
                return _between(low, high, (context - low.context) / (high.context - low.context))
        return self._speeds[0] if context < self._speeds[0].context else self._speeds[-1]


def expected_accepted(acceptance: Sequence[float]) -> float:
    """Return mean accepted drafts per step: the sum of the products of the conditional chances."""
    total, reach = 0.0, 1.0
    for chance in acceptance:
        reach *= chance
        total += reach
    return total


def _between(low: SimSpeed, high: SimSpeed, share: float) -> SimSpeed:
    return SimSpeed(
        context=low.context,
        decode_tok_s=low.decode_tok_s + share * (high.decode_tok_s - low.decode_tok_s),
        prefill_tok_s=low.prefill_tok_s + share * (high.prefill_tok_s - low.prefill_tok_s),
    )

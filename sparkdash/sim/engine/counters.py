"""Counters and histograms of the simulated engine, updated at the same moments as vLLM's.

Owns: counters and histograms with vLLM's buckets. Must not know how they are shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

TTFT_LE = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
    160.0,
    640.0,
    2560.0,
)
ITL_LE = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
LATENCY_LE = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
    480.0,
    960.0,
    1920.0,
    7680.0,
)
TOKENS_LE = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))
STEP_LE = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)


class Histogram:
    """Cumulative histogram of Prometheus."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yield (le, count up to it), "+Inf" last."""
        seen = 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            seen += count
            yield ("+Inf" if bound is None else repr(bound)), seen


def _latency() -> Histogram:
    return Histogram(LATENCY_LE)


def _lengths() -> Histogram:
    return Histogram(TOKENS_LE)


@dataclass(slots=True)
class SimulatedCounters:
    """All counters that only grow."""

    positions: int
    """Draft tokens per step; 0 without speculation."""
    queries: int = 0
    hits: int = 0
    prompt: int = 0
    prompt_cached: int = 0
    generated: int = 0
    preemptions: int = 0
    drafts: int = 0
    accepted_at: list[int] = field(default_factory=list)
    finished: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
    )
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_LE))
    itl: Histogram = field(default_factory=lambda: Histogram(ITL_LE))
    tpot: Histogram = field(default_factory=lambda: Histogram(ITL_LE))
    e2e: Histogram = field(default_factory=_latency)
    queue: Histogram = field(default_factory=_latency)
    inference: Histogram = field(default_factory=_latency)
    prefill: Histogram = field(default_factory=_latency)
    decode: Histogram = field(default_factory=_latency)
    step_tokens: Histogram = field(default_factory=lambda: Histogram(STEP_LE))
    prompt_lengths: Histogram = field(default_factory=_lengths)
    generated_lengths: Histogram = field(default_factory=_lengths)
    limits: Histogram = field(default_factory=_lengths)
    computed_lengths: Histogram = field(default_factory=_lengths)

    @property
    def prompt_computed(self) -> int:
        """Prompt tokens that were not found in the cache."""
        return self.prompt - self.prompt_cached

    def __post_init__(self) -> None:
        self.accepted_at = [0] * self.positions

    def admitted(self, prompt: int, hit: int) -> None:
        """Count a prefix cache lookup, once per request at admission."""
        self.queries += prompt
        self.hits += hit

    def first_token(self, prompt: int, cached: int, seconds: float) -> None:
        """Count all prompt tokens, with the first token."""
        self.prompt += prompt
        self.prompt_cached += cached
        self.ttft.observe(seconds)

    def drafted(self, accepted: int) -> None:
        """Count a request's step with a draft."""
        self.drafts += 1
        for position in range(accepted):
            self.accepted_at[position] += 1

    def stepped(self, tokens: int) -> None:
        """Count an engine step with output: generated tokens, and computed ones of prompts that gave their first
        token.
        """
        self.step_tokens.observe(tokens)

    def done(
        self, reason: str, *, prompt: int, cached: int, generated: int, limit: int,
        queue_s: float, prefill_s: float, decode_s: float,
    ) -> None:  # fmt: skip
        """A request finished by itself."""
        self.finished[reason] += 1
        self.queue.observe(queue_s)
        self.prefill.observe(prefill_s)
        self.decode.observe(decode_s)
        self.inference.observe(prefill_s + decode_s)
        self.e2e.observe(queue_s + prefill_s + decode_s)
        if generated > 1:
            self.tpot.observe(decode_s / (generated - 1))
        self.prompt_lengths.observe(prompt)
        self.generated_lengths.observe(generated)
        self.limits.observe(limit)
        self.computed_lengths.observe(prompt - cached)

"""Rules by which a request, a repetition of a warming engine, or a whole cell does not count. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, factorial
from statistics import median

from sparkdash.bench.measure.stream_answer import StreamedAnswer
from sparkdash.bench.plan import suites
from sparkdash.bench.run import CellKey, Kind

P = 0.01
"""Significance level of the falling trend, and of both separation tests together."""
SHARE = 0.01
"""Smaller relative differences are not warming up."""
FEWEST = 5
LEAP = 4.0
"""Distance above the slowest of the others, in multiples of their range. Normal noise shows it in one of five
values once in some four hundred times, and more seldom with more values.
"""


def count_warm_up(seconds: Sequence[float]) -> int:
    """Return how many of the first repetitions do not count, by their durations; 0: none.

    All of them (`len(seconds)`) when more than half would have to go: then it never stood still.
    """
    half = len(seconds) // 2
    cold = next((count for count in range(half, 0, -1) if _apart(seconds, count)), 0)
    while len(seconds) - cold >= FEWEST and _falls(seconds[cold:]):
        cold += 1
        if cold > half:
            return len(seconds)
    return cold


def _apart(seconds: Sequence[float], count: int) -> bool:
    """Whether the first `count` are slower than all others, by more than chance."""
    if len(seconds) < FEWEST:
        return False
    first, others = seconds[:count], seconds[count:]
    above = min(first) - max(others)
    if above <= 0 or not _slower(median(first), others):
        return False
    return comb(len(seconds), count) > 2 / P or above > LEAP * (max(others) - min(others))


def _falls(seconds: Sequence[float]) -> bool:
    """Kendall's one-sided exact test for a falling trend (M. G. Kendall, A new measure of rank correlation, 1938)."""
    if not _slower(median(seconds[: len(seconds) // 2]), seconds[len(seconds) // 2 :]):
        return False
    count = len(seconds)
    rising = sum(seconds[i] <= seconds[j] for i in range(count) for j in range(i + 1, count))
    return sum(_inversions(count)[: rising + 1]) / factorial(count) < P


def _slower(first: float, others: Sequence[float]) -> bool:
    return first > median(others) * (1 + SHARE)


@cache
def _inversions(count: int) -> tuple[int, ...]:
    """Return the number of permutations of `count` things by their inversions."""
    found: tuple[int, ...] = (1,)
    for size in range(2, count + 1):
        found = tuple(sum(found[max(0, at - size + 1) : at + 1]) for at in range(len(found) + size - 1))
    return found


CACHED_TOKENS = 16
"""Allowed in a cold cell beyond the chat template: the first of a prompt's mark, rounded up to a block of the cache."""
CACHED_TOOLS = 128
"""Allowed beyond them in cells of captured chats: what a template writes before the first tool's description, which is
marked. An assumption: a sentence or two on how tools are called, and the first tool's name.
"""
PROMPT_SHARE = 0.01
"""Allowed relative deviation of a prompt's length from the cell's."""
CLOCK_SHARE = 0.85
"""Share of the fastest clock under load in this run; below it the box was throttled."""
SWAP_BYTES = 64 * 1024**2
"""Bytes swapped during a cell beyond which the cell measured the disk."""


@dataclass(frozen=True, slots=True)
class BoxReading:
    """State of the box at one moment, from the daemon. Unix seconds; None: unknown."""

    at: float | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    swap_used: int | None = None
    available_bytes: int | None = None
    low_power: bool = False
    engine: tuple[object, ...] | None = None
    """Identity of one incarnation of the engine."""


def request_void_reason(
    answer: StreamedAnswer, key: CellKey, *, exact: bool, template: int, lag_limit_ms: float
) -> str | None:
    """Return why this answer does not count, or None.

    `exact`: the engine counted the prompt's length. `template`: tokens of the chat template alone. Those of
    gpt-oss and Mistral begin every prompt with a system message, so a prefix cache knows it from the second one on.
    """
    forced = key.kind in (Kind.SPEED, Kind.PREFIX)
    if answer.error:
        return f"error: {answer.error}"
    if answer.n is None:
        return "the engine did not count its tokens"
    if answer.last_ns is None:
        return f"none of its {answer.n} tokens were shown; if it hides its reasoning, turn thinking off"
    if forced and (wrong := _length_reason(answer, key)):
        return wrong
    if wrong := _prompt_reason(answer, key, exact=exact, template=template):
        return wrong
    if forced and answer.lag_ms > lag_limit_ms:
        return f"the client was {answer.lag_ms:.1f} ms late"
    return None


def _length_reason(answer: StreamedAnswer, key: CellKey) -> str | None:
    if answer.n != key.output:
        return f"{answer.n} of {key.output} tokens ({answer.finish_reason or 'no finish reason'})"
    return None if answer.finish_reason == "length" else f"finish reason {answer.finish_reason}"


def _prompt_reason(answer: StreamedAnswer, key: CellKey, *, exact: bool, template: int) -> str | None:
    """Return why the prompt was not the cell's (cached, or of another length), or None."""
    cold = not key.warm and key.kind is Kind.SPEED
    known = template + CACHED_TOKENS + (CACHED_TOOLS if key.text == suites.TEXT else 0)
    if cold and (answer.cached_tokens or 0) > known:
        return f"{answer.cached_tokens} prompt tokens came from the prefix cache"
    if not exact or not key.context or answer.prompt_tokens is None:
        return None
    if abs(answer.prompt_tokens - key.context) > PROMPT_SHARE * key.context:
        return f"the prompt had {answer.prompt_tokens} tokens, {key.context} were meant"
    return None


def cell_void_reason(looks: Sequence[BoxReading], fastest_mhz: float | None) -> str | None:
    """Return why a whole cell does not count, or None.

    `looks`: readings before the cell, then under load after each repetition. `fastest_mhz` is the run's.
    """
    if not looks:
        return None
    if len({look.engine for look in looks}) > 1:
        return "the engine was started anew"
    if any(look.low_power for look in looks):
        return "the GPU was in its low-power state"
    if throttled := _clock_reason(looks, fastest_mhz):
        return throttled
    return "the box swapped" if _has_swapped(looks) else None


def _has_swapped(looks: Sequence[BoxReading]) -> bool:
    swap = [look.swap_used for look in looks if look.swap_used is not None]
    return bool(swap) and swap[-1] - swap[0] > SWAP_BYTES


def _clock_reason(looks: Sequence[BoxReading], fastest_mhz: float | None) -> str | None:
    clocks = [look.clock_mhz for look in looks if look.clock_mhz is not None]
    if clocks and fastest_mhz is not None and min(clocks) < CLOCK_SHARE * fastest_mhz:
        return f"clock fell to {min(clocks):.0f} MHz"
    return None

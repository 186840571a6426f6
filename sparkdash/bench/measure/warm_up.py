"""Detection of an engine that was still warming up when a cell began.

Owns: how many of a cell's first repetitions do not count. Must not know: what a repetition is made of.
Real engines warm up in two ways. Either the first requests take many times longer than the others, as something is
compiled in them, or the rate rises by a tenth over thirty repetitions. The first repetitions therefore do not count in
two cases: all of them are slower than all that follow, by more than chance; or the times fall throughout. With pure
noise at most one cell in fifty loses a repetition (simulated: normal, and Student's t with three degrees of freedom).
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import comb, factorial
from statistics import median

P = 0.01
"""Significance level of the falling trend, and of both separation tests together."""
SHARE = 0.01
"""Smaller relative differences are not warming up."""
FEWEST = 5
"""Least number of repetitions for a decision."""
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

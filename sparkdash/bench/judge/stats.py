"""The statistics that a verdict rests on, each from its published formula. Uses only the standard library.

Units: rates and ratios as they come; shares and levels 0..1; `alpha` is the two-sided error level. Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, median

ALPHA = 0.05
BOOTSTRAP_MIN = 8
"""Fewer values than this have no honest bootstrap interval: at n = 3 it is narrower than at n = 5, instead of wider."""
NEGLIGIBLE = 1e-12

Interval = tuple[float, float]


def t_cdf(value: float, df: float) -> float:
    """P(T <= value) of Student's t with `df` degrees of freedom (DLMF 8.17 with x = df / (df + t^2))."""
    tail = _incomplete_beta(df / 2, 0.5, df / (df + value * value)) / 2
    return 1 - tail if value > 0 else tail


@lru_cache(maxsize=1024)
def t_quantile(share: float, df: float) -> float:
    """The value that Student's t stays below with probability `share`, 0 < share < 1.

    By Newton's steps from 0, which come from below and never pass it, as t_cdf is concave above 0.
    """
    if share < 0.5:
        return -t_quantile(1 - share, df)
    peak = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    value = 0.0
    for _ in range(200):
        density = math.exp(peak - (df + 1) / 2 * math.log1p(value * value / df))
        step = (share - t_cdf(value, df)) / density
        value += step
        if step <= 1e-13 * value:
            break
    return value


def p_two_sided(value: float, df: float) -> float:
    return 2 * t_cdf(-abs(value), df)


@dataclass(frozen=True, slots=True)
class Summary:
    """Values of one cell and arm; bounds are a 95 % interval of the median (`bootstrap`), or min and max."""

    median: float
    n: int
    low: float
    high: float
    bootstrap: bool


def summary(values: Sequence[float]) -> Summary | None:
    """Median with a 95 % bootstrap interval; below 8 values with the smallest and the largest. None without values."""
    if not values:
        return None
    if len(values) < BOOTSTRAP_MIN:
        return Summary(median(values), len(values), min(values), max(values), bootstrap=False)
    low, high = bootstrap_median(values)
    return Summary(median(values), len(values), low, high, bootstrap=True)


def bootstrap_median(values: Sequence[float]) -> Interval:
    """The percentile bootstrap interval of the median, exactly: the limit of ever more resamples, with nothing drawn.

    A resample's median is an order statistic whose distribution has a closed form (Efron 1979, section 3).
    """
    ordered = sorted(values)
    weights = _median_weights(len(ordered))
    found = sorted(((ordered[i] + ordered[j]) / 2, weight) for (i, j), weight in weights.items())
    return _first_beyond(found, ALPHA / 2), _first_beyond(found[::-1], ALPHA / 2)


def geomean(ratios: Sequence[float]) -> float:
    """The geometric mean of positive ratios: the only mean by which B over A is one over A over B.

    Raises:
        ValueError: there are none, or one is not positive.
    """
    return math.exp(fmean(math.log(ratio) for ratio in ratios))


def token_rate(tokens: Sequence[float], seconds: Sequence[float]) -> float:
    """Sum of tokens over sum of seconds; the mean of the single rates would be too high.

    Raises:
        ZeroDivisionError: no time passed.
    """
    return sum(tokens) / sum(seconds)


def fdr_levels(p_values: Sequence[float], alpha: float = ALPHA) -> list[float]:
    """The level at which each of many comparisons is judged, in the given order (Benjamini and Hochberg 1995).

    With k the largest rank whose p is at most k * alpha/m, the k smallest are judged at k * alpha/m. Others are judged
    at (k + 1) * alpha/m where their p is below alpha, and at alpha where it is not. So `p <= level` is the procedure's
    decision, and an interval at that level excludes zero exactly when the test rejects. Where all arms are equal, a
    false claim comes up in a share `alpha` of families at most.
    """
    count = max(len(p_values), 1)
    ranked = enumerate(sorted(p_values), 1)
    claimed = max((rank for rank, p in ranked if p <= rank * alpha / count), default=0)
    level = claimed * alpha / count
    return [level if p <= level else alpha if p > alpha else level + alpha / count for p in p_values]


def wilson(right: int, n: int, alpha: float = ALPHA) -> Interval:
    """Score interval of a share (Wilson 1927; method 3 of Newcombe 1998)."""
    z = NormalDist().inv_cdf(1 - alpha / 2)
    share, z2 = right / n, z * z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class Paired:
    """The same items judged in two arms: how many were right in both, in one only, in none."""

    both: int
    only_a: int
    only_b: int
    neither: int

    @property
    def n(self) -> int:
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def difference(self) -> float:
        """Share right in B minus share right in A."""
        return (self.only_b - self.only_a) / self.n


def mcnemar(pairs: Paired) -> float:
    """The exact two-sided p of McNemar's test: the binomial of the discordant items at 1/2."""
    n, least = pairs.only_a + pairs.only_b, min(pairs.only_a, pairs.only_b)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(least + 1)) / (1 << n))


def paired_difference(pairs: Paired) -> Interval:
    """The interval of `difference` (B - A) that squares and adds two Wilson intervals, correlation taken into account.

    Method 10 of Newcombe, Statistics in Medicine 17 (1998) 2635: sound for few items and for shares near 1.
    Raises ValueError: there are no items.
    """
    n = pairs.n
    in_a, in_b = pairs.both + pairs.only_a, pairs.both + pairs.only_b
    (low_a, high_a), (low_b, high_b) = wilson(in_a, n), wilson(in_b, n)
    share_a, share_b, phi = in_a / n, in_b / n, _phi(pairs)
    below = _joined(share_b - low_b, high_a - share_a, phi)
    above = _joined(high_b - share_b, share_a - low_a, phi)
    return pairs.difference - below, pairs.difference + above


def _joined(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


def _phi(pairs: Paired) -> float:
    """The correlation of the two arms with Newcombe's continuity correction; 0 where it is not defined."""
    in_a, in_b = pairs.both + pairs.only_a, pairs.both + pairs.only_b
    product = in_a * (pairs.n - in_a) * in_b * (pairs.n - in_b)
    if not product:
        return 0.0
    excess: float = pairs.both * pairs.neither - pairs.only_a * pairs.only_b
    if excess > 0:
        excess = max(excess - pairs.n / 2, 0.0)
    return excess / math.sqrt(product)


@lru_cache(maxsize=64)
def _median_weights(n: int) -> dict[tuple[int, int], float]:
    """Probability that the two middle values of a resample of n are the i-th and j-th of the sorted values (from 0).

    For odd n there is one middle value and i = j. P(k-th smallest of the resample <= i-th value) is binomial.
    """
    middle = (n + 1) // 2
    upto = [_incomplete_beta(middle, n - middle + 1, i / n) for i in range(n + 1)]
    weights = {(i, i): upto[i + 1] - upto[i] for i in range(n) if upto[i + 1] - upto[i] > NEGLIGIBLE}
    if n % 2:
        return weights
    half_log = math.log(math.comb(n, middle)) / 2  # half of it to each factor: the whole would overflow
    steps = [math.exp(half_log) * (((i + 1) / n) ** middle - (i / n) ** middle) for i in range(n)]
    for i in range(n):
        for j in range(i + 1, n):
            if (weight := steps[i] * steps[n - 1 - j]) > NEGLIGIBLE:
                weights[i, j] = weight
                weights[i, i] = weights.get((i, i), 0.0) - weight
    return weights


def _first_beyond(weighted: Sequence[tuple[float, float]], share: float) -> float:
    total = 0.0
    for value, weight in weighted:
        total += weight
        if total > share:
            return value
    return weighted[-1][0]


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularized incomplete beta function, by its continued fraction (DLMF 8.17.22, Lentz's method)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    fraction, c, d = 1.0, 1.0, 0.0
    for step in range(400):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / (1 + term * d or 1e-300)
        c = 1 + term / c or 1e-300
        fraction *= c * d
        if abs(1 - c * d) < 1e-15:
            break
    return math.exp(log_front) / a * (fraction - 1)

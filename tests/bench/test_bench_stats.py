"""The statistics against published tables, closed forms and brute force."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from statistics import median

import pytest

from sparkdash.bench.judge import stats
from sparkdash.bench.judge.stats import Paired


@pytest.mark.parametrize(
    ("share", "df", "published"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 5, 2.571),
        (0.975, 6, 2.447),
        (0.975, 30, 2.042),
        (0.975, 120, 1.980),
        (0.995, 4, 4.604),
        (0.99, 1, 31.821),
        (0.90, 10, 1.372),
        (0.75, 3, 0.765),
    ],
)
def test_t_quantiles_are_those_of_the_printed_tables(share: float, df: int, published: float) -> None:
    """As in any textbook's table of Student's t, to its three decimals; and the other tail mirrored."""
    assert stats.t_quantile(share, df) == pytest.approx(published, abs=5e-4)
    assert stats.t_quantile(1 - share, df) == pytest.approx(-published, abs=5e-4)
    assert stats.t_cdf(stats.t_quantile(share, df), df) == pytest.approx(share, abs=1e-12)


def test_t_with_one_degree_of_freedom_is_cauchy() -> None:
    """A closed form to compare with: 1/2 + atan(t)/pi."""
    for value in (-30.0, -1.0, 0.0, 0.3, 5.0):
        assert stats.t_cdf(value, 1) == pytest.approx(0.5 + math.atan(value) / math.pi, abs=1e-12)
    assert stats.p_two_sided(2.570582, 5) == pytest.approx(0.05, abs=1e-6)
    assert stats.p_two_sided(-2.570582, 5.0) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize("n", [8, 9, 30])
def test_exact_bootstrap_is_what_resampling_comes_to(n: int) -> None:
    """20,000 resamples drawn one by one give the same bounds."""
    rng = random.Random(n)
    values = [rng.gauss(60, 2) for _ in range(n)]
    drawn = sorted(median(rng.choices(values, k=n)) for _ in range(20_000))
    step = max(high - low for low, high in pairwise(sorted(values))) / 2
    assert stats.bootstrap_median(values) == pytest.approx((drawn[500], drawn[-501]), abs=step / 4)


@pytest.mark.parametrize("n", [12, 15])
def test_bootstrap_covers_the_true_median(n: int) -> None:
    """Of 1,000 normal samples at least 90 % and at most 99 %."""
    rng = random.Random(n)
    bounds = [stats.bootstrap_median([rng.gauss(0, 1) for _ in range(n)]) for _ in range(1000)]
    assert 900 <= sum(low <= 0 <= high for low, high in bounds) <= 990


def test_few_values_show_min_and_max() -> None:
    """Seven have no honest interval; eight have one; none have nothing."""
    few = stats.summary([3.0, 1.0, 2.0, 5.0, 4.0, 7.0, 6.0])
    assert few == stats.Summary(median=4.0, n=7, low=1.0, high=7.0, bootstrap=False)
    many = stats.summary([float(one) for one in range(30)])
    assert many is not None
    assert (many.bootstrap, many.median) == (True, 14.5)
    assert 0 < many.low < 14.5 < many.high < 29
    assert stats.summary([]) is None


def test_means_of_ratios_and_rates() -> None:
    """Twice as fast and half as fast is no gain; and 100 tokens at 10/s with 100 at 30/s is 15/s, not 20."""
    assert stats.geomean([2.0, 0.5]) == pytest.approx(1)
    assert stats.token_rate([100, 100], [10, 100 / 30]) == pytest.approx(15)
    with pytest.raises(ValueError, match="at least one"):
        stats.geomean([])


def test_holm_decides_as_published() -> None:
    """0.01, 0.04, 0.03, 0.005 at 5 %: Holm (1979) rejects the two smallest; the third is judged at 0.025 and ends it."""
    p_values = [0.01, 0.04, 0.03, 0.005]
    levels = stats.holm_levels(p_values)
    assert levels == pytest.approx([0.05 / 3, 0.025, 0.025, 0.0125])
    assert [p <= level for p, level in zip(p_values, levels, strict=True)] == [True, False, False, True]
    assert stats.holm_levels([0.03]) == [0.05]
    assert stats.holm_levels([]) == []


@pytest.mark.parametrize(
    ("right", "n", "published"),
    [
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0000, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
        (37, 50, (0.60, 0.84)),
        (35, 50, (0.56, 0.81)),
    ],
)
def test_wilson_is_as_published(right: int, n: int, published: tuple[float, float]) -> None:
    """Newcombe, Statistics in Medicine 17 (1998) 857, table I, method 3; then the seeds' 74 % and 70 %."""
    assert stats.wilson(right, n) == pytest.approx(published, abs=5e-5 if n != 50 else 6e-3)


@pytest.mark.parametrize(("right", "n"), [(1, 0), (3, 2), (-1, 5)])
def test_no_share_of_nothing(right: int, n: int) -> None:
    with pytest.raises(ValueError, match="no share"):
        stats.wilson(right, n)


@pytest.mark.parametrize(
    ("pairs", "published"),
    [
        (Paired(both=1, only_a=1, only_b=7, neither=12), 0.070),
        (Paired(both=794, only_a=150, only_b=86, neither=570), 3.716e-05),
        (Paired(both=35, only_a=0, only_b=4, neither=11), 0.125),
        (Paired(both=10, only_a=0, only_b=0, neither=0), 1.0),
    ],
    ids=["Bentur 2009", "Agresti's approval ratings", "four to nothing", "no discordant item"],
)
def test_mcnemar_is_as_published(pairs: Paired, published: float) -> None:
    """Exact and two-sided; Bentur's table in Fagerland, Lydersen & Laake (2014), Agresti's in Categorical Data Analysis."""
    assert stats.mcnemar(pairs) == pytest.approx(published, rel=6e-3)


def test_paired_difference_is_as_published() -> None:
    """Fagerland, Lydersen & Laake, Statistics in Medicine 33 (2014) 2850, Newcombe's interval: -0.507 to -0.026."""
    found = stats.paired_difference(Paired(both=1, only_a=7, only_b=1, neither=12))
    assert found == pytest.approx((-0.507, -0.026), abs=5e-4)


def test_paired_difference_mirrors_and_narrows() -> None:
    """B - A is minus A - B; equal answers leave room for few items, and less for many."""
    there = stats.paired_difference(Paired(both=60, only_a=5, only_b=9, neither=26))
    back = stats.paired_difference(Paired(both=60, only_a=9, only_b=5, neither=26))
    assert there == pytest.approx((-back[1], -back[0]))
    few, many = (stats.paired_difference(Paired(n, 0, 0, n // 3)) for n in (15, 300))
    assert few[0] < many[0] < 0 < many[1] < few[1]

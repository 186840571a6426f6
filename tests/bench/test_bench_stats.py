"""The statistics against published tables, closed forms and brute force."""

import math
import random
from collections.abc import Mapping
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sparkdash.bench.judge import stats
from sparkdash.bench.judge.judgement import family_levels, few_prompts, hinted_arms, levels_of, panels, shared_fits
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.stats import Paired, fdr_levels
from sparkdash.bench.judge.verdict import judge_contrasts
from sparkdash.bench.plan.run_plan import launch_order
from sparkdash.bench.run import CellKey, Mode

FEW = few_prompts(BenchMetric.DECODE)


def cell(number: int) -> CellKey:
    return CellKey(suite="many", context=number, output=32)


def table(
    rng: random.Random, cells: int, faster: Mapping[int, float] | None = None, prompts: int = 4
) -> dict[CellKey, dict[str, dict[int, dict[str, float]]]]:
    """Figures of a careful run of equal arms; `faster` says by how much B is in which cells."""
    found: dict[CellKey, dict[str, dict[int, dict[str, float]]]] = {cell(n): {"A": {}, "B": {}} for n in range(cells)}
    for place, slot in enumerate(launch_order(("A", "B"), Mode.CAREFUL, str(rng.random()))):
        launch = rng.gauss(0, 0.005)
        for number in range(cells):
            gain = (faster or {}).get(number, 0.0) if slot.arm == "B" else 0.0
            level = 4 + launch + rng.gauss(0, 0.004) + gain
            ones = {str(n): math.exp(level + n / 20 + rng.gauss(0, 0.01)) for n in range(prompts)}
            found[cell(number)][slot.arm][place] = ones
    return found


def claimed(values: Mapping[CellKey, Mapping[str, Mapping[int, Mapping[str, float]]]], *, alone: bool) -> list[bool]:
    """Whether each cell claims a difference, judged alone or with the others; last the line over all cells."""
    shared = shared_fits(values, ("A", "B"), "A")
    levels = {} if alone else family_levels(shared, "A", FEW)
    told = []
    for key, fit in [*shared["B"].items(), (None, panels(shared, "A")["B"])]:
        contrast = fit.contrast("B", "A")
        assert contrast is not None
        (verdict,) = judge_contrasts([contrast], levels=list(levels_of(key, levels).values()))
        told.append(verdict.claim.told)
    return told


@pytest.mark.full
def test_equal_arms_rarely_have_a_claim_anywhere_in_a_table_of_twenty_cells() -> None:
    """At most one run in twenty, give or take chance; cells judged alone claim in far more."""
    rng = random.Random(20)
    runs = [table(rng, 20) for _ in range(100)]
    together = sum(any(claimed(one, alone=False)) for one in runs)
    alone = sum(any(claimed(one, alone=True)) for one in runs)
    assert together <= 10
    assert alone >= 30


def test_a_difference_in_every_cell_is_found_in_almost_all_of_them() -> None:
    rng = random.Random(3)
    told = [claimed(table(rng, 20, dict.fromkeys(range(20), 0.03)), alone=False) for _ in range(20)]
    assert sum(map(sum, told)) >= 0.85 * 20 * 21


def test_a_large_difference_in_one_cell_is_found_there() -> None:
    told = claimed(table(random.Random(5), 20, {7: 0.08}), alone=False)
    assert told[7]
    assert sum(told[:20]) == 1


def drifting(rng: random.Random, cells: int, mode: Mode) -> dict[CellKey, dict[str, dict[int, dict[str, float]]]]:
    """Equal arms on a quiet box that becomes 1.5 % slower and fast again, also within a launch."""
    order = launch_order(("A", "B"), mode, str(rng.random()))
    found: dict[CellKey, dict[str, dict[int, dict[str, float]]]] = {cell(n): {"A": {}, "B": {}} for n in range(cells)}
    blocks = [rng.sample(range(cells), cells) for _ in order]
    for place, slot in enumerate(order):
        launch = rng.gauss(0, 0.001)
        for at, number in enumerate(blocks[slot.block]):
            level = 4 + launch - 0.015 * math.sin(math.pi * (place + at / cells) / len(order))
            found[cell(number)][slot.arm][place] = {str(n): math.exp(level + rng.gauss(0, 0.01)) for n in range(5)}
    return found


@pytest.mark.full
@pytest.mark.parametrize(("cells", "runs"), [(1, 300), (20, 60)])
@pytest.mark.parametrize("mode", [Mode.STANDARD, Mode.CAREFUL])
def test_a_drift_out_and_back_is_claimed_in_no_table(mode: Mode, cells: int, runs: int) -> None:
    rng = random.Random(41)
    assert sum(any(claimed(drifting(rng, cells, mode), alone=False)) for _ in range(runs)) <= 0.05 * runs


def test_the_line_over_all_cells_knows_that_prompts_are_few() -> None:
    """An arm that likes some prompts better: over one cell the line says what the cell says, over four no less."""
    rng = random.Random(43)
    for cells in (1, 4):
        values = table(rng, cells, prompts=5)
        for ones in values.values():
            tastes = [rng.gauss(0, 0.1) for _ in range(5)]
            for launch in ones["B"].values():
                launch.update({name: figure * math.exp(tastes[int(name)]) for name, figure in launch.items()})
        fits = shared_fits(values, ("A", "B"), "A")["B"]
        whole = panels({"B": fits}, "A")["B"].contrast("B", "A")
        singles = [fit.contrast("B", "A") for fit in fits.values()]
        assert whole is not None
        if cells == 1:
            assert whole == singles[0]
        assert whole.se > 0.5 * 0.1 * math.sqrt(math.pi / 2) / math.sqrt(5 * cells)


def test_a_single_cell_is_no_family() -> None:
    assert family_levels(shared_fits(table(random.Random(5), 1), ("A", "B"), "A"), "A", FEW) == {}


def test_fewer_than_four_prompts_only_hint() -> None:
    shared = shared_fits(table(random.Random(6), 2, prompts=3), ("A", "B"), "A")
    assert family_levels(shared, "A", FEW) == {}
    assert hinted_arms(shared, "A", FEW) == {"B": "3 common prompts"}
    assert hinted_arms(shared, "A", few_prompts(BenchMetric.AGGREGATE)) == {}


@pytest.mark.parametrize(("p_values", "levels"), [
    ([], []), ([0.04], [0.05]), ([0.3], [0.05]), ([0.01, 0.04, 0.2, 0.9], [0.0125, 0.025, 0.05, 0.05]),
    ([0.2, 0.02, 0.001, 0.9], [0.05, 0.025, 0.025, 0.05]),
])  # fmt: skip
def test_levels_are_those_of_benjamini_and_hochberg(p_values: list[float], levels: list[float]) -> None:
    """Claims: the ranks up to the last whose p is at most its share of 5 %."""
    assert fdr_levels(p_values) == pytest.approx(levels)


@pytest.mark.parametrize(("share", "df", "published"), [
    (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 5, 2.571), (0.975, 6, 2.447), (0.975, 30, 2.042),
    (0.975, 120, 1.980), (0.995, 4, 4.604), (0.99, 1, 31.821), (0.90, 10, 1.372), (0.75, 3, 0.765),
])  # fmt: skip
def test_t_quantiles_are_those_of_the_printed_tables(share: float, df: int, published: float) -> None:
    """As in any textbook's table of Student's t, to its three decimals; and the other tail mirrored."""
    assert stats.t_quantile(share, df) == pytest.approx(published, abs=5e-4)
    assert stats.t_quantile(1 - share, df) == pytest.approx(-published, abs=5e-4)
    assert stats.t_cdf(stats.t_quantile(share, df), df) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("n", [8, 9, 30])
def test_exact_bootstrap_is_what_resampling_comes_to(n: int) -> None:
    """20,000 resamples drawn one by one give the same bounds."""
    rng = random.Random(n)
    values = [rng.gauss(60, 2) for _ in range(n)]
    drawn = sorted(median(rng.choices(values, k=n)) for _ in range(20_000))
    step = max(high - low for low, high in pairwise(sorted(values))) / 2
    assert stats.bootstrap_median(values) == pytest.approx((drawn[500], drawn[-501]), abs=step / 4)


def test_few_values_show_min_and_max() -> None:
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


@pytest.mark.parametrize(("right", "n", "published"), [
    (81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605)), (0, 20, (0.0000, 0.1611)), (1, 29, (0.0061, 0.1718)),
    (37, 50, (0.60, 0.84)), (35, 50, (0.56, 0.81)),
])  # fmt: skip
def test_wilson_is_as_published(right: int, n: int, published: tuple[float, float]) -> None:
    """Newcombe, Statistics in Medicine 17 (1998) 857, table I, method 3; then the seeds' 74 % and 70 %."""
    assert stats.wilson(right, n) == pytest.approx(published, abs=5e-5 if n != 50 else 6e-3)


@pytest.mark.parametrize(("pairs", "published"), [
    (Paired(both=1, only_a=1, only_b=7, neither=12), 0.070),
    (Paired(both=794, only_a=150, only_b=86, neither=570), 3.716e-05),
    (Paired(both=35, only_a=0, only_b=4, neither=11), 0.125), (Paired(both=10, only_a=0, only_b=0, neither=0), 1.0),
], ids=["Bentur 2009", "Agresti's approval ratings", "four to nothing", "no discordant item"])  # fmt: skip
def test_mcnemar_is_as_published(pairs: Paired, published: float) -> None:
    """Exact and two-sided; Bentur's table in Fagerland, Lydersen & Laake (2014), Agresti's in Categorical Data Analysis."""
    assert stats.mcnemar(pairs) == pytest.approx(published, rel=6e-3)


def test_paired_difference_is_as_published() -> None:
    """Fagerland, Lydersen & Laake, Statistics in Medicine 33 (2014) 2850, Newcombe's interval: -0.507 to -0.026."""
    found = stats.paired_difference(Paired(both=1, only_a=7, only_b=1, neither=12))
    assert found == pytest.approx((-0.507, -0.026), abs=5e-4)


@given(st.lists(st.floats(0.1, 1e6), min_size=8, max_size=40))
def test_a_bootstrap_interval_lies_among_the_values(values: list[float]) -> None:
    low, high = stats.bootstrap_median(values)
    assert min(values) <= low <= high <= max(values)


@given(*[st.integers(0, 60)] * 4)
def test_paired_shares_stay_in_their_range(both: int, only_a: int, only_b: int, neither: int) -> None:
    assume(both + only_a + only_b + neither)
    pairs = Paired(both, only_a, only_b, neither)
    low, high = stats.paired_difference(pairs)
    assert -1 - 1e-9 <= low <= pairs.difference <= high <= 1 + 1e-9
    assert 0 < stats.mcnemar(pairs) <= 1

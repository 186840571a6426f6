"""Arms compared prompt by prompt: ratios of the same prompts, paired t.

Rule: they describe the prompts of these launches. They claim nothing: requests of one launch share its memory
and its time of day, so the verdict of a cell rests on launches (arm_comparison.py).
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch
from sparkdash.bench.judge.stats import ALPHA, geomean, p_two_sided, t_quantile
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Kind
from sparkdash.domain.base import Frozen

LEAST_PAIRS = 20
"""Fewest prompts of a cell that are compared one by one; the published runs have thirty."""
METRICS = (BenchMetric.DECODE, BenchMetric.PREFILL)


class PromptPair(Frozen):
    """Figures of one prompt in both arms; launches have their geometric mean."""

    prompt_id: str
    base: float
    arm: float


class PairedCell(Frozen):
    """Arm against the baseline in one cell, over the prompts that both answered."""

    arm: str
    key: CellKey
    metric: BenchMetric
    pairs: tuple[PromptPair, ...]
    base_median: float
    arm_median: float
    ratio: float
    """Geometric mean of arm / baseline."""
    low: float
    high: float
    """95 % interval of `ratio` over prompts, by the paired t of the logarithms."""
    p_t: float
    higher: int
    """Prompts whose figure is higher in the arm."""


def paired_cells(results: Results, apart: Sequence[str] = ()) -> tuple[PairedCell, ...]:
    """Compare every arm with the baseline in the speed cells with at least LEAST_PAIRS common prompts."""
    run = results.run
    arms = [arm.name for arm in run.arms if arm.name != run.baseline and arm.name not in apart]
    keys = [cell.key for cell in run.cells if cell.key.kind is Kind.SPEED and cell.reps >= LEAST_PAIRS]
    found = (_paired(results, arm, key, metric) for key in keys for metric in METRICS for arm in arms)
    return tuple(one for one in found if one is not None)


def _paired(results: Results, arm: str, key: CellKey, metric: BenchMetric) -> PairedCell | None:
    base, mine = (_by_prompt(results, name, key, metric) for name in (results.run.baseline, arm))
    pairs = tuple(
        PromptPair(prompt_id=prompt, base=base[prompt], arm=mine[prompt]) for prompt in base if prompt in mine
    )
    if len(pairs) < LEAST_PAIRS:
        return None
    logs = [math.log(one.arm / one.base) for one in pairs]
    low, high, p_t = paired_t(logs)
    return PairedCell(
        arm=arm, key=key, metric=metric, pairs=pairs, base_median=median(one.base for one in pairs),
        arm_median=median(one.arm for one in pairs), ratio=math.exp(fmean(logs)), low=math.exp(low),
        high=math.exp(high), p_t=p_t, higher=sum(one > 0 for one in logs),
    )  # fmt: skip


def _by_prompt(results: Results, arm: str, key: CellKey, metric: BenchMetric) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for prompts in figures_by_launch(results, arm, key, metric).values():
        for prompt, value in prompts.items():
            found.setdefault(prompt, []).append(value)
    return {prompt: geomean(values) for prompt, values in found.items()}


def paired_t(differences: Sequence[float]) -> tuple[float, float, float]:
    """Return the 95 % interval of the mean difference and the two-sided p of Student's paired t."""
    n, middle = len(differences), fmean(differences)
    error = stdev(differences) / math.sqrt(n)
    half = t_quantile(1 - ALPHA / 2, n - 1) * error
    if not error:
        return middle, middle, 0.0 if middle else 1.0
    return middle - half, middle + half, p_two_sided(middle / error, n - 1)

"""Table of a run: figures and verdicts by cell and arm, the arms over all cells, and the effect of speculation.

Rule 1: one factor at a time. Every arm is compared with the run's baseline in the same cell, never with another cell.
Rule 2: the more is compared in one table, the stronger the evidence for each claim must be. All cells and arms of a
metric, and the arms over all cells, are one family, judged at the levels of `family`. Pure.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from sparkdash.bench.judge.arm_comparison import Contrast, Fit, Values, fit_cell, fit_means
from sparkdash.bench.judge.metrics import BenchMetric, acceptance_lengths, decode_rates, figures_by_launch, speed_keys
from sparkdash.bench.judge.stats import fdr_levels, geomean, summary
from sparkdash.bench.judge.verdict import BASELINE, Conclusion, Verdict, judge_contrasts, screen_verdict
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Mode, Run
from sparkdash.domain.base import Frozen
from sparkdash.units import counted

LEAST_PROMPTS = 4
"""Prompts of a cell below which there are only hints."""

Levels = Mapping[tuple[CellKey | None, str], float]
"""Error levels by cell and arm; without a cell, of the arm over all cells. Empty: nothing but one cell is compared."""
FewPrompts = Callable[[Fit, str, str], str | None]
"""Says how many prompts two arms share where they are too few; None where they suffice."""


def shared_fits(
    values: Mapping[CellKey, Mapping[str, Values]], arms: Sequence[str], base: str
) -> dict[str, dict[CellKey, Fit]]:
    """Return, for each arm but the baseline, the fits of the cells in which both have launches."""
    fits = {key: fit_cell(ones) for key, ones in values.items()}
    return {
        arm: {key: fit for key, fit in fits.items() if {arm, base} <= fit.launches.keys()}
        for arm in arms
        if arm != base
    }


def panels(shared: Mapping[str, Mapping[CellKey, Fit]], base: str) -> dict[str, Fit]:
    """Fit each arm and the baseline over all their cells; arms without a cell are left out."""
    return {arm: _panel(cells, arm, base) for arm, cells in shared.items() if cells}


def _panel(cells: Mapping[CellKey, Fit], arm: str, base: str) -> Fit:
    """Fit two arms over all their cells: each launch has one value per cell, and the mean of these counts.

    A single cell's own fit stands for all cells, so that the two never say different things.
    """
    if len(cells) == 1:
        return next(iter(cells.values()))
    values: dict[str, dict[int, dict[str, float]]] = {base: {}, arm: {}}
    for number, one in enumerate(cells.values()):
        for name, launches in values.items():
            for place, value in one.launches[name].items():
                launches.setdefault(place, {})[str(number)] = math.exp(value)
    return replace(fit_means(values), cells=tuple(cells.values()))


def few_prompts(metric: BenchMetric) -> FewPrompts:
    """Return the rule of this metric. Neither a load nor an aggregate has prompts: each repetition sends the same."""

    def told(fit: Fit, arm: str, base: str) -> str | None:
        shared = len(fit.tastes[arm].keys() & fit.tastes[base].keys())
        if metric in (BenchMetric.AGGREGATE, BenchMetric.LOAD) or shared >= LEAST_PROMPTS:
            return None
        return counted(shared, "common prompt")

    return told


def hinted_arms(shared: Mapping[str, Mapping[CellKey, Fit]], base: str, few: FewPrompts) -> dict[str, str]:
    """Return the arms of which every cell has too few prompts, with their number in words."""
    told = {arm: [few(one, arm, base) for one in cells.values()] for arm, cells in shared.items() if cells}
    return {arm: words[0] for arm, words in told.items() if all(words) and words[0]}


def family_levels(shared: Mapping[str, Mapping[CellKey, Fit]], base: str, few: FewPrompts) -> Levels:
    """Return the levels of the cells that allow claims, and of the arms over all cells."""
    found: dict[tuple[CellKey | None, str], Contrast | None] = {
        (key, arm): one.contrast(arm, base)
        for arm, cells in shared.items()
        for key, one in cells.items()
        if not few(one, arm, base)
    }
    if len({key for key, _ in found}) < 2:
        return {}
    found |= {(None, arm): one.contrast(arm, base) for arm, one in panels(shared, base).items()}
    known = {place: one.p for place, one in found.items() if one is not None}
    return dict(zip(known, fdr_levels(list(known.values())), strict=True))


def levels_of(key: CellKey | None, levels: Levels) -> dict[str, float]:
    return {arm: level for (place, arm), level in levels.items() if place == key}


UNTOLD = "these answers do not tell it"


class ArmFigure(Frozen):
    """Figure of one arm in one cell, with its verdict."""

    arm: str
    median: float | None = None
    low: float | None = None
    high: float | None = None
    bootstrap: bool = False
    """True: low and high are a 95 % interval of the median. False (below 8 values): the smallest and largest value."""
    n: int = 0
    launches: int = 0
    verdict: Verdict


class CellRow(Frozen):
    """Figures of all arms in one cell."""

    key: CellKey
    figures: tuple[ArmFigure, ...]


class Overall(Frozen):
    """Geometric mean of an arm's ratios over all speed cells shared with the baseline, and the extremes."""

    arm: str
    verdict: Verdict
    cells: int
    worst: CellKey | None = None
    worst_delta: float | None = None
    best: CellKey | None = None
    best_delta: float | None = None


class Decomposition(Frozen):
    """Parts of a speculating arm's rate, tok/s = acceptance length x steps/s, and the verdict on steps/s.

    Acceptance depends on the text, steps/s hardly does: it shows the engine where tok/s cannot.
    """

    arm: str
    key: CellKey
    steps_s: Verdict
    acceptance_length: float
    """Mean tokens per verify step."""
    steps_per_s: float
    """Verify steps, or for an arm that does not speculate tokens, per second."""


def judged_rows(results: Results, metric: BenchMetric = BenchMetric.DECODE) -> tuple[CellRow, ...]:
    levels = _levels(results, metric)
    return tuple(_row(results, cell.key, metric, levels) for cell in results.run.cells)


def overall(results: Results, metric: BenchMetric = BenchMetric.DECODE) -> tuple[Overall, ...]:
    """Every arm but the baseline. Launches are the unit here too: cells of one launch are not independent."""
    base = results.run.baseline
    values = {key: _values_by_arm(results, key, metric) for key in speed_keys(results)}
    shared = _shared_fits(results, values)
    few = hinted_arms(shared, base, few_prompts(metric))
    fits = panels(shared, base)
    enough = {arm: one for arm, one in fits.items() if arm not in few}
    levels = levels_of(None, _levels(results, metric))
    verdicts = _judged(results.run.mode, enough, base, metric, levels=levels)
    verdicts |= {arm: screen_verdict(fits[arm].log_ratio(arm, base), why) for arm, why in few.items()}
    return tuple(
        _overall(arm, base, verdicts.get(arm) or _blank(results, arm, None), cells, metric)
        for arm, cells in shared.items()
    )


def _levels(results: Results, metric: BenchMetric) -> Levels:
    values = {key: _values_by_arm(results, key, metric) for key in speed_keys(results)}
    return family_levels(_shared_fits(results, values), results.run.baseline, few_prompts(metric))


def _shared_fits(results: Results, values: Mapping[CellKey, Mapping[str, Values]]) -> dict[str, dict[CellKey, Fit]]:
    return shared_fits(values, [arm.name for arm in results.run.arms], results.run.baseline)


def _values_by_arm(results: Results, key: CellKey, metric: BenchMetric) -> dict[str, dict[int, dict[str, float]]]:
    return {arm.name: figures_by_launch(results, arm.name, key, metric) for arm in results.run.arms}


def _overall(arm: str, base: str, verdict: Verdict, cells: Mapping[CellKey, Fit], metric: BenchMetric) -> Overall:
    deltas = {key: math.expm1(one.log_ratio(arm, base)) for key, one in cells.items()}
    if not deltas:
        return Overall(arm=arm, verdict=verdict, cells=0)
    ranked = sorted(deltas, key=deltas.__getitem__, reverse=metric.less_is_better)
    worst, best = ranked[0], ranked[-1]
    return Overall(
        arm=arm,
        verdict=verdict,
        cells=len(deltas),
        worst=worst,
        worst_delta=deltas[worst],
        best=best,
        best_delta=deltas[best],
    )


def decompose(results: Results, arm: str, key: CellKey) -> Decomposition | None:
    """Decompose an arm's change against the baseline; None when a length or a rate is unknown.

    A launch has one rate here, its tokens over its time, because the engine's counters know no prompts.
    """
    base, mode = results.run.baseline, results.run.mode
    rates, lengths = (
        {one: measure(results, one, key) for one in (base, arm)} for measure in (decode_rates, acceptance_lengths)
    )
    both = {one: sorted(rates[one].keys() & lengths[one].keys()) for one in (base, arm)}
    if arm == base or not all(both.values()):
        return None

    steps = {one: {launch: rates[one][launch] / lengths[one][launch] for launch in both[one]} for one in (base, arm)}
    fitted = fit_cell({one: {launch: {"": value} for launch, value in steps[one].items()} for one in (base, arm)})
    return Decomposition(
        arm=arm,
        key=key,
        steps_s=_judged(mode, {arm: fitted}, base)[arm],
        acceptance_length=geomean([lengths[arm][launch] for launch in both[arm]]),
        steps_per_s=geomean(list(steps[arm].values())),
    )


def _row(results: Results, key: CellKey, metric: BenchMetric, levels: Levels) -> CellRow:
    run = results.run
    values = _values_by_arm(results, key, metric)
    verdicts = _verdicts(run, values, metric, levels_of(key, levels))
    figures = []
    for arm in run.arms:
        told = summary([value for ones in values[arm.name].values() for value in ones.values()])
        verdict = verdicts.get(arm.name) or _blank(results, arm.name, key)
        seen = {**asdict(told), "launches": len(values[arm.name])} if told else {}
        figures.append(ArmFigure(arm=arm.name, verdict=verdict, **seen))
    return CellRow(key=key, figures=tuple(figures))


def _verdicts(
    run: Run, values: Mapping[str, Values], metric: BenchMetric, levels: Mapping[str, float]
) -> dict[str, Verdict]:
    measured = {arm: ones for arm, ones in values.items() if ones}
    if run.baseline not in measured:
        return {arm: Verdict(claim=Conclusion.MISSING, reason=f"{run.baseline} has no figure here") for arm in measured}
    fitted = fit_cell(measured)
    others = {arm: fitted for arm in measured if arm != run.baseline}
    few = {arm: why for arm in others if (why := few_prompts(metric)(fitted, arm, run.baseline))}
    enough = {arm: one for arm, one in others.items() if arm not in few}
    hints = {arm: screen_verdict(fitted.log_ratio(arm, run.baseline), why) for arm, why in few.items()}
    return {run.baseline: BASELINE, **hints, **_judged(run.mode, enough, run.baseline, metric, levels=levels)}


def _judged(
    mode: Mode,
    fits: Mapping[str, Fit],
    base: str,
    metric: BenchMetric | None = None,
    *,
    levels: Mapping[str, float] | None = None,
) -> dict[str, Verdict]:
    """Judge each arm's fit against the baseline, at the levels of their family or else their own.

    With too few launches, or in screen mode, give only a hint.
    """
    contrasts = {arm: one.contrast(arm, base) for arm, one in fits.items()}
    known = {arm: one for arm, one in contrasts.items() if one is not None and mode is not Mode.SCREEN}
    less_is_better = metric is not None and metric.less_is_better
    own = [levels[arm] for arm in known] if levels else None
    judged = judge_contrasts(list(known.values()), levels=own, less_is_better=less_is_better)
    missing = {arm: one for arm, one in fits.items() if arm not in known}
    hints = {}
    for arm, one in missing.items():
        launches = one.fewest_launches(arm, base)
        few = "1 launch" if launches == 1 else f"{launches} launches"
        hints[arm] = screen_verdict(one.log_ratio(arm, base), None if mode is Mode.SCREEN else few)
    return {**dict(zip(known, judged, strict=True)), **hints}


def _blank(results: Results, arm: str, key: CellKey | None) -> Verdict:
    """Explain why an arm has no figure in a cell, or in any cell without a key.
    The arm is impossible, its answers lack the figure (such as the prefill rate of twenty tokens), it was void,
    or it was not measured.
    """
    if reason := results.run.arm(arm).impossible:
        return Verdict(claim=Conclusion.IMPOSSIBLE, reason=reason)
    if key is not None and results.good(arm, key):
        return Verdict(claim=Conclusion.MISSING, reason=UNTOLD)
    voids = [one.void for one in results.samples if one.arm == arm and key in (None, one.cell) and one.void is not None]
    if voids:
        return Verdict(claim=Conclusion.VOID, reason=Counter(voids).most_common(1)[0][0])
    return Verdict(claim=Conclusion.MISSING)

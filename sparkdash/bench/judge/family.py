"""Family: everything that one table compares, judged together.

Owns: the error level of each comparison of a table, and which cells have prompts enough for a claim. Must not know:
runs, verdicts.

Twenty cells judged alone at 5 % give a false claim in half of the comparisons of a profile with itself. The family is
all cells and arms of a metric, and the arms over all cells; its levels are those of `stats.fdr_levels`. A single cell
has Holm's levels over its arms.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sparkdash.bench.judge.arm_comparison import Contrast, Fit, fit_cell, fit_means
from sparkdash.bench.judge.hiccups import Values
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.stats import fdr_levels
from sparkdash.bench.run import CellKey

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
    """Return the rule of this metric. An aggregate has no prompts: each repetition sends the same ones."""

    def told(fit: Fit, arm: str, base: str) -> str | None:
        shared = len(fit.tastes[arm].keys() & fit.tastes[base].keys())
        if metric is BenchMetric.AGGREGATE or shared >= LEAST_PROMPTS:
            return None
        return "1 prompt" if shared == 1 else f"{shared} prompts"

    return told


def few_launches(fit: Fit, arm: str, base: str) -> str:
    """Return in words how many launches two arms have each, where they are too few for a claim."""
    launches = fit.fewest_launches(arm, base)
    return "1 launch" if launches == 1 else f"{launches} launches"


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
    """Return the levels of one cell, or over all cells, by arm."""
    return {arm: level for (place, arm), level in levels.items() if place == key}

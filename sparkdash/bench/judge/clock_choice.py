"""Clock of a sweep by tokens per Wh, at a stated loss of decode rate.

Owns: the comparison of the clocks over all cells, and the choice. Must not know: words, tables, how a clock is capped.
Rule 1: a clock is taken only if the loss is shown to be no larger than stated, and the saving is shown. Else the
baseline stays.
Rule 2: the intervals of one table hold together: the error level is divided by the number of intervals.
Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

from sparkdash.bench.judge.energy import CellEnergy, energy_by_launch
from sparkdash.bench.judge.family import panels, shared_fits
from sparkdash.bench.judge.hiccups import Values
from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch
from sparkdash.bench.judge.stats import ALPHA, geomean
from sparkdash.bench.plan import clock_sweep
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Kind
from sparkdash.domain.base import Frozen


class ClockVerdict(StrEnum):
    """Why a clock is taken or not."""

    TAKEN = "taken"
    BASELINE = "baseline"
    LOSES = "loses"
    """More decode rate is lost than stated."""
    MAY_LOSE = "may lose"
    """A larger loss than stated is not excluded."""
    SAVES_NOTHING = "saves nothing"
    """No saving is shown."""
    SAVES_LESS = "saves less"
    """Another clock that fits saves more."""
    UNKNOWN = "unknown"
    """No reading of the power, or too few launches for an interval."""


class Change(Frozen):
    """Relative change against the baseline over all cells: -0.04 is 4 % less. All changes' bounds hold together."""

    delta: float
    low: float | None = None
    """Bounds of the interval; None: an arm has too few launches."""
    high: float | None = None


class ClockFigure(Frozen):
    """Figures of a clock of the sweep, over all cells."""

    arm: str
    cap_mhz: int | None
    """Cap of the clock; None: no cap."""
    decode: Change | None = None
    """Change of the decode rate; None: the baseline itself, or no shared cell."""
    energy: Change | None = None
    """Change of Wh per output token."""
    tokens_per_wh: float | None = None
    """Geometric mean over the cells that every arm has."""
    clock_mhz: float | None = None
    """Lowest clock under load."""
    power_w: float | None = None
    """Mean power under load, over the cells."""
    temperature_c: float | None = None
    """Highest temperature."""
    verdict: ClockVerdict = ClockVerdict.UNKNOWN


class ClockChoice(Frozen):
    """Recommendation of a clock sweep."""

    most_loss: float
    """Stated loss of decode rate, 0..1."""
    taken: str | None
    """Arm that is recommended, the baseline where nothing is better; None: nothing is known."""
    figures: tuple[ClockFigure, ...]


def choose_clock(results: Results, energies: tuple[CellEnergy, ...]) -> ClockChoice | None:
    """Choose a clock; None where the run sweeps none."""
    run = results.run
    if not all(map(clock_sweep.is_clock_arm, run.arms)):
        return None
    most_loss = clock_sweep.MOST_LOSS if run.most_loss is None else run.most_loss
    level = ALPHA / (2 * max(1, len(run.arms) - 1))
    decode = _changes(results, _decode, level)
    energy = _changes(results, energy_by_launch, level)
    shared = _in_all_arms(energies)
    figures = [
        _figure(arm.name, clock_sweep.cap_mhz(arm), shared).replace(
            decode=decode.get(arm.name), energy=energy.get(arm.name)
        )
        for arm in run.arms
    ]
    judged = [one.replace(verdict=_verdict(one, run.baseline, most_loss)) for one in figures]
    fit = [one for one in judged if one.verdict is ClockVerdict.TAKEN]
    best = max(fit, key=lambda one: one.tokens_per_wh or 0.0, default=None)
    lesser = {one.arm for one in fit if one is not best}
    told = tuple(one.replace(verdict=ClockVerdict.SAVES_LESS) if one.arm in lesser else one for one in judged)
    known = any(one.verdict not in (ClockVerdict.UNKNOWN, ClockVerdict.BASELINE) for one in told)
    return ClockChoice(most_loss=most_loss, taken=best.arm if best else run.baseline if known else None, figures=told)


def _verdict(one: ClockFigure, baseline: str, most_loss: float) -> ClockVerdict:
    """Judge a clock by itself; TAKEN: it fits."""
    if one.arm == baseline:
        return ClockVerdict.BASELINE
    decode, energy = one.decode, one.energy
    if decode is None or energy is None or decode.low is None or decode.high is None or energy.high is None:
        return ClockVerdict.UNKNOWN
    if decode.high < -most_loss:
        return ClockVerdict.LOSES
    if decode.low < -most_loss:
        return ClockVerdict.MAY_LOSE
    return ClockVerdict.TAKEN if energy.high < 0 else ClockVerdict.SAVES_NOTHING


def _in_all_arms(energies: tuple[CellEnergy, ...]) -> tuple[CellEnergy, ...]:
    """Keep the cells in which every arm with any figure has one."""
    arms = {one.arm for one in energies}
    places = Counter(one.key for one in energies)
    return tuple(one for one in energies if places[one.key] == len(arms))


def _figure(arm: str, cap: int | None, energies: tuple[CellEnergy, ...]) -> ClockFigure:
    mine = [one for one in energies if one.arm == arm]
    if not mine:
        return ClockFigure(arm=arm, cap_mhz=cap)
    return ClockFigure(
        arm=arm,
        cap_mhz=cap,
        tokens_per_wh=geomean([one.tokens_per_wh for one in mine]),
        clock_mhz=min((one.clock_mhz for one in mine if one.clock_mhz is not None), default=None),
        temperature_c=max((one.temperature_c for one in mine if one.temperature_c is not None), default=None),
        power_w=sum(one.power_w for one in mine) / len(mine),
    )


def _decode(results: Results, arm: str, key: CellKey) -> Values:
    return figures_by_launch(results, arm, key, BenchMetric.DECODE)


def _changes(results: Results, figures: Callable[[Results, str, CellKey], Values], level: float) -> dict[str, Change]:
    """Return each arm's change against the baseline over the cells that both have."""
    run = results.run
    arms = [arm.name for arm in run.arms]
    keys = [cell.key for cell in run.cells if cell.key.kind is Kind.SPEED]
    values = {key: {arm: figures(results, arm, key) for arm in arms} for key in keys}
    found = {}
    for arm, fitted in panels(shared_fits(values, arms, run.baseline), run.baseline).items():
        contrast = fitted.contrast(arm, run.baseline)
        low, high = contrast.interval(level) if contrast else (None, None)
        found[arm] = Change(
            delta=math.expm1(fitted.log_ratio(arm, run.baseline)),
            low=None if low is None else math.expm1(low),
            high=None if high is None else math.expm1(high),
        )
    return found

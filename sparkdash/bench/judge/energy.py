"""Energy per 1,000 output tokens, from the power under load and the time of the requests.

Owns: its formula, and its change against the baseline. Must not know: sensors, tables.
Rule: no difference is claimed. Each interval is of one cell alone, and the power is read about once a second.
Pure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean

from sparkdash.bench.judge.arm_comparison import fit_cell
from sparkdash.bench.judge.stats import summary
from sparkdash.bench.records import CellRecord, RequestSample
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Kind
from sparkdash.domain.base import Frozen

GPU_ONLY = "GPU only"
"""Sensor of records that name none."""
JOULES_PER_WH = 3600.0
DEFINITION = "mean power under load x (last token - first request sent) / completion tokens, prefill included"
_THOUSAND = 1000


class EnergyChange(Frozen):
    """Relative change of the energy against the baseline in the same cell: -0.04 is 4 % less."""

    delta: float
    low: float | None = None
    """Bounds of the 95 % interval, launches as the unit; None: no arm has two launches."""
    high: float | None = None


class CellEnergy(Frozen):
    """Energy of one arm in one cell, in Wh per 1,000 output tokens, with the state of the box beside it."""

    arm: str
    key: CellKey
    wh: float
    low: float
    high: float
    bootstrap: bool
    """True: low and high are a 95 % interval of the median. False (below 8 values): the smallest and largest value."""
    n: int
    """Repetitions."""
    launches: int
    power_w: float
    """Mean over the launches."""
    sensor: str
    clock_mhz: float | None = None
    """Lowest SM clock under load."""
    temperature_c: float | None = None
    """Highest temperature."""
    change: EnergyChange | None = None
    """Change against the baseline; None: the baseline itself, no figure of it, another sensor, or not comparable."""

    @property
    def tokens_per_wh(self) -> float:
        """Output tokens for one Wh."""
        return _THOUSAND / self.wh


def cell_energies(results: Results, apart: Collection[str] = ()) -> tuple[CellEnergy, ...]:
    """Return the energy of each arm in each speed cell with readings of the power. `apart`: arms without a change."""
    keys = [cell.key for cell in results.run.cells if cell.key.kind is Kind.SPEED]
    arms = [arm.name for arm in results.run.arms]
    found: list[CellEnergy] = []
    for key in keys:
        mine = [(one, energy_by_launch(results, arm, key)) for arm in arms if (one := _energy(results, arm, key))]
        base = next(((one, values) for one, values in mine if one.arm == results.run.baseline), None)
        for one, values in mine:
            compared = base is not None and one.arm not in {*apart, base[0].arm} and one.sensor == base[0].sensor
            found.append(one.replace(change=_change(values, base[1])) if compared and base else one)
    return tuple(found)


def _energy(results: Results, arm: str, key: CellKey) -> CellEnergy | None:
    """Return the energy of a cell; None without a reading of the power, or with those of two sensors."""
    values = energy_by_launch(results, arm, key)
    told = summary([value for ones in values.values() for value in ones.values()])
    cells = [one for one in _finished(results, arm, key) if one.launch in values]
    sensors = {one.power_sensor or GPU_ONLY for one in cells if one.power_w is not None}
    if told is None or len(sensors) != 1:
        return None
    return CellEnergy(
        arm=arm,
        key=key,
        wh=told.median,
        low=told.low,
        high=told.high,
        bootstrap=told.bootstrap,
        n=told.n,
        launches=len(values),
        power_w=fmean(_known(one.power_w for one in cells)),
        sensor=sensors.pop(),
        clock_mhz=min(_known(one.clock_mhz for one in cells), default=None),
        temperature_c=max(_known(one.temperature_c for one in cells), default=None),
    )


def energy_by_launch(results: Results, arm: str, key: CellKey) -> dict[int, dict[str, float]]:
    """Return a cell's Wh per 1,000 output tokens by launch and repetition, of launches whose power is known."""
    power: dict[int, list[float]] = defaultdict(list)
    for cell in _finished(results, arm, key):
        if cell.power_w:
            power[cell.launch].append(cell.power_w)
    streams: dict[tuple[int, int], list[RequestSample]] = defaultdict(list)
    for one in results.good(arm, key):
        streams[one.launch, one.rep].append(one)
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for (launch, rep), ones in streams.items():
        seconds = _seconds_per_token(ones) if len(ones) == key.concurrency else None
        if launch in power and seconds:
            found[launch][f"rep {rep}"] = _THOUSAND * fmean(power[launch]) * seconds / JOULES_PER_WH
    return dict(found)


def _seconds_per_token(streams: Sequence[RequestSample]) -> float | None:
    """Return the time of concurrent requests over their output tokens; None while a figure is missing."""
    ends = [one.last_ns for one in streams if one.last_ns is not None]
    tokens = [one.n for one in streams if one.n]
    if len(ends) < len(streams) or len(tokens) < len(streams):
        return None
    return (max(ends) - min(one.t0_ns for one in streams)) / 1e9 / sum(tokens)


def _change(mine: dict[int, dict[str, float]], base: dict[int, dict[str, float]]) -> EnergyChange:
    """Compare an arm with the baseline, launch by launch."""
    fitted = fit_cell({"baseline": base, "arm": mine})
    contrast = fitted.contrast("arm", "baseline")
    if contrast is None:
        return EnergyChange(delta=math.expm1(fitted.log_ratio("arm", "baseline")))
    low, high = contrast.interval()
    return EnergyChange(delta=math.expm1(contrast.log_ratio), low=math.expm1(low), high=math.expm1(high))


def _finished(results: Results, arm: str, key: CellKey) -> list[CellRecord]:
    return [one for one in results.cells if one.arm == arm and one.key == key and one.void is None]


def _known(figures: Iterable[float | None]) -> list[float]:
    return [figure for figure in figures if figure is not None]

"""Comparison of a profile's newest build with earlier ones, by evenings.

Owns: what may be said of evenings. Must not know: how evenings are read, pages.
Rule 1: evenings are no experiment, so nothing is claimed: the newest build *looks* slower, faster, or does not differ.
Rule 2: the unit is the evening. Where builds have enough of them (SPREAD_DF), their spread decides; else a change has
to exceed what one evening cannot settle (LARGE).
Pure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from statistics import fmean

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.stats import ALPHA, t_quantile
from sparkdash.bench.judge.verdict import FLOOR, RESOLUTION
from sparkdash.bench.watch.builds import NAMED, Build, Evening, Period, WatchedCell, WatchedEvenings
from sparkdash.domain.base import Frozen

SPREAD_DF = 2
"""Evenings beyond one per build, from which the spread between evenings is known well enough."""
LARGE = RESOLUTION
"""Change that is mentioned without a known spread between evenings."""


class Outlook(StrEnum):
    """Weak statement about the newest build."""

    SLOWER = "looks slower"
    FASTER = "looks faster"
    STEADY = "not shown to differ"
    UNKNOWN = "not known"


class BuildProperty(Frozen):
    """Property of a build that changed. None: unknown."""

    name: str
    before: str | None
    now: str | None


class CellChange(Frozen):
    """Cell that both builds measured: geometric means over the evenings."""

    cell: WatchedCell
    before: float
    now: float

    @property
    def delta(self) -> float:
        """Relative change."""
        return self.now / self.before - 1


class BuildChange(Frozen):
    """Newest build against an earlier one."""

    outlook: Outlook
    delta: float | None = None
    """Geometric mean over the common cells; None without one."""
    low: float | None = None
    """Bounds of the 95 % interval with evenings as the unit; None: too few evenings."""
    high: float | None = None
    cells: tuple[CellChange, ...] = ()
    evenings: tuple[int, int] = (0, 0)
    """Evenings with common cells, earlier and newest build."""


class Watch(Frozen):
    """Figures of a profile over time, and what is to be said of its newest build."""

    profile: str
    metric: BenchMetric
    simulated: bool
    periods: tuple[Period, ...]
    """Oldest first."""
    left_out: int
    changes: tuple[BuildChange, ...] = ()
    """Newest build against each earlier period, in the order of `periods`."""
    changed: tuple[BuildProperty, ...] = ()
    """Differences between the newest build and the one before."""

    @property
    def last(self) -> BuildChange | None:
        """Newest build against the one before; None with one build."""
        return self.changes[-1] if self.changes else None

    @property
    def before(self) -> Build | None:
        """Build before the newest: the one to go back to."""
        return self.periods[-2].build if len(self.periods) > 1 else None


def watch_profile(profile: str, metric: BenchMetric, found: WatchedEvenings) -> Watch:
    """Compare the newest period with every earlier one."""
    earlier, newest = found.periods[:-1], found.periods[-1:]
    spread = _evening_spread(found.periods)
    return Watch(
        profile=profile,
        metric=metric,
        simulated=found.simulated,
        periods=found.periods,
        left_out=found.left_out,
        changes=tuple(_compare(one, newest[0], metric, spread) for one in earlier),
        changed=tuple(_changed(earlier[-1].build, newest[0].build)) if earlier else (),
    )


def _compare(old: Period, new: Period, metric: BenchMetric, spread: tuple[float, int]) -> BuildChange:
    before, now = _by_cell(old.evenings), _by_cell(new.evenings)
    shared = [cell for cell in now if cell in before]
    if not shared:
        return BuildChange(outlook=Outlook.UNKNOWN)
    cells = tuple(
        CellChange(cell=one, before=math.exp(fmean(before[one])), now=math.exp(fmean(now[one]))) for one in shared
    )
    effect = fmean(fmean(now[one]) - fmean(before[one]) for one in shared)
    evenings = _count(old.evenings, shared), _count(new.evenings, shared)
    variance, df = spread
    low, high = -LARGE, LARGE
    bounds: dict[str, float] = {}
    if df >= SPREAD_DF:
        half = t_quantile(1 - ALPHA / 2, df) * math.sqrt(variance * (1 / evenings[0] + 1 / evenings[1]))
        bounds = {"low": math.expm1(effect - half), "high": math.expm1(effect + half)}
        low, high = -max(half, FLOOR), max(half, FLOOR)
    return BuildChange(
        outlook=_outlook(effect, low, high, metric), delta=math.expm1(effect), cells=cells, evenings=evenings, **bounds
    )


def _outlook(effect: float, low: float, high: float, metric: BenchMetric) -> Outlook:
    """Return what a change beyond these limits looks like."""
    if low <= effect <= high:
        return Outlook.STEADY
    return Outlook.FASTER if (effect > 0) != metric.less_is_better else Outlook.SLOWER


def _by_cell(evenings: Iterable[Evening]) -> dict[WatchedCell, list[float]]:
    """Return the logarithms of each cell's figures, one per evening."""
    found: dict[WatchedCell, list[float]] = defaultdict(list)
    for evening in evenings:
        for rate in evening.rates:
            found[rate.cell].append(math.log(rate.value))
    return found


def _count(evenings: Sequence[Evening], cells: Sequence[WatchedCell]) -> int:
    return sum(any(rate.cell in cells for rate in one.rates) for one in evenings)


def _evening_spread(periods: Sequence[Period]) -> tuple[float, int]:
    """Return the variance between evenings of one build, over all builds, and its degrees of freedom; (0, 0) without
    a build of two evenings.
    """
    squares, df = 0.0, 0
    for period in periods:
        known = {cell: fmean(logs) for cell, logs in _by_cell(period.evenings).items() if len(logs) > 1}
        remainders = list(_remainders(period.evenings, known))
        squares += sum(one**2 for one in remainders)
        df += max(0, len(remainders) - 1)
    return (squares / df, df) if df else (0.0, 0)


def _remainders(evenings: Sequence[Evening], means: Mapping[WatchedCell, float]) -> Iterator[float]:
    """Yield how far each evening lies from its build's mean, over the cells that several evenings have."""
    for evening in evenings:
        apart = [math.log(rate.value) - means[rate.cell] for rate in evening.rates if rate.cell in means]
        if apart:
            yield fmean(apart)


def _changed(before: Build, now: Build) -> Iterator[BuildProperty]:
    for name, get in NAMED:
        if get(before) != get(now):
            yield BuildProperty(name=name, before=get(before), now=get(now))

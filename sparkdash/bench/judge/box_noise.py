"""Noise of a box, from launches of one profile against itself, and the floor of claims that follows from it.

Owns: the calibration. Must not know: runs, cells, words.
Pure.
"""

from __future__ import annotations

import math
from statistics import median

from sparkdash.bench.judge.arm_comparison import Values, fit_cell, logarithms
from sparkdash.bench.judge.stats import MEDIAN_VARIANCE, mde
from sparkdash.domain.base import Frozen

HICCUP = 7
"""Robust standard deviations beyond which a request of a calibration is a hiccup of the box. Remainders of a median
polish are too small where there are few of them: at 7, one calm request in a hundred is left out of six launches of five.
"""
_NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

_POLISHES = 3


class Noise(Frozen):
    """Noise of a box, measured by launches of one profile against itself (A/A). Relative: 0.01 is 1 %."""

    launch_sd: float
    """Standard deviation between launches."""
    within_sd: float
    """Standard deviation between requests of one launch."""
    drift: float | None
    """Drift over the whole session, first to last launch; None: too few launches to separate it from chance."""
    launches: int
    samples: int
    """Samples per launch."""

    def mde(self, launches: int, samples: int) -> float:
        """Return the smallest effect found 4 times in 5 with this many launches per arm and samples per launch."""
        return mde(launches, samples, self.launch_sd, self.within_sd)

    def floor(self, launches: int, samples: int) -> float:
        """Return the difference that two equal arms exceed once in 20 times on this box. No smaller one is claimed."""
        spread = self.launch_sd**2 + MEDIAN_VARIANCE * self.within_sd**2 / samples
        return 1.96 * math.sqrt(2 * spread / launches)


def calibrate(values: Values) -> Noise | None:
    """The noise of a box from one cell of an A/A run, all its launches taken as one arm; None with fewer than three.

    Single requests far from what their launch and prompt explain are left out: one hiccup would raise the floor of all
    later runs.
    """
    found = fit_cell({"": without_hiccups(values)})
    if found.variance is None or found.df < 2:
        return None
    places = found.launches[""]
    samples = min(len(values[place]) for place in places)
    within = found.noise or 0.0
    return Noise(
        launch_sd=math.sqrt(max(0.0, found.variance - MEDIAN_VARIANCE * within / samples)),
        within_sd=math.sqrt(within),
        drift=None if found.slope is None else found.slope * (max(places) - min(places)),
        launches=len(places),
        samples=samples,
    )


def without_hiccups(values: Values) -> dict[int, dict[str, float]]:
    """Leave out requests whose residual exceeds HICCUP robust standard deviations, at most one request in ten."""
    kept = {launch: dict(ones) for launch, ones in values.items() if ones}
    for _ in range(sum(map(len, kept.values())) // 10):
        logs = logarithms({"": kept})[""]
        rest = {place: abs(one) for place, one in _median_polish(logs).items()}
        worst = max(rest, key=rest.__getitem__)
        if rest[worst] <= HICCUP * _NORMAL_MAD * median(rest.values()) or len(kept[worst[0]]) < 2:
            break
        del kept[worst[0]][worst[1]]
    return kept


def _median_polish(logs: Values) -> dict[tuple[int, str], float]:
    """Return what neither launch nor prompt explains, by launch and prompt: Tukey's median polish.

    Means would spread a hiccup over its whole launch and prompt, and hide it where there are few of either.
    """
    rest = {(launch, prompt): one for launch, ones in logs.items() for prompt, one in ones.items()}
    for _ in range(_POLISHES):
        for side in (0, 1):
            groups: dict[int | str, list[float]] = {}
            for place, one in rest.items():
                groups.setdefault(place[side], []).append(one)
            middles = {key: median(ones) for key, ones in groups.items()}
            rest = {place: one - middles[place[side]] for place, one in rest.items()}
    return rest

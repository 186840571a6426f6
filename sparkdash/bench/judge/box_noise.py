"""Noise of a box, from launches of one profile against itself, and the floor of claims that follows from it.

Owns: the calibration. Must not know: runs, cells, words.
Pure.
"""

from __future__ import annotations

import math

from sparkdash.bench.judge.arm_comparison import fit_means
from sparkdash.bench.judge.hiccups import Values, without_hiccups
from sparkdash.bench.judge.stats import mde
from sparkdash.domain.base import Frozen


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
        spread = self.launch_sd**2 + self.within_sd**2 / samples
        return 1.96 * math.sqrt(2 * spread / launches)


def calibrate(values: Values) -> Noise | None:
    """The noise of a box from one cell of an A/A run, all its launches taken as one arm; None with fewer than three.

    Single requests far from what their launch and prompt explain are left out: one hiccup would raise the floor of all
    later runs.
    """
    found = fit_means({"": without_hiccups(values)})
    if found.variance is None or found.df < 2:
        return None
    places = found.launches[""]
    samples = min(len(values[place]) for place in places)
    within = found.noise or 0.0
    return Noise(
        launch_sd=math.sqrt(max(0.0, found.variance - within / samples)),
        within_sd=math.sqrt(within),
        drift=None if found.slope is None else found.slope * (max(places) - min(places)),
        launches=len(places),
        samples=samples,
    )

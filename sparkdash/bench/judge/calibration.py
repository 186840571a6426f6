"""Calibration: the noise of the box by metric, from a run that compares one profile with itself.

Pure.
"""

from __future__ import annotations

import math
from statistics import fmean

from sparkdash.bench.judge.arm_comparison import Values, fit_means, without_hiccups
from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch, speed_keys
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Noise


def calibration(results: Results) -> dict[str, Noise]:
    """Return the noise of the box by metric, from a run that compares one profile with itself (A/A).

    The root mean square over the speed cells; a metric of which no cell has three launches is left out.
    """
    known = {metric.value: _noise(results, metric) for metric in BenchMetric}
    return {metric: noise for metric, noise in known.items() if noise is not None}


def _noise(results: Results, metric: BenchMetric) -> Noise | None:
    known = [noise for key in _speed_cells(results, metric) if (noise := _cell_noise(results, metric, key)) is not None]
    if not known:
        return None
    drifts = [one.drift for one in known if one.drift is not None]
    return Noise(
        launch_sd=math.sqrt(fmean(one.launch_sd**2 for one in known)),
        within_sd=math.sqrt(fmean(one.within_sd**2 for one in known)),
        drift=fmean(drifts) if drifts else None,
        launches=min(one.launches for one in known),
        samples=min(one.samples for one in known),
    )


def _speed_cells(results: Results, metric: BenchMetric) -> list[CellKey]:
    return [key for key in speed_keys(results) if metric is not BenchMetric.AGGREGATE or key.concurrency > 1]


def _cell_noise(results: Results, metric: BenchMetric, key: CellKey) -> Noise | None:
    arms = (figures_by_launch(results, arm.name, key, metric) for arm in results.run.arms)
    return calibrate({launch: prompts for values in arms for launch, prompts in values.items()})


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

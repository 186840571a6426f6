"""How often verdicts are wrong, on a simulated box that this project's own tests do not use.

    python tests/perf/verdict_rates.py [--runs 1000] [--jobs 2] [--cells 1 4 20] [--prompts 5]

Prints the table of docs/verdicts.md: the share of whole runs with at least one claim although the arms are equal, the
power for +2, +3 and +5 %, and the coverage of the interval over all cells. A run is one table of `sparkdash ab` with
its line over all cells. The box adds to ln y, by the time at which each request is sent: a level of the launch, of
which 70 % is common to its cells; prompts 5 % apart; noise of 1 % from request to request.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import fmean
from typing import NamedTuple

from sparkdash.bench.judge.family import family_levels, few_prompts, levels_of, panels, shared_fits
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.verdict import judge_contrasts
from sparkdash.bench.plan.launch_order import launch_order
from sparkdash.bench.run import CellKey, Mode

LAUNCH_SD, COMMON, PROMPT_SD, CV = 0.006, 0.7, 0.05, 0.01
DRIFT = 0.015
FEW = few_prompts(BenchMetric.DECODE)

Noise = Callable[[random.Random, float], float]
"""Noise of one request, given that of the one before it."""
Drift = Callable[[float], float]
"""What the box adds to ln y at a share 0..1 of the session."""


class Box(NamedTuple):
    """Troubles of a simulated box."""

    noise: Noise
    drift: Callable[[random.Random], Drift]
    launch_sd: float = LAUNCH_SD


class Outcome(NamedTuple):
    """What one run's table says of arm B."""

    cells: list[float]
    """Claimed sign of each cell: +1, -1, or 0 for none."""
    overall: float
    covered: bool
    """Whether the 95 % interval over all cells holds the truth."""


def gaussian(rng: random.Random, _before: float) -> float:
    """Independent and normal."""
    return rng.gauss(0, CV)


def heavy_tails(rng: random.Random, _before: float) -> float:
    """Student's t with 3 degrees of freedom, of the same standard deviation."""
    return CV / math.sqrt(3) * rng.gauss(0, 1) / math.sqrt(rng.gammavariate(1.5, 2) / 3)


def skewed(rng: random.Random, _before: float) -> float:
    """Slower by an exponential time, never faster."""
    return -rng.expovariate(1 / CV)


def correlated(rng: random.Random, before: float) -> float:
    """Each request resembles the one before it (0.6)."""
    return 0.6 * before + rng.gauss(0, 0.8 * CV)


def outliers(rng: random.Random, _before: float) -> float:
    """One request in twenty is 20 % slower."""
    return rng.gauss(0, CV) - (0.2 if rng.random() < 0.05 else 0.0)


def steady(_rng: random.Random) -> Drift:
    """No drift."""
    return lambda _at: 0.0


def linear(_rng: random.Random) -> Drift:
    """1.5 % slower by the end."""
    return lambda at: -DRIFT * at


def step(rng: random.Random) -> Drift:
    """1.5 % slower from some moment on."""
    begins = rng.random()
    return lambda at: -DRIFT * (at >= begins)


def out_and_back(_rng: random.Random) -> Drift:
    """1.5 % slower in the middle, as at first by the end."""
    return lambda at: -DRIFT * math.sin(math.pi * at)


def slow_sine(rng: random.Random) -> Drift:
    """One wave over the session, 1.5 % from top to bottom, from any phase on."""
    phase = rng.random()
    return lambda at: DRIFT / 2 * math.sin(2 * math.pi * (at + phase))


BOXES = {
    "quiet noise": Box(gaussian, steady),
    "heavy tails": Box(heavy_tails, steady),
    "skewed": Box(skewed, steady),
    "correlated requests": Box(correlated, steady),
    "outliers": Box(outliers, steady),
    "linear drift": Box(gaussian, linear),
    "step": Box(gaussian, step),
    "out and back": Box(gaussian, out_and_back),
    "slow sine": Box(gaussian, slow_sine),
    "out and back, launches 0.1 % apart": Box(gaussian, out_and_back, launch_sd=0.001),
    "slow sine, launches 0.1 % apart": Box(gaussian, slow_sine, launch_sd=0.001),
}


def simulated(
    rng: random.Random, box: Box, mode: Mode, cells: int, prompts: int, effect: float
) -> dict[CellKey, dict[str, dict[int, dict[str, float]]]]:
    """Return tok/s by cell, arm, launch and prompt. `effect` is ln(B / A)."""
    order = launch_order(("A", "B"), mode)
    keys = [CellKey(suite="simulated", context=number, output=150) for number in range(cells)]
    texts = {(key, n): rng.gauss(0, PROMPT_SD) for key in keys for n in range(prompts)}
    drift = box.drift(rng)
    found: dict[CellKey, dict[str, dict[int, dict[str, float]]]] = {key: {"A": {}, "B": {}} for key in keys}
    sent, total, noise = 0, len(order) * cells * prompts, 0.0
    for place, slot in enumerate(order):
        launch = rng.gauss(0, box.launch_sd * math.sqrt(COMMON)) + (effect if slot.arm == "B" else 0.0)
        for key in rng.sample(keys, len(keys)):
            level = math.log(65) + launch + rng.gauss(0, box.launch_sd * math.sqrt(1 - COMMON))
            ones = found[key][slot.arm].setdefault(place, {})
            for number in range(prompts):
                noise = box.noise(rng, noise)
                ones[str(number)] = math.exp(level + texts[key, number] + noise + drift(sent / total))
                sent += 1
    return found


def judged(values: dict[CellKey, dict[str, dict[int, dict[str, float]]]], effect: float) -> Outcome:
    """Judge one run as `sparkdash ab` does."""
    shared = shared_fits(values, ("A", "B"), "A")
    levels = family_levels(shared, "A", FEW)
    signs = []
    for key, fit in shared["B"].items():
        contrast = fit.contrast("B", "A")
        own = list(levels_of(key, levels).values()) or None
        signs.append(0.0 if contrast is None or FEW(fit, "B", "A") else _sign(judge_contrasts([contrast], levels=own)))
    whole = panels(shared, "A")["B"].contrast("B", "A", panel=True)
    assert whole is not None
    low, high = whole.interval()
    own = list(levels_of(None, levels).values()) or None
    return Outcome(signs, _sign(judge_contrasts([whole], levels=own)), low <= effect <= high)


def _sign(verdicts: list) -> float:
    (verdict,) = verdicts
    return math.copysign(1.0, verdict.delta) if verdict.claim.told else 0.0


def outcomes(name: str, mode: Mode, cells: int, prompts: int, effect: float, runs: int) -> list[Outcome]:
    """Return the outcomes of that many runs; the same on every machine."""
    rng = random.Random(f"{name} {mode} {cells} {prompts} {effect}")
    return [judged(simulated(rng, BOXES[name], mode, cells, prompts, effect), effect) for _ in range(runs)]


def false_claims(found: list[Outcome]) -> float:
    """Return the share of runs with a claim in any cell or over all cells."""
    return fmean(any(one.cells) or bool(one.overall) for one in found)


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    asked.add_argument("--runs", type=int, default=1000)
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument("--prompts", type=int, default=5)
    asked.add_argument("--cells", type=int, nargs="+", default=[1, 4, 20])
    given = asked.parse_args()
    modes = (Mode.STANDARD, Mode.CAREFUL)
    with ProcessPoolExecutor(given.jobs) as pool:
        heads = [f"{mode} {cells}" for mode in modes for cells in given.cells]
        print("| the arms are equal, runs with a false claim | " + " | ".join(heads) + " | coverage |")
        for name in BOXES:
            cases = [(mode, cells) for mode in modes for cells in given.cells]
            run = partial(outcomes, name, prompts=given.prompts, effect=0.0, runs=given.runs)
            found = [one.result() for one in [pool.submit(run, mode=mode, cells=cells) for mode, cells in cases]]
            covered = fmean(one.covered for ones in found for one in ones)
            shares = " | ".join(f"{100 * false_claims(ones):.1f} %" for ones in found)
            print(f"| {name} | {shares} | {100 * covered:.1f} % |", flush=True)
        print("\n| B is faster, cells that say so (the line over all cells) | " + " | ".join(heads) + " |")
        for effect in (0.02, 0.03, 0.05):
            run = partial(outcomes, "linear drift", prompts=given.prompts, effect=math.log1p(effect), runs=given.runs)
            found = [one.result() for one in [pool.submit(run, mode=mode, cells=cells) for mode, cells in cases]]
            shares = " | ".join(
                f"{100 * fmean(sign > 0 for one in ones for sign in one.cells):.0f} % "
                f"({100 * fmean(one.overall > 0 for one in ones):.0f})"
                for ones in found
            )
            print(f"| +{100 * effect:.0f} % | {shares} |", flush=True)


if __name__ == "__main__":
    main()

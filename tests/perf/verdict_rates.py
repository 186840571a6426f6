"""How often verdicts are wrong, on simulated boxes that this project's own tests do not use.

    python tests/perf/verdict_rates.py [--quick] [--runs 1000] [--jobs 2] [--cells 1 4 20] [--prompts 5] [--arms 2]

Prints the tables of docs/evidence.md: the share of whole runs with at least one claim although the arms are equal, the
coverage of the interval over all cells, and the power for +2, +3 and +5 %. A run is one table of `sparkdash ab` with
its line over all cells. A box adds to ln y, by the time at which each request is sent: a level of the launch, of which
70 % is common to its cells; prompts 5 % apart; noise of 1 % from request to request; and a drift of 1.5 %.
"""

from __future__ import annotations

import argparse
import math
import random
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from statistics import fmean
from typing import NamedTuple

from simulated_boxes import ARMS, BOXES, Values, simulated

from sparkdash.bench.judge.arm_comparison import Contrast
from sparkdash.bench.judge.judgement import family_levels, few_prompts, levels_of, panels, shared_fits
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.stats import ALPHA
from sparkdash.bench.judge.verdict import judge_contrasts
from sparkdash.bench.run import Mode

FEW = few_prompts(BenchMetric.DECODE)
QUICK = ("quiet noise", "correlated requests", "out and back, launches 0.1 % apart", "slow sine, launches 0.1 % apart")


class Outcome(NamedTuple):
    """What one run's table says of the other arms."""

    cells: list[float]
    """Claimed sign of each cell: +1, -1, or 0 for none."""
    overall: list[float]
    covered: list[bool]
    """Whether the 95 % intervals over all cells hold the truth."""


def judged(values: Values, effect: float, arms: int = 2) -> Outcome:
    """Judge one run as `sparkdash ab` does."""
    shared = shared_fits(values, ARMS[:arms], "A")
    levels = family_levels(shared, "A", FEW)
    signs = []
    for key in values:
        contrasts = {arm: cells[key].contrast(arm, "A") for arm, cells in shared.items()}
        signs += _signs(list(contrasts.values()), [levels[key, arm] for arm in contrasts] if levels else [])
    whole = [one.contrast(arm, "A") for arm, one in panels(shared, "A").items()]
    intervals = [one.interval() for one in whole if one is not None]
    covered = [low <= effect <= high for low, high in intervals]
    return Outcome(signs, _signs(whole, list(levels_of(None, levels).values())), covered)


def _signs(contrasts: list[Contrast | None], levels: list[float]) -> list[float]:
    """Return the claimed signs. A p above every level is no claim, which saves the quantiles."""
    known = [one for one in contrasts if one is not None]
    assert len(known) == len(contrasts)
    if all(one.p > ALPHA for one in known):
        return [0.0] * len(known)
    verdicts = judge_contrasts(known, levels=levels or None)
    return [math.copysign(1.0, one.delta or 0.0) if one.claim.told else 0.0 for one in verdicts]


def outcomes(name: str, mode: Mode, cells: int, prompts: int, effect: float, runs: int, arms: int = 2) -> list[Outcome]:
    """Return the outcomes of that many runs; the same on every machine."""
    rng = random.Random(f"{name} {mode} {cells} {prompts} {effect} {arms}")
    made = (simulated(rng, BOXES[name], mode, cells, prompts, effect, arms) for _ in range(runs))
    return [judged(one, effect, arms) for one in made]


def false_claims(found: list[Outcome]) -> float:
    """Return the share of runs with a claim in any cell or over all cells."""
    return fmean(any(one.cells) or any(one.overall) for one in found)


def coverage(found: list[list[Outcome]]) -> float:
    """Return the share of intervals over all cells that hold the truth."""
    return fmean(held for ones in found for one in ones for held in one.covered)


def main() -> None:
    """Print the tables."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    asked.add_argument("--quick", action="store_true", help="four boxes, 200 runs, one and four cells")
    asked.add_argument("--runs", type=int, default=1000)
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument("--prompts", type=int, default=5)
    asked.add_argument("--cells", type=int, nargs="+", default=[1, 4, 20])
    asked.add_argument("--arms", type=int, default=2)
    given = asked.parse_args()
    boxes = list(BOXES)
    if given.quick:
        boxes, given.runs, given.cells = list(QUICK), 200, [1, 4]
    cases = [(mode, cells) for mode in (Mode.STANDARD, Mode.CAREFUL) for cells in given.cells]
    heads = " | ".join(f"{mode} {cells}" for mode, cells in cases)

    with ProcessPoolExecutor(given.jobs) as pool:

        def simulate(name: str, effect: float = 0.0) -> list[Future[list[Outcome]]]:
            run = partial(outcomes, name, prompts=given.prompts, effect=effect, runs=given.runs, arms=given.arms)
            return [pool.submit(run, mode=mode, cells=cells) for mode, cells in cases]

        equal = {name: simulate(name) for name in boxes}
        faster = {
            (name, effect): simulate(name, math.log1p(effect))
            for name in ("linear drift", "out and back")
            for effect in (0.02, 0.03, 0.05)
        }
        print(f"| the arms are equal, runs with a false claim | {heads} | coverage |")
        for name, futures in equal.items():
            found = [one.result() for one in futures]
            shares = " | ".join(f"{100 * false_claims(ones):.1f} %" for ones in found)
            print(f"| {name} | {shares} | {100 * coverage(found):.1f} % |", flush=True)
        print(f"\n| the others are faster, cells that say so (the line over all cells) | {heads} |")
        for (name, effect), futures in faster.items():
            found = [one.result() for one in futures]
            shares = " | ".join(
                f"{100 * fmean(sign > 0 for one in ones for sign in one.cells):.0f} % "
                f"({100 * fmean(sign > 0 for one in ones for sign in one.overall):.0f})"
                for ones in found
            )
            print(f"| {name}, +{100 * effect:.0f} % | {shares} |", flush=True)


if __name__ == "__main__":
    main()

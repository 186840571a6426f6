"""Simulated boxes with troubles of their own, for verdict_rates.py: noise, launches and drifts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from sparkdash.bench.plan.run_plan import launch_order
from sparkdash.bench.run import CellKey, Mode

LAUNCH_SD, COMMON, PROMPT_SD, CV = 0.006, 0.7, 0.05, 0.01
DRIFT, DEEP = 0.015, 0.04
STARTING = 1.0
"""Time in which an engine starts, over the time in which it is measured. Drifts go on meanwhile."""
ARMS = "ABCD"
KEYS = [CellKey(suite="simulated", context=number, output=150) for number in range(100)]

Noise = Callable[[random.Random, float], float]
"""Noise of one request, given that of the one before it."""
Drift = Callable[[float], float]
"""What the box adds to ln y at a share 0..1 of the session."""
Levels = Callable[[random.Random, int, float], Sequence[float]]
"""Levels of that many launches, which lie that standard deviation apart."""
Values = dict[CellKey, dict[str, dict[int, dict[str, float]]]]
"""tok/s by cell, arm, launch and prompt."""


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
    """Slower and slower until the end."""
    return lambda at: -DRIFT * at


def warming_up(_rng: random.Random) -> Drift:
    """Slower at first quickly, then hardly more."""
    return lambda at: -DRIFT * (1 - math.exp(-5 * at))


def s_shaped(_rng: random.Random) -> Drift:
    """Slower at first and at last, level between."""
    return lambda at: -DRIFT * (2 * at - 1) ** 3


def step(rng: random.Random) -> Drift:
    """Slower from some moment on."""
    begins = rng.random()
    return lambda at: -DRIFT * (at >= begins)


def out_and_back(_rng: random.Random) -> Drift:
    """Slowest in the middle, as at first by the end."""
    return lambda at: -DRIFT * math.sin(math.pi * at)


def dip(rng: random.Random) -> Drift:
    """Slower for a third of the session, around any moment."""
    middle = rng.random()
    return lambda at: -DRIFT * math.exp(-(((at - middle) / 0.2) ** 2))


def waves(number: float, rng: random.Random) -> Drift:
    """That many waves over the session, DRIFT from top to bottom, from any phase on."""
    phase = rng.random()
    return lambda at: DRIFT / 2 * math.sin(2 * math.pi * (number * at + phase))


def normal_levels(rng: random.Random, launches: int, sd: float) -> Sequence[float]:
    """Independent and normal."""
    return [rng.gauss(0, sd) for _ in range(launches)]


def heavy_levels(rng: random.Random, launches: int, sd: float) -> Sequence[float]:
    """Student's t with 3 degrees of freedom."""
    return [sd / CV * heavy_tails(rng, 0.0) for _ in range(launches)]


def two_kinds(rng: random.Random, launches: int, _sd: float) -> Sequence[float]:
    """A launch is of one of two kinds, 1.2 % apart."""
    return [rng.choice((0.0, 0.012)) + rng.gauss(0, 0.001) for _ in range(launches)]


def alike(rng: random.Random, launches: int, sd: float) -> Sequence[float]:
    """A launch resembles the one before it (0.6)."""
    found = [rng.gauss(0, sd)]
    while len(found) < launches:
        found.append(0.6 * found[-1] + rng.gauss(0, 0.8 * sd))
    return found


def walk(rng: random.Random, launches: int, _sd: float) -> Sequence[float]:
    """A launch lies 0.5 % from the one before it."""
    return list(accumulate(rng.gauss(0, 0.005) for _ in range(launches)))


def cold_start(rng: random.Random, launches: int, sd: float) -> Sequence[float]:
    """The first launch is 3 % slower."""
    return [rng.gauss(0, sd) - 0.03 * (place == 0) for place in range(launches)]


def stray(rng: random.Random, launches: int, sd: float) -> Sequence[float]:
    """Any one launch is 3 % slower."""
    return rng.sample(cold_start(rng, launches, sd), launches)


class Box(NamedTuple):
    """Troubles of a simulated box."""

    noise: Noise = gaussian
    drift: Callable[[random.Random], Drift] = steady
    levels: Levels = normal_levels
    launch_sd: float = LAUNCH_SD
    depth: float = DRIFT
    """How far the drift goes; the functions above go as far as DRIFT."""
    taste: float = 0.0
    """How differently the arms take to a prompt: a standard deviation."""


DRIFTS = {
    "linear drift": linear,
    "warming up": warming_up,
    "S-shaped drift": s_shaped,
    "step": step,
    "out and back": out_and_back,
    "dip": dip,
    "slow sine": partial(waves, 1),
    **{
        f"sine, {words} waves": partial(waves, number)
        for number, words in ((2, "two"), (2.5, "2.5"), (3, "three"), (4, "four"))
    },
}
BOXES = {
    "quiet noise": Box(),
    "heavy tails": Box(heavy_tails),
    "skewed": Box(skewed),
    "correlated requests": Box(correlated),
    "outliers": Box(outliers),
    "prompts that arms like differently": Box(taste=0.05),
    "launches with heavy tails": Box(levels=heavy_levels),
    "launches of two kinds": Box(levels=two_kinds),
    "launches like the one before": Box(levels=alike),
    "launches that wander": Box(levels=walk),
    "first launch 3 % slower": Box(levels=cold_start),
    "one launch 3 % slower": Box(levels=stray),
    **{name: Box(drift=drift) for name, drift in DRIFTS.items()},
    **{f"{name}, launches 0.1 % apart": Box(drift=drift, launch_sd=0.001) for name, drift in DRIFTS.items()},
    **{
        f"{name} of 4 %, launches 0.1 % apart": Box(drift=drift, launch_sd=0.001, depth=DEEP)
        for name, drift in DRIFTS.items()
    },
}


def simulated(
    rng: random.Random, box: Box, mode: Mode, cells: int, prompts: int, effect: float, arms: int = 2
) -> Values:
    """Simulate one run; `effect` is ln(any other arm / A)."""
    order = launch_order(tuple(ARMS[:arms]), mode, str(rng.random()))
    texts = [[rng.gauss(0, PROMPT_SD) for _ in range(prompts)] for _ in range(cells)]
    tastes = {arm: [[rng.gauss(0, box.taste) if box.taste else 0.0 for _ in one] for one in texts] for arm in ARMS}
    drift = box.drift(rng)
    common = box.levels(rng, len(order), box.launch_sd * math.sqrt(COMMON))
    blocks = [rng.sample(range(cells), cells) for _ in {slot.block for slot in order}]
    found: Values = {key: {arm: {} for arm in ARMS[:arms]} for key in KEYS[:cells]}
    sent, total, noise = 0, cells * prompts, 0.0
    scale = box.depth / DRIFT
    for place, slot in enumerate(order):
        launch = math.log(65) + common[place] + (0.0 if slot.arm == "A" else effect)
        for cell in blocks[slot.block]:
            level = launch + rng.gauss(0, box.launch_sd * math.sqrt(1 - COMMON))
            ones = {}
            for number, (text, taste) in enumerate(zip(texts[cell], tastes[slot.arm][cell], strict=True)):
                noise = box.noise(rng, noise)
                at = (place + (STARTING + sent / total - place) / (STARTING + 1)) / len(order)
                ones[str(number)] = math.exp(level + text + taste + noise + scale * drift(at))
                sent += 1
            found[KEYS[cell]][slot.arm][place] = ones
    return found

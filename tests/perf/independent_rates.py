"""How often whole tables of verdicts are wrong, by a generator and a judge that share no code with sparkdash.

    python3 -m venv aside && aside/bin/pip install numpy scipy pydantic pydantic-settings     # not sparkdash's own needs
    PYTHONPATH=. aside/bin/python tests/perf/independent_rates.py [--runs 5000]

Prints the table that docs/evidence.md sums up, in some five minutes. The generator has the words of the request alone: heavy
tails, skew, autocorrelation, launch effects, outliers, prompt effects and drifts. The judge is written anew from
docs/bench.md, over all tables at once; `--check` compares it with sparkdash's own on random tables first. Only the
order of the launches is sparkdash's.

Logarithms of tok/s: launches 0.6 % apart (70 % of their variance common to all cells), requests 1 %, prompts 5 %. An
engine starts as long as it is measured, and a drift goes on meanwhile. Sines have any phase, steps come at any time.
"""

from __future__ import annotations

import argparse
import zlib
from typing import Any

import numpy as np
from scipy import stats

from sparkdash.bench.judge.judgement import family_levels, few_prompts, levels_of, panels, shared_fits
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.verdict import judge_contrasts
from sparkdash.bench.plan.run_plan import launch_order
from sparkdash.bench.run import CellKey, Mode

PROMPTS, REQUEST_SD, PROMPT_SD, COMMON, FLOOR = 5, 0.01, 0.05, 0.7, 0.005
MODES, CELLS = (Mode.STANDARD, Mode.CAREFUL), (1, 4, 20)
Array = Any
SINES = tuple(f"sine, {waves} waves" for waves in ("0.5", "1", "1.5", "2", "2.5", "3", "3.5", "4"))
DRIFTS = ("linear", "step", "out and back", "warming up", "S-shaped", "dip", "wandering", *SINES)
BOXES: dict[str, dict[str, Any]] = {
    "quiet": {},
    "heavy tails": {"noise": "heavy"},
    "skew": {"noise": "skew"},
    "autocorrelation": {"noise": "auto"},
    "outliers": {"noise": "outliers"},
    "prompts that arms like differently": {"taste": 0.03},
    "prompts liked differently, outliers": {"taste": 0.03, "noise": "outliers"},
    "prompts liked very differently": {"taste": 0.10},
    "launches with heavy tails": {"launch": "heavy"},
    "skewed launches": {"launch": "skew"},
    "launches of two kinds": {"launch": "two"},
    "B five times as unsteady": {"unsteady": 5.0},
    "B ten times as unsteady": {"unsteady": 10.0},
    "launches like the one before": {"launch": "auto"},
    **{drift: {"drift": drift} for drift in DRIFTS},
    **{f"{drift}, 4 %, launches 0.1 % apart": {"drift": drift, "depth": 0.04, "launch_sd": 0.001} for drift in DRIFTS},
}


def drift_at(rng: Array, kind: str, runs: int, at: Array, depth: float) -> Array:
    """Return what the box adds at these shares of the session, for each run."""
    sign, any_time = rng.choice([-1.0, 1.0], (runs, 1)), rng.random((runs, 1))
    if kind.startswith("sine"):
        return depth / 2 * np.sin(2 * np.pi * (float(kind.split()[1]) * at + any_time))
    turn = 0.3 + 0.4 * any_time
    shapes = {
        "linear": lambda: -at + 0 * any_time,
        "step": lambda: sign * (at > 0.1 + 0.8 * any_time),
        "out and back": lambda: sign * np.where(at < turn, at / turn, (1 - at) / (1 - turn)),
        "warming up": lambda: np.exp(-at * (3 + 9 * any_time)),
        "S-shaped": lambda: sign * (2 * at - 1) ** 3,
        "dip": lambda: -np.exp(-(((at - any_time) / 0.15) ** 2)),
        "wandering": lambda: np.cumsum(rng.standard_normal((runs, at.shape[1])), 1) / np.sqrt(at.shape[1]),
    }
    return depth * shapes[kind]()


def autoregressive(rng: Array, shape: tuple[int, ...], rho: float) -> Array:
    """Return a series along the last axis in which each value resembles the one before it."""
    steps = rng.standard_normal(shape)
    for at in range(1, shape[-1]):
        steps[..., at] = rho * steps[..., at - 1] + np.sqrt(1 - rho * rho) * steps[..., at]
    return steps


def scattered(rng: Array, kind: str, shape: tuple[int, ...]) -> Array:
    """Return noise of standard deviation 1 (outliers come on top); the last axis is time."""
    if kind == "heavy":
        return rng.standard_t(3, shape) / np.sqrt(3)
    if kind == "skew":
        return 1 - rng.exponential(1, shape)
    if kind == "two":
        return rng.choice([-1.0, 1.0], shape)
    if kind == "auto":
        return autoregressive(rng, shape, 0.6)
    normal = rng.standard_normal(shape)
    return normal - (rng.random(shape) < 0.03) * rng.uniform(5, 30, shape) if kind == "outliers" else normal


def tables(
    rng: Array, order: Array, cells: int, *, noise: str = "normal", launch: str = "normal", launch_sd: float = 0.006,
    taste: float = 0.0, drift: str | None = None, depth: float = 0.015, effect: float = 0.0,
    unsteady: float = 1.0,
) -> Array:  # fmt: skip
    """Return ln tok/s by run, cell, launch and prompt. `order` is 1 where arm B is measured."""
    runs, launches = order.shape
    shape = (runs, launches, cells, PROMPTS)
    values = REQUEST_SD * scattered(rng, noise, (runs, launches * cells * PROMPTS)).reshape(shape)
    if drift:
        within = (np.arange(cells * PROMPTS) + 0.5) / (cells * PROMPTS)
        at = ((np.arange(launches)[:, None] + (1 + within) / 2) / launches).reshape(1, -1)
        values += drift_at(rng, drift, runs, at, depth).reshape(shape)
    values = values.transpose(0, 2, 1, 3) + PROMPT_SD * rng.standard_normal((runs, cells, 1, PROMPTS))
    levels = np.sqrt(COMMON) * scattered(rng, launch, (runs, 1, launches))
    levels = levels + np.sqrt(1 - COMMON) * scattered(rng, launch, (runs, cells, launches))
    liked = np.log1p(effect) + taste * rng.standard_normal((runs, cells, 1, PROMPTS))
    levels = levels * np.where(order[:, None, :] == 1, unsteady, 1.0)
    return values + launch_sd * levels[..., None] + order[:, None, :, None] * liked


def contrast(values: Array, order: Array) -> tuple[Array, Array, Array]:
    """Return ln(B / A) without the trend, its variance by launches, and Welch's degrees of freedom; launches last."""
    arms = [order == arm for arm in (0, 1)]
    at = np.broadcast_to(np.arange(values.shape[-1], dtype=float), values.shape)
    of_values, of_places = ([(what * arm).sum(-1) / arm.sum(-1) for arm in arms] for what in (values, at))
    around = values - sum(arm * mean[..., None] for arm, mean in zip(arms, of_values, strict=True))
    places = at - sum(arm * mean[..., None] for arm, mean in zip(arms, of_places, strict=True))
    spread = (places * places).sum(-1)
    slope = (places * around).sum(-1) / spread
    kept = (values.shape[-1] - 3) / (values.shape[-1] - 2)  # what the trend leaves of the degrees of freedom
    rest, apart = (around - slope[..., None] * places) ** 2, of_places[1] - of_places[0]
    parts, squares = 0.0, 0.0
    for arm in arms:
        own = (rest * arm).sum(-1) / (arm.sum(-1) - 1) / kept * (1 / arm.sum(-1) + apart**2 / spread / 2)
        parts, squares = parts + own, squares + own**2 / (arm.sum(-1) - 1)
    return of_values[1] - of_values[0] - slope * apart, parts, kept * parts**2 / squares


def places_of(order: Array, arm: int, shape: tuple[int, ...]) -> Array:
    """Return where along the launches of `values` an arm stands."""
    half = shape[2] // 2
    mine = np.argsort(order != arm, axis=-1, kind="stable")[:, None, :half, None]
    return np.broadcast_to(mine, (shape[0], shape[1], half, shape[3]))


def limited(values: Array, order: Array) -> Array:
    """Hold each request within three robust deviations of what its launch and its prompt in that arm explain."""
    places = [places_of(order, arm, values.shape) for arm in (0, 1)]
    rests = [np.take_along_axis(values, mine, axis=2) for mine in places]
    for _ in range(3):
        rests = [rest - np.median(rest, axis=3, keepdims=True) for rest in rests]
        rests = [rest - np.median(rest, axis=2, keepdims=True) for rest in rests]
    sizes = np.abs(np.concatenate(rests, axis=2)).reshape(*values.shape[:2], -1)
    bound = 3 * 1.4826 * np.nanmedian(np.where(sizes > 1e-12, sizes, np.nan), axis=-1)[..., None, None]
    held = values.copy()
    for mine, rest in zip(places, rests, strict=True):
        ones = np.take_along_axis(values, mine, axis=2)
        np.put_along_axis(held, mine, ones - rest + np.clip(rest, -bound, bound), axis=2)
    return held


def taste_variance(values: Array, order: Array) -> Array:
    """Return by run and cell the variance that the choice of prompts adds."""
    prompts, half = values.shape[3], values.shape[2] // 2
    liked, squares = [], 0.0
    for arm in (0, 1):
        ones = np.take_along_axis(values, places_of(order, arm, values.shape), axis=2)
        rest = ones - ones.mean(-1, keepdims=True)
        liked.append(rest.mean(-2))
        squares = squares + ((rest - rest.mean(-2, keepdims=True)) ** 2).sum((-1, -2))
    noise = squares / (2 * (half - 1) * (prompts - 1))
    seen = (liked[1] - liked[0]).var(-1, ddof=1)
    return np.maximum(0, seen - noise * 2 / half) / prompts


def tested(values: Array, order: Array, tastes: Array) -> tuple[Array, Array, Array, Array]:
    """Return ln ratio, standard error, degrees of freedom (mean of 1 / df by the variances' shares) and p."""
    ratio, main, free = contrast(values, order)
    by_prompts = tastes.sum(-1)
    total = main + by_prompts
    of_prompts = np.where(by_prompts > 0, by_prompts**2, 1) / np.where(by_prompts > 0, (tastes**2).sum(-1), 1)
    share = by_prompts / total
    freedom = 1 / ((1 - share) / free + share / (of_prompts * (PROMPTS - 1)))
    error, freedom = np.sqrt(total), np.minimum(freedom, free) if tastes.shape[-1] == 1 else freedom
    return ratio, error, freedom, 2 * stats.t.sf(np.abs(ratio / error), freedom)


def judged(values: Array, order: Array) -> tuple[Array, Array, Array]:
    """Return the claimed signs of the cells and, last, of the line over all; and the bounds of that line's interval."""
    cells, values = values.shape[1], limited(values, order)
    rest = values - values.mean(-1, keepdims=True)
    launches = (values - rest.mean(-2, keepdims=True)).mean(-1)
    tastes = taste_variance(values, order)
    ratio, error, freedom, p = tested(launches, np.broadcast_to(order[:, None], launches.shape), tastes[..., None])
    over_all = [one[:, 0] for one in (ratio, error, freedom, p)]
    if cells > 1:
        over_all = list(tested(launches.mean(1), order, tastes / cells**2))
        ratio, p = (np.column_stack(pair) for pair in ((ratio, over_all[0]), (p, over_all[3])))
    ranked = np.sort(p, 1) <= np.arange(1, p.shape[1] + 1) * 0.05 / p.shape[1]
    rejected = np.where(ranked.any(1), p.shape[1] - np.argmax(ranked[:, ::-1], 1), 0)
    claimed = (p <= (rejected * 0.05 / p.shape[1])[:, None]) & (np.abs(np.expm1(ratio)) > FLOOR)
    signs = np.where(claimed, np.sign(ratio), 0)
    half = stats.t.ppf(0.975, over_all[2]) * over_all[1]
    return (signs if cells > 1 else np.repeat(signs, 2, 1)), over_all[0] - half, over_all[0] + half


def sparkdash_signs(values: Array, order: Array) -> list[float]:
    """Judge one run's table by sparkdash's own code."""
    keys = [CellKey(suite="simulated", context=number, output=150) for number in range(values.shape[0])]
    table = {
        key: {
            arm: {
                place: {str(prompt): float(np.exp(one)) for prompt, one in enumerate(cell[place])}
                for place in np.flatnonzero(order == number).tolist()
            }
            for number, arm in enumerate("AB")
        }
        for key, cell in zip(keys, values, strict=True)
    }
    shared = shared_fits(table, "AB", "A")
    levels = family_levels(shared, "A", few_prompts(BenchMetric.DECODE))
    found = []
    for key, fit in [*shared["B"].items(), (None, panels(shared, "A")["B"])]:
        one = fit.contrast("B", "A")
        assert one is not None
        (verdict,) = judge_contrasts([one], levels=list(levels_of(key, levels).values()) or None)
        found.append(float(np.sign(verdict.delta or 0.0)) if verdict.claim.told else 0.0)
    return found


def drawn(mode: Mode, runs: int, name: str) -> Array:
    """Return the orders that sparkdash draws for that many runs."""
    return np.array([[slot.arm == "B" for slot in launch_order("AB", mode, f"{name} {at}")] for at in range(runs)], int)


def simulate(name: str, mode: Mode, cells: int, runs: int, **box: Any) -> tuple[Array, Array]:
    """Return the claimed signs of that many runs, and whether the interval over all cells holds the truth."""
    order = drawn(mode, runs, f"{name} {cells}")
    rng = np.random.default_rng(zlib.crc32(f"{name} {mode} {cells} {box}".encode()))
    signs, low, high = judged(tables(rng, order, cells, **box), order)
    truth = np.log1p(box.get("effect", 0.0))
    return signs, (low <= truth) & (truth <= high)


def check() -> None:
    """Compare this judge with sparkdash's on 60 tables of each size, half of them with a difference."""
    for mode in MODES:
        for cells in CELLS:
            order = drawn(mode, 60, "check")
            rng = np.random.default_rng(cells)
            made = tables(rng, order, cells, noise="outliers", taste=0.01, drift="sine, 2 waves", effect=0.02)
            signs, _, _ = judged(made, order)
            for one, arms, told in zip(made, order, signs, strict=True):
                assert sparkdash_signs(one, arms) == told.tolist()
    print("The two judges agree on every claim of 360 tables.\n")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    asked.add_argument("--runs", type=int, default=5000)
    asked.add_argument("--check", action="store_true")
    given = asked.parse_args()
    if given.check:
        check()
    heads = " | ".join(f"{mode} {cells}" for mode in MODES for cells in CELLS)
    print(f"| the box | {heads} | coverage |")
    for name, box in BOXES.items():
        found = [simulate(name, mode, cells, given.runs, **box) for mode in MODES for cells in CELLS]
        shares = " | ".join(f"{100 * (signs != 0).any(1).mean():.1f} %" for signs, _ in found)
        print(f"| {name} | {shares} | {100 * np.mean([held for _, held in found]):.1f} % |", flush=True)
    print(f"\n| B is faster: cells that say so (the line over all cells) | {heads} |")
    for drift in ("linear", "out and back"):
        for effect in (0.02, 0.03, 0.05):
            row = []
            for mode in MODES:
                for cells in CELLS:
                    signs, _ = simulate(drift, mode, cells, given.runs, drift=drift, effect=effect)
                    row.append(f"{100 * (signs[:, :-1] > 0).mean():.0f} % ({100 * (signs[:, -1] > 0).mean():.0f})")
            print(f"| +{100 * effect:.0f} %, {drift} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

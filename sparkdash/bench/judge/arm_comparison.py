"""Comparing arms by their launches: how much faster, and how sure.

The experimental unit is the launch of an engine, not the request. Requests of one launch share its memory layout, its
graphs and its time of day, so 30 of them are not 30 observations. The model of a cell is
    ln y = arm + slope x place + launch + prompt + prompt:arm + noise
Rule 1: prompts are paired. Differences between prompts are removed before launches are compared.
Rule 2: a launch has one value, the mean over its prompts of the remainder. A request far from what its launch and
prompt explain is held at three robust standard deviations first (`limited`): so a single hiccup moves the value little
and does not hide rule 4's variance. The median of few prompts would cost a tenth of the power, and more where arms like
prompts differently.
Rule 3: each arm is judged by its own spread between launches, with degrees of freedom by Welch and Satterthwaite. A
linear trend over the places in the order is removed where enough launches remain to estimate it (TREND_DF), which they
do wherever a difference may be claimed (LEAST_LAUNCHES).
Rule 4: with speculation, arms respond differently to prompts. The small number of prompts is then another source of
uncertainty: its variance is added. Quantiles of Student's t are nearly linear in 1 / df, so 1 / df of the sum is the
mean of both, weighted by their shares: Cochran's rule for two variances (Cochran and Cox, 1957). By
Satterthwaite (1946) the sum would have more than both, and where launches happen to lie close together far too many.
Pure.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from sparkdash.bench.judge.stats import ALPHA, p_two_sided, t_quantile

Values = Mapping[int, Mapping[str, float]]
"""Positive figures of one arm, by launch (its index in the order) and prompt."""

LIMIT = 3
"""Robust standard deviations at which a request of a comparison is held. Normal noise seldom reaches them."""
_NORMAL_MAD = 1.4826
_POLISHES = 3


def logarithms(arms: Mapping[str, Values]) -> dict[str, dict[int, dict[str, float]]]:
    """Return ln y by arm, launch and prompt, without empty ones. Raises ValueError: a figure is not positive."""
    logs = {
        arm: {
            place: {prompt: math.log(value) for prompt, value in ones.items()} for place, ones in values.items() if ones
        }
        for arm, values in arms.items()
    }
    return {arm: values for arm, values in logs.items() if values}


def limited(logs: Mapping[str, Values]) -> dict[str, dict[int, dict[str, float]]]:
    """Hold each ln y within LIMIT robust standard deviations of what its launch and its prompt in that arm explain.

    The deviation is that of all arms together. Winsorised remainders are Huber's (Robust Statistics, 1981).
    """
    rests = {arm: _median_polish(values) for arm, values in logs.items()}
    bound = LIMIT * _deviation([one for rest in rests.values() for one in rest.values()])
    return {
        arm: {
            place: {prompt: one - _excess(rests[arm][place, prompt], bound) for prompt, one in ones.items()}
            for place, ones in values.items()
        }
        for arm, values in logs.items()
    }


def _excess(rest: float, bound: float) -> float:
    return rest - max(-bound, min(bound, rest))


def _deviation(rests: Collection[float]) -> float:
    """Return the robust standard deviation; remainders that the polish made zero tell nothing of it."""
    sizes = [abs(one) for one in rests if abs(one) > 1e-12]
    return _NORMAL_MAD * median(sizes) if sizes else 0.0


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


TREND_DF = 3
"""Degrees of freedom that must remain to fit a trend; with fewer the interval would grow more than it gains."""

LEAST_LAUNCHES = 3
"""Launches of each arm without which there is no interval: beside a trend, four launches hardly tell their spread."""

_SWEEPS = 50


@dataclass(frozen=True, slots=True)
class Contrast:
    """Arm B against arm A. Logarithms of ratios: 0.01 is about 1 %."""

    log_ratio: float
    se: float
    df: float

    @property
    def p(self) -> float:
        """Two-sided: how often so large a difference comes up between equal arms."""
        if not self.se:
            return 0.0 if self.log_ratio else 1.0
        return p_two_sided(self.log_ratio / self.se, self.df)

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        half = t_quantile(1 - level / 2, self.df) * self.se
        return self.log_ratio - half, self.log_ratio + half

    def detectable(self, level: float) -> float:
        """The smallest true log ratio that would be found 4 times in 5, given the spread that was seen."""
        return (t_quantile(1 - level / 2, self.df) + t_quantile(0.8, self.df)) * self.se


@dataclass(frozen=True, slots=True)
class Fit:
    """The model of one cell, fitted to all arms."""

    launches: Mapping[str, Mapping[int, float]]
    """By arm and place: each launch's value, ln y without its prompts' effects."""
    tastes: Mapping[str, Mapping[str, float]]
    """By arm and prompt: what the prompt adds to ln y in this arm."""
    noise: float | None
    """Variance of ln y from request to request of a launch; None: one prompt or one launch tells nothing of it."""
    variance: float | None
    """Between launches of an arm, of their values, the trend taken out; None: no arm has two launches."""
    df: int
    spreads: Mapping[str, float]
    """By arm: its own variance between launches, as `variance` is; 0 with one launch."""
    slope: float | None
    """Change of ln y per place in the order; None: not fitted."""
    cells: "tuple[Fit, ...]" = ()
    """Fits of the single cells, of a fit over several; empty: this is one cell's."""

    def log_ratio(self, arm: str, over: str) -> float:
        """ln(arm / over), the trend taken out."""
        drift = (self.slope or 0.0) * (fmean(self.launches[arm]) - fmean(self.launches[over]))
        return fmean(self.launches[arm].values()) - fmean(self.launches[over].values()) - drift

    def fewest_launches(self, arm: str, over: str) -> int:
        return min(len(self.launches[arm]), len(self.launches[over]))

    def contrast(self, arm: str, over: str) -> Contrast | None:
        """Arm against arm; None while an arm has too few launches (LEAST_LAUNCHES)."""
        if self.variance is None or self.fewest_launches(arm, over) < LEAST_LAUNCHES:
            return None
        (by_launches, launch_df), (by_prompts, prompt_df) = (
            self._launch_variance(arm, over),
            self._taste_variance(arm, over),
        )
        total = by_launches + by_prompts
        part = by_prompts / total if by_prompts else 0.0
        df = 1 / ((1 - part) / launch_df + part / prompt_df)
        if not self.cells:  # a cell's few prompts are worth no more: its launches may lie close together by chance
            df = min(df, launch_df)
        return Contrast(self.log_ratio(arm, over), math.sqrt(total), df)

    def _launch_variance(self, arm: str, over: str) -> tuple[float, float]:
        """Variance that launches add to the contrast, each arm by its own spread, and its df (Welch, Satterthwaite)."""
        apart = fmean(self.launches[arm]) - fmean(self.launches[over])
        by_trend = 0.0 if self.slope is None else apart**2 / _spread_of_places(self.launches) / 2
        parts = {one: self.spreads[one] * (1 / len(self.launches[one]) + by_trend) for one in (arm, over)}
        total = sum(parts.values())
        free = sum(len(values) - 1 for values in self.launches.values())
        if not total:
            return 0.0, self.df
        df = total**2 / sum(one**2 / (len(self.launches[arm]) - 1) for arm, one in parts.items())
        return total, df * self.df / free

    def _taste_variance(self, arm: str, over: str) -> tuple[float, float]:
        """Return the variance that the choice of prompts adds to the contrast, with its degrees of freedom.

        That of a mean over cells is the sum of theirs over their number squared, with df by Satterthwaite: cells have
        prompts of their own.
        """
        if not self.cells:
            return self._own_taste_variance(arm, over)
        parts = [cell._own_taste_variance(arm, over) for cell in self.cells]
        total = sum(variance for variance, _ in parts)
        df = total**2 / sum(variance**2 / df for variance, df in parts) if total else 1.0
        return total / len(self.cells) ** 2, df

    def _own_taste_variance(self, arm: str, over: str) -> tuple[float, float]:
        shared = self.tastes[arm].keys() & self.tastes[over].keys()
        if len(shared) < 2 or self.noise is None:
            return 0.0, 1.0
        differences = [self.tastes[arm][prompt] - self.tastes[over][prompt] for prompt in shared]
        middle = fmean(differences)
        seen = sum((one - middle) ** 2 for one in differences) / (len(shared) - 1)
        by_chance = self.noise * (1 / len(self.launches[arm]) + 1 / len(self.launches[over]))
        return max(0.0, seen - by_chance) / len(shared), len(shared) - 1


def fit_cell(arms: Mapping[str, Values]) -> Fit:
    """Fit the model to a cell, without launches that have no value. Raises ValueError: a figure is not positive."""
    return _fit(limited(logarithms(arms)))


def fit_means(arms: Mapping[str, Values]) -> Fit:
    """Fit the model to figures that count in full: those of whole cells, or of requests without hiccups.

    Raises:
        ValueError: a figure is not positive.
    """
    return _fit(logarithms(arms))


def _fit(logs: Mapping[str, Values]) -> Fit:
    _, shared = effects({place: ones for values in logs.values() for place, ones in values.items()})
    launches = {
        arm: {place: fmean([one - shared[prompt] for prompt, one in ones.items()]) for place, ones in values.items()}
        for arm, values in logs.items()
    }
    own = {arm: effects(values) for arm, values in logs.items()}
    slope, squares, df = _trend(launches)
    return Fit(
        launches=launches,
        tastes={arm: tastes for arm, (_, tastes) in own.items()},
        noise=_noise(logs, own),
        variance=sum(squares.values()) / df if df else None,
        df=df,
        spreads=_spreads(launches, squares, df),
        slope=slope,
    )


def _spreads(launches: Mapping[str, Mapping[int, float]], squares: Mapping[str, float], df: int) -> dict[str, float]:
    """Return each arm's own variance between launches, from its sum of squares; 0 with one launch."""
    free = sum(len(values) - 1 for values in launches.values())
    return {
        arm: one / (len(launches[arm]) - 1) * free / df if len(launches[arm]) > 1 else 0.0
        for arm, one in squares.items()
    }


def effects(logs: Values) -> tuple[dict[int, float], dict[str, float]]:
    """Fit launch and prompt effects of the additive model by least squares, alternating row and column means.

    With every prompt in every launch the first sweep is exact; with gaps the sweeps converge to it.
    """
    by_prompt: dict[str, list[tuple[int, float]]] = {}
    for place, ones in logs.items():
        for prompt, one in ones.items():
            by_prompt.setdefault(prompt, []).append((place, one))
    whole = all(len(ones) == len(logs) for ones in by_prompt.values())
    prompts = dict.fromkeys(by_prompt, 0.0)
    launches: dict[int, float] = {}
    for _ in range(1 if whole else _SWEEPS):
        launches = {
            place: fmean([one - prompts[prompt] for prompt, one in ones.items()]) for place, ones in logs.items()
        }
        swept = {prompt: fmean([one - launches[place] for place, one in ones]) for prompt, ones in by_prompt.items()}
        moved = max((abs(swept[prompt] - prompts[prompt]) for prompt in swept), default=0.0)
        prompts = swept
        if moved < 1e-12:
            break
    return launches, prompts


def _noise(
    logs: Mapping[str, Values], own: Mapping[str, tuple[Mapping[int, float], Mapping[str, float]]]
) -> float | None:
    """The variance of what neither launch nor prompt explains, each arm with its own prompts' effects."""
    squares, df = 0.0, 0
    for arm, values in logs.items():
        launches, prompts = own[arm]
        rest = [
            one - launches[place] - prompts[prompt] for place, ones in values.items() for prompt, one in ones.items()
        ]
        squares += sum(one * one for one in rest)
        df += len(rest) - len(launches) - len(prompts) + 1
    return squares / df if df > 0 else None


def _trend(launches: Mapping[str, Mapping[int, float]]) -> tuple[float | None, dict[str, float], int]:
    """Fit a slope over places by least squares within arms. Returns it, each arm's sum of squares, and their df."""
    around = {arm: _around_their_means(values) for arm, values in launches.items()}
    spread = _spread_of_places(launches)
    df = sum(len(values) - 1 for values in launches.values())
    slope = None
    if df - 1 >= TREND_DF and spread:
        slope, df = sum(at * one for pairs in around.values() for at, one in pairs) / spread, df - 1
    squares = {arm: sum((one - (slope or 0.0) * at) ** 2 for at, one in pairs) for arm, pairs in around.items()}
    return slope, squares, df


def _around_their_means(values: Mapping[int, float]) -> list[tuple[float, float]]:
    place, value = fmean(values), fmean(values.values())
    return [(at - place, one - value) for at, one in values.items()]


def _spread_of_places(launches: Mapping[str, Mapping[int, float]]) -> float:
    """Sum of squares of the places around their arm's mean."""
    return sum(at * at for values in launches.values() for at, _ in _around_their_means(values))

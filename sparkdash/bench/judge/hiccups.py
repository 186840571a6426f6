"""Hiccups: single requests far from what their launch and their prompt explain.

Owns: how they are found, left out and limited. Must not know: arms, cells, verdicts.
A collector that runs, a clock that dips, a page that comes back from swap: one request in thirty is slower by a fifth.
Means spread it over its launch and its prompt, so that both look different, and its noise hides what prompts add.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from statistics import median

Values = Mapping[int, Mapping[str, float]]
"""Positive figures of one arm, by launch (its index in the order) and prompt."""

HICCUP = 7
"""Robust standard deviations beyond which a request of a calibration is a hiccup of the box. Remainders of a median
polish are too small where there are few of them: at 7, one calm request in a hundred is left out of six launches of five.
"""
LIMIT = 3
"""Robust standard deviations at which a request of a comparison is held. Normal noise seldom reaches them."""
_NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
_POLISHES = 3


def logarithms(arms: Mapping[str, Values]) -> dict[str, dict[int, dict[str, float]]]:
    """Return ln y by arm, launch and prompt, without empty launches and arms.

    Raises:
        ValueError: a figure is not positive.
    """
    logs = {
        arm: {
            place: {prompt: math.log(value) for prompt, value in ones.items()} for place, ones in values.items() if ones
        }
        for arm, values in arms.items()
    }
    return {arm: values for arm, values in logs.items() if values}


def without_hiccups(values: Values) -> dict[int, dict[str, float]]:
    """Leave out requests whose remainder exceeds HICCUP robust standard deviations, at most one request in ten."""
    kept = {launch: dict(ones) for launch, ones in values.items() if ones}
    for _ in range(sum(map(len, kept.values())) // 10):
        logs = logarithms({"": kept})[""]
        rest = {place: abs(one) for place, one in _median_polish(logs).items()}
        worst = max(rest, key=rest.__getitem__)
        if rest[worst] <= HICCUP * _NORMAL_MAD * median(rest.values()) or len(kept[worst[0]]) < 2:
            break
        del kept[worst[0]][worst[1]]
    return kept


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

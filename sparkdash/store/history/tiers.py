"""Tiers: widths of buckets, how long each is kept, and which one answers a query.

Pure.
"""

from __future__ import annotations

import math
from typing import NamedTuple

HOUR_S = 3600
DAY_S = 86400
YEARS_S = 2 * 365 * DAY_S


class Tier(NamedTuple):
    """Buckets of `step` seconds, kept for `kept_s` seconds."""

    step: int
    kept_s: int


SECONDS = Tier(1, HOUR_S)
MINUTES = Tier(300, YEARS_S)
HOURS = Tier(HOUR_S, YEARS_S)
TIERS = (
    SECONDS,
    Tier(10, 2 * DAY_S),
    MINUTES,
    HOURS,
    Tier(6 * HOUR_S, YEARS_S),
)
"""All widths, finest first; each is a multiple of the one before. The widest two make charts of months quick."""
COARSE = TIERS[1:]


def choose(since: float, until: float, points: int, now: float) -> tuple[int, int]:
    """Choose the tier for a period and the width of the answer's buckets: index in TIERS, and seconds.

    The width is a multiple of the tier's. The tier is the coarsest that is fine enough, and the finest that still
    reaches back to `since`.
    """
    ideal = (until - since) / points
    fitting = max((n for n, tier in enumerate(TIERS) if tier.step <= ideal), default=0)
    reaching = next((n for n, tier in enumerate(TIERS) if since >= now - tier.kept_s), len(TIERS) - 1)
    index = max(fitting, reaching)
    step = TIERS[index].step
    return index, step * max(1, math.ceil(ideal / step - 1e-9))

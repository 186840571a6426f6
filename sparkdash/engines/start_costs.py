"""Costs of a start: its longest stages, with the change that would shorten each, by this box's record or published.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import Start
from sparkdash.units import duration

LARGEST = 2
QUICKER = 0.7
"""Share of a stage's time up to which another start of this box counts as quicker."""


@dataclass(frozen=True, slots=True)
class Lever:
    """Change that shortens a stage, with published seconds before and after it; None: published without a pair."""

    stage: str
    change: str
    source: str
    before_s: float | None = None
    after_s: float | None = None
    applies: Callable[[Profile, Start], bool] = lambda _profile, _start: True


class Cost(NamedTuple):
    """Long stage of a start. `saves_s`: what the change would save here; None while no pair of times is known."""

    stage: str
    s: float
    change: str | None
    saves_s: float | None
    source: str | None


def largest_costs(levers: Sequence[Lever], profile: Profile, starts: Sequence[Start]) -> list[Cost]:
    """Return the longest stages of the newest of these starts, longest first; the others are the box's record."""
    newest, *others = starts
    longest = sorted(newest.stages, key=lambda step: -step.s)[:LARGEST]
    return [_cost(levers, profile, newest, others, step.name, step.s) for step in longest]


def _cost(
    levers: Sequence[Lever], profile: Profile, newest: Start, others: Sequence[Start], stage: str, s: float
) -> Cost:
    lever = next((one for one in levers if one.stage == stage and one.applies(profile, newest)), None)
    change = lever.change if lever else None
    best = min((step.s for start in others for step in start.stages if step.name == stage), default=s)
    if best <= QUICKER * s:
        source = f"this box: {duration(best)} in another of its last {len(others) + 1} starts"
        return Cost(stage, s, change, s - best, source)
    if lever is None:
        return Cost(stage, s, None, None, None)
    if lever.before_s is None or lever.after_s is None:
        return Cost(stage, s, change, None, f"published: {lever.source}")
    figures = f"published: {duration(lever.before_s)} to {duration(lever.after_s)}, {lever.source}"
    return Cost(stage, s, change, s * (1 - lever.after_s / lever.before_s), figures)

"""Chart of a report, and the colours that all charts share.

Owns: the shape of a chart, the colour of an arm. Must not know: what a chart shows.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparkdash.bench.report.arm_tables import TableSource

PALETTE = ("#4c8dff", "#f0883e", "#3fb27f", "#c678dd", "#d4a72c", "#e5534b", "#39c5cf", "#8b949e")
"""Colours of arms, distinguishable on dark and on light paper."""
BETTER, WORSE, NEITHER = "#3fb27f", "#e5534b", "#8b949e"
Trace = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chart:
    """Figure with its title and a description of its data."""

    name: str
    title: str
    about: str
    data: list[Trace]
    layout: dict[str, Any]


def arm_colour(source: TableSource, arm: str) -> str:
    """Return the arm's colour, the same in all charts."""
    order = [one.name for one in source.report.arms]
    return PALETTE[order.index(arm) % len(PALETTE)]


def error_bars(bounds: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Build the error bars of points, by the distances of their lower and upper bounds."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [above for _, above in bounds],
        "arrayminus": [below for below, _ in bounds],
        "thickness": 1,
    }

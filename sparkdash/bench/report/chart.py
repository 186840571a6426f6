"""Shapes of a report's charts, and the colours that all of them share.

Owns: the shapes (lines over contexts, intervals around zero, bars) and the colour of an arm. Must not know: what a
chart shows, how one is drawn (formats/svg.py).
Rule: a panel is as wide as a telephone. Panels stand beside each other where there is room.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkdash.bench.report.arm_tables import TableSource

PALETTE = ("#4c8dff", "#f0883e", "#3fb27f", "#c678dd", "#d4a72c", "#e5534b", "#39c5cf", "#8b949e")
"""Colours of arms, distinguishable on dark and on light paper."""
BETTER, WORSE, NEITHER = "#3fb27f", "#e5534b", "#8b949e"


@dataclass(frozen=True, slots=True)
class PlotPoint:
    """Value with its bounds; equal bounds are not drawn."""

    value: float
    low: float
    high: float
    about: str
    """Text shown under a resting pointer."""


@dataclass(frozen=True, slots=True)
class PlotLine:
    """Values of one arm, by category. A hollow line has marks only: figures that others published."""

    name: str
    colour: str
    points: dict[str, PlotPoint]
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class LinePanel:
    """Lines over categories; the scale begins at zero."""

    title: str
    categories: tuple[str, ...]
    lines: tuple[PlotLine, ...]


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """Change with its interval, in per cent."""

    label: str
    colour: str
    point: PlotPoint


@dataclass(frozen=True, slots=True)
class IntervalPanel:
    """Changes around zero, one below the other."""

    title: str
    rows: tuple[IntervalRow, ...]


@dataclass(frozen=True, slots=True)
class PlotBar:
    """Bar of one group."""

    name: str
    colour: str
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class BarPanel:
    """Groups of bars with a common scale from zero. `marks` are lines across all groups: (value, dashed)."""

    title: str
    groups: tuple[tuple[str, tuple[PlotBar, ...]], ...]
    most: float | None = None
    """End of the scale; None: the longest bar."""
    marks: tuple[tuple[float, bool], ...] = ()


Panel = LinePanel | IntervalPanel | BarPanel


@dataclass(frozen=True, slots=True)
class Chart:
    """Figure with its title and a description of its data."""

    name: str
    title: str
    about: str
    unit: str
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...] = ()
    """Names and colours."""


def arm_colour(source: TableSource, arm: str) -> str:
    """Return the arm's colour, the same in all charts."""
    drawn_first = sorted(source.report.run.arms, key=lambda one: one.impossible is not None)
    order = [one.name for one in drawn_first]
    return PALETTE[order.index(arm) % len(PALETTE)]

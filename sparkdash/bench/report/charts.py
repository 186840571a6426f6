"""Charts of a report: which figures each shows.

Rule: an arm has one colour in all charts. In the chart of differences only claimed ones are coloured.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.report import blocks
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import decimals
from sparkdash.bench.report.formats.svg import Mark, Panel, Shape
from sparkdash.bench.run import CellKey

PALETTE = ("#4c8dff", "#f0883e", "#3fb27f", "#c678dd", "#d4a72c", "#e5534b", "#39c5cf", "#8b949e")
"""Colours of arms, distinguishable on dark and on light paper."""
BETTER, WORSE, NEITHER = "#3fb27f", "#e5534b", "#8b949e"
COLOURS = {Conclusion.FASTER: BETTER, Conclusion.SLOWER: WORSE}


@dataclass(frozen=True, slots=True)
class Chart:
    """Figure with its title and a description of its data."""

    name: str
    title: str
    about: str
    unit: str
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...] = ()


def draw_charts(source: TableSource) -> tuple[Chart, ...]:
    made = (_contexts(source), _differences(source))
    return tuple(chart for chart in made if chart.panels)


def _arm_colour(source: TableSource, arm: str) -> str:
    """Return the arm's colour; arms that cannot run take none from the others."""
    drawn_first = sorted(source.report.run.arms, key=lambda one: one.impossible is not None)
    return PALETTE[[one.name for one in drawn_first].index(arm) % len(PALETTE)]


def _contexts(source: TableSource) -> Chart:
    panels = [_context_panel(source, output, word) for output, word in source.words.items()]
    shown = tuple(panel for panel in panels if panel.groups)
    legend = {arm: line[0].colour for panel in shown for arm, line in panel.groups}
    unit = source.metric.unit
    return Chart("context", f"{unit} against context", source.metric.definition, unit, shown, tuple(legend.items()))


def _context_panel(source: TableSource, output: int, word: str) -> Panel:
    keys = sorted((key for key in source.grid_keys if key.output == output), key=lambda key: key.context)
    lines = ((arm.name, _context_marks(source, arm.name, keys)) for arm in source.report.arms)
    categories = tuple(blocks.context_name(key.context) for key in keys)
    return Panel(Shape.LINES, word, tuple(line for line in lines if line[1]), categories)


def _context_marks(source: TableSource, arm: str, keys: Sequence[CellKey]) -> tuple[Mark, ...]:
    found, colour = [], _arm_colour(source, arm)
    for key in keys:
        figure = source.figure(arm, key)
        if figure is not None and (middle := figure.median) is not None:
            place = blocks.context_name(key.context)
            about = f"{arm}, ctx={place}: {middle:.{decimals(source.metric)}f} {source.metric.unit}"
            found.append(Mark(place, colour, middle, figure.low or middle, figure.high or middle, about))
    return tuple(found)


def _differences(source: TableSource) -> Chart:
    base = source.report.run.baseline
    found = ((arm.name, _changes(source, arm.name)) for arm in source.report.arms if arm.name != base)
    panels = tuple(Panel(Shape.INTERVALS, arm, (("", marks),)) for arm, marks in found if marks)
    about = "95 % intervals over engine launches; green and red only where a difference may be claimed."
    return Chart("differences", f"Against {base}", about, "%", panels)


def _changes(source: TableSource, arm: str) -> tuple[Mark, ...]:
    found = []
    for key in source.report.planned():
        figure = source.figure(arm, key)
        if figure is not None and (delta := figure.verdict.delta) is not None:
            told = figure.verdict
            low, high = (100 * (delta if bound is None else bound) for bound in (told.low, told.high))
            name = blocks.short_cell_name(key, source.words)
            found.append(Mark(name, COLOURS.get(told.claim, NEITHER), 100 * delta, low, high, told.text))
    return tuple(found)

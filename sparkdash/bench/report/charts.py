"""Charts of a report as inline SVG: no script, no font, a few KB each, readable on a telephone.

Colours of text and grid are the page's own variables, so that a panel follows its theme.
Rule: an arm has one colour in all charts. In the chart of differences only claimed ones are coloured. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape

from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.report import blocks
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import decimals
from sparkdash.bench.run import CellKey

WIDTH = 340.0
"""Width of a panel in its own units, which are pixels on a page of 400."""
LEFT, RIGHT, TOP = 44.0, 8.0, 22.0
EDGE = 14.0
LINES_HEIGHT = 220.0
ROW = 32.0
"""Height of an interval with its label above."""
TICKS = 4
"""Most parts of a scale."""
_TEXT = 'font-size="11" fill="currentColor"'
_DIM = 'font-size="11" fill="var(--dim)"'


class Shape(StrEnum):
    """Form of a panel's drawing."""

    LINES = "lines"
    """Lines over categories; the scale begins at zero."""
    INTERVALS = "intervals"
    """Changes around zero, one below the other."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Value with its bounds; equal bounds are not drawn."""

    name: str
    """Category of a line's point, label of an interval."""
    colour: str
    value: float
    low: float
    high: float
    about: str
    """Text under a resting pointer."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Marks of one drawing, by line."""

    shape: Shape
    title: str
    groups: tuple[tuple[str, tuple[Mark, ...]], ...]
    categories: tuple[str, ...] = ()
    """Places of the points of lines, left to right."""


def draw_panel(panel: Panel, unit: str) -> str:
    marks = [mark for _, group in panel.groups for mark in group]
    match panel.shape:
        case Shape.LINES:
            height, parts = LINES_HEIGHT, _lines(panel, marks, unit)
        case Shape.INTERVALS:
            height, parts = TOP + ROW * len(marks) + 22, _intervals(panel, marks, unit)
    label = escape(panel.title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def scale_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return round values from at most `low` to at least `high`, in steps of 1, 2 or 5 times a power of ten."""
    high = high if high > low else low + 1.0
    rough = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(number * step for number in range(first, last + 1))


def _text(x: float, y: float, said: str, anchor: str = "start", style: str = _TEXT) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}>{escape(said)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float, style: str = 'stroke="var(--line)"') -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def _dot(x: float, y: float, colour: str, about: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{escape(about)}</title></circle>'


def _lines(panel: Panel, marks: Sequence[Mark], unit: str) -> Iterator[str]:
    ticks = scale_ticks(0.0, max((max(one.high, one.value) for one in marks), default=1.0))
    bottom = LINES_HEIGHT - 34
    step = (WIDTH - LEFT - RIGHT) / max(1, len(panel.categories))
    places = {name: LEFT + step * (number + 0.5) for number, name in enumerate(panel.categories)}

    def height(value: float) -> float:
        return bottom - (bottom - TOP) * value / ticks[-1]

    yield _text(WIDTH / 2, 14, panel.title, "middle", f'{_TEXT} font-weight="600"')
    for tick in ticks:
        yield _rule(LEFT, height(tick), WIDTH - RIGHT, height(tick))
        yield _text(LEFT - 5, height(tick) + 4, f"{tick:.10g}", "end", _DIM)
    for name, x in places.items():
        yield _text(x, bottom + 14, name, "middle", _DIM)
    yield _text(LEFT, LINES_HEIGHT - 5, f"{unit} against context, tokens", style=_DIM)
    for _, line in panel.groups:
        path = " ".join(f"{places[one.name]:.1f},{height(one.value):.1f}" for one in line)
        yield f'<polyline points="{path}" fill="none" stroke="{line[0].colour}" stroke-width="1.5"/>'
        for one in line:
            if one.low != one.high:
                x = places[one.name]
                yield _rule(x, height(one.low), x, height(one.high), f'stroke="{one.colour}"')
            yield _dot(places[one.name], height(one.value), one.colour, one.about)


def _intervals(panel: Panel, marks: Sequence[Mark], unit: str) -> Iterator[str]:
    ticks = scale_ticks(
        min(min(0.0, one.low, one.value) for one in marks), max(max(0.0, one.high, one.value) for one in marks)
    )
    bottom, right = TOP + ROW * len(marks), WIDTH - 18

    def across(value: float) -> float:
        return EDGE + (right - EDGE) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    yield _text(EDGE, 14, panel.title, style=f'{_TEXT} font-weight="600"')
    for tick in ticks:
        zero = abs(tick) < 1e-9
        style = 'stroke="var(--dim)" stroke-width="1.5"' if zero else 'stroke="var(--line)"'
        yield _rule(across(tick), TOP, across(tick), bottom, style)
        yield _text(across(tick), bottom + 14, f"{'0' if zero else f'{tick:+.10g}'} {unit}", "middle", _DIM)
    for number, one in enumerate(marks):
        y = TOP + ROW * number
        yield _text(EDGE, y + 12, one.name)
        yield _text(right, y + 12, f"{one.value:+.1f} {unit}", "end", _DIM)
        yield _rule(across(one.low), y + 21, across(one.high), y + 21, f'stroke="{one.colour}" stroke-width="2"')
        yield _dot(across(one.value), y + 21, one.colour, f"{one.name}: {one.about}")


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

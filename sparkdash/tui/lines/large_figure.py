"""Content of an engine's card: the large figure beside or above its chart, and the figures that explain it.

Owns: which of the layouts a size gets. Rule: stale figures are dimmed as a whole.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.engine import Engine
from sparkdash.tui.ink import EMPTY, Ink, Line, clip, dimmed, inked, pad
from sparkdash.tui.lines import engine_figures, hero
from sparkdash.tui.mirror import View

ABOVE_FROM = (100, 13)
"""Width and rows from which the figure stands above its chart."""
FIVE_FROM = (100, 20)
"""Width and rows from which the figure is five rows high."""
LEAST_CHART = 4
"""Rows of the figure with its label, and of the chart beside it."""


def large_figure(view: View, engine: Engine, width: int, rows: int) -> list[Line]:
    """Lay out the figures of an engine in at most `rows` rows of `width` cells."""
    speed = hero.speed_of(view, engine)
    above = width >= ABOVE_FROM[0] and rows >= ABOVE_FROM[1]
    shown = _above(view, engine, speed, width, rows) if above else _beside(view, engine, speed, width, rows)
    if view.engine_age_s(engine.profile) is None:
        return shown
    return [dimmed(line) for line in shown]


def _beside(view: View, engine: Engine, speed: hero.Speed, width: int, rows: int) -> list[Line]:
    why = min(max(rows - LEAST_CHART, 0), 4)
    tall = max(rows - why, 1)
    figure = hero.figure_block(speed, tall)
    chart = hero.chart_rows(view, engine, speed, width - hero.FIGURE, tall)
    drawn = [clip(a + b, width) for a, b in zip(figure, chart, strict=True)]
    return [*drawn, *engine_figures.why_rows(view, engine, width, why)]


def _above(view: View, engine: Engine, speed: hero.Speed, width: int, rows: int) -> list[Line]:
    five = 5 if width >= FIVE_FROM[0] and rows >= FIVE_FROM[1] else 3
    head = hero.figure_head(speed, five)
    cells = max(max(map(_cells, head)) + 3, 18)
    columns = engine_figures.why_columns(view, engine, width - cells, hero.figure_facts(speed, len(head)))
    top = [pad(a, cells) + b for a, b in zip(head, columns, strict=True)]
    chart = hero.chart_rows(view, engine, speed, width, rows - len(top) - 2)
    return [*top, EMPTY, *chart, inked(hero.axis(width - hero.LABELS, window_s=view.hero.window_s), Ink.DIM)]


def _cells(line: Line) -> int:
    return sum(len(span.text) for span in line)

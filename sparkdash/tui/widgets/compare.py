"""Panel that compares the figures of the two marked profiles.

Rule: the figures come from whatever each profile was asked; the panel says so, and gives no verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sparkdash.domain.state import Figures, Snapshot
from sparkdash.tui.lines import words
from sparkdash.tui.lines.charts import sparkline
from sparkdash.tui.mirror import View
from sparkdash.tui.text import (
    EMPTY,
    EdgeText,
    Line,
    Style,
    align_right,
    clip,
    frame,
    join,
    key_hint,
    pad,
    shorten_apart,
    styled,
    wrap,
)
from sparkdash.tui.widgets.panel import Panel
from sparkdash.tui.widgets.table import figure as aligned_figure
from sparkdash.units import DASH, duration, number, percent

LABEL, RATIO, STEP = 17, 8, 7
LEAST = 70
"""Width below which A stands above B."""


class ComparedFigure(NamedTuple):
    """Row of the comparison; `ratio`: whether B / A is shown."""

    label: str
    of: Callable[[Figures], float | None]
    text: Callable[[float | None], str]
    ratio: bool


FIGURES = (
    ComparedFigure("median decode", lambda f: f.decode_tok_s, lambda v: number(v, 1, " tok/s"), True),
    ComparedFigure("best decode", lambda f: f.best, lambda v: number(v, 1, " tok/s"), True),
    ComparedFigure("median ttft", lambda f: f.ttft_s, lambda v: number(v, 2, " s"), True),
    ComparedFigure("acceptance", lambda f: f.acceptance, percent, False),
    ComparedFigure("mean acc. length", lambda f: f.acceptance_length, lambda v: number(v, 2), False),
    ComparedFigure("prefix hit", lambda f: f.prefix_hit, percent, False),
    ComparedFigure("load time", lambda f: f.load_s, duration, True),
    ComparedFigure("requests", lambda f: float(f.requests), number, False),
)


def compare_rows(view: View, width: int) -> list[Line]:
    """Format two columns and the ratio, or one above the other in a narrow panel."""
    snapshot = view.snapshot
    if snapshot is None or snapshot.toggle_a is None or snapshot.toggle_b is None:
        return _advice(snapshot, width)
    a, b = snapshot.toggle_a, snapshot.toggle_b
    if width < LEAST:
        return [*_single(view, snapshot, "A", a, width), EMPTY, *_single(view, snapshot, "B", b, width)]
    cells = (width - LABEL - RATIO) // 2
    states = [align_right(_state(view, snapshot, name), cells) for name in (a, b)]
    lines = [_heads(a, b, cells, view.profile_names), pad(styled("state", Style.DIM), LABEL) + states[0] + states[1]]
    lines += [_row(figure, _seen(snapshot, a), _seen(snapshot, b), cells) for figure in FIGURES]
    lines.append(_rates(snapshot, a, b, cells))
    return lines + wrap("From live traffic, with different requests: no verdict.", width, Style.DIM)


def _advice(snapshot: Snapshot | None, width: int) -> list[Line]:
    sides = {"A": snapshot.toggle_a, "B": snapshot.toggle_b} if snapshot else {}
    rows = [clip(styled(f"{side} is {name}."), width) for side, name in sides.items() if name]
    blank = next((side.lower() for side, name in sides.items() if not name), "")
    steps = (
        (f"2 {blank}", "marks the other") if rows else ("2 a b", "mark two profiles"),
        ("A", "plans a run that tells which of them is better; nothing starts before ⏎"),
        ("4", "lists the runs, with the report of each"),
        ("t", "flips between them, and shows here what live traffic tells of both"),
    )
    return rows + [row for key, what in steps for row in _step(key, what, width)]


def _step(key: str, what: str, width: int) -> list[Line]:
    first, *rest = wrap(what, width - STEP, Style.DIM)
    return [pad(styled(key, Style.STRONG), STEP) + first, *(styled(" " * STEP) + row for row in rest)]


def _seen(snapshot: Snapshot, name: str) -> Figures:
    return snapshot.figures.get(name) or Figures()


def _heads(a: str, b: str, cells: int, known: frozenset[str]) -> Line:
    names = [
        styled(" ") + align_right(styled(f"{side}  ", Style.GOOD) + styled(cut, Style.STRONG), cells - 1)
        for side, cut in zip("AB", (shorten_apart(one, cells - 4, known) for one in (a, b)), strict=True)
    ]
    return styled(" " * LABEL) + names[0] + names[1] + align_right(styled("B to A", Style.DIM), RATIO)


def _state(view: View, snapshot: Snapshot, name: str) -> Line:
    engine = snapshot.engines.get(name)
    return words.engine_state(engine, view) if engine else styled("off", Style.DIM)


def _row(figure: ComparedFigure, a: Figures, b: Figures, cells: int) -> Line:
    values = figure.of(a), figure.of(b)
    line = pad(styled(figure.label, Style.DIM), LABEL)
    for value in values:
        line += aligned_figure(figure.text(value), cells)
    return line + align_right(_ratio(*values) if figure.ratio else EMPTY, RATIO)


def _ratio(a: float | None, b: float | None) -> Line:
    if not a or b is None:
        return styled(DASH, Style.DIM)
    return styled(f"{(b / a - 1) * 100:+.0f} %", Style.PLAIN)


def _rates(snapshot: Snapshot, a: str, b: str, cells: int) -> Line:
    """Draw the decode rates of the last requests of both, to one scale."""
    both = [_seen(snapshot, name).rates for name in (a, b)]
    top = max((*both[0], *both[1]), default=0.0)
    bars = [
        align_right(styled(sparkline(rates, top)[0] or DASH, Style.TRACE if rates else Style.DIM), cells)
        for rates in both
    ]
    return pad(styled("last requests", Style.DIM), LABEL) + bars[0] + bars[1]


def _single(view: View, snapshot: Snapshot, side: str, name: str, width: int) -> list[Line]:
    seen = _seen(snapshot, name)
    head = join([styled(side, Style.GOOD), styled(name, Style.STRONG), _state(view, snapshot, name)], styled("  "))
    told = [pad(styled(figure.label, Style.DIM), LABEL) + styled(figure.text(figure.of(seen))) for figure in FIGURES]
    return [clip(line, width) for line in (head, *told)]


class ComparePanel(Panel):
    """Framed comparison."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        head = EdgeText(styled("A | B"), styled("SIMULATED", Style.WARN) if view.simulated else EMPTY)
        foot = EdgeText(EMPTY, key_hint("t", "flips"))
        return frame(compare_rows(view, width - 4), width, head, foot, height=height)

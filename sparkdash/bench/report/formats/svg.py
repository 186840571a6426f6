"""Panels of charts as inline SVG: no script, no font, a few KB each, readable on a telephone.

Owns: scales, places and sizes. Must not know: what is shown. Colours of text and grid are the page's own variables, so
that a panel follows its theme.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from sparkdash.bench.report.chart import BarPanel, IntervalPanel, LinePanel, Panel, PlotBar, PlotLine, PlotPoint

WIDTH = 340.0
"""Width of a panel in its own units, which are pixels on a page of 400."""
LEFT, RIGHT, TOP = 44.0, 8.0, 22.0
LINES_HEIGHT = 220.0
ROW = 32.0
"""Height of an interval with its label above."""
BAR = 13.0
TICKS = 4
"""Most parts of a scale."""
_TEXT = 'font-size="11" fill="currentColor"'
_DIM = 'font-size="11" fill="var(--dim)"'


def draw_panel(panel: Panel, unit: str) -> str:
    """Draw one panel as an SVG element."""
    match panel:
        case LinePanel():
            height, parts = LINES_HEIGHT, list(_line_panel(panel, unit))
        case IntervalPanel():
            height, parts = TOP + ROW * len(panel.rows) + 22, list(_interval_panel(panel, unit))
        case BarPanel():
            height, parts = _bars_height(panel), list(_bar_panel(panel, unit))
    label = escape(panel.title, quote=True)
    opening = f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{label}">'
    return opening + "".join(parts) + "</svg>"


def scale_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return round values from at most `low` to at least `high`, in steps of 1, 2 or 5 times a power of ten."""
    high = high if high > low else low + 1.0
    span = high - low
    rough = span / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(number * step for number in range(first, last + 1))


def _label(value: float) -> str:
    return f"{value:.10g}"


def _text(x: float, y: float, said: str, anchor: str = "start", style: str = _TEXT) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}>{escape(said)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float, style: str = 'stroke="var(--line)"') -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


# --- lines over categories


def _line_panel(panel: LinePanel, unit: str) -> Iterator[str]:
    points = [point for line in panel.lines for point in line.points.values()]
    ticks = scale_ticks(0.0, max((max(one.high, one.value) for one in points), default=1.0))
    bottom = LINES_HEIGHT - 34
    step = (WIDTH - LEFT - RIGHT) / max(1, len(panel.categories))
    places = {name: LEFT + step * (number + 0.5) for number, name in enumerate(panel.categories)}

    def height(value: float) -> float:
        return bottom - (bottom - TOP) * value / ticks[-1]

    yield _text(WIDTH / 2, 14, panel.title, "middle", f'{_TEXT} font-weight="600"')
    for tick in ticks:
        yield _rule(LEFT, height(tick), WIDTH - RIGHT, height(tick))
        yield _text(LEFT - 5, height(tick) + 4, _label(tick), "end", _DIM)
    for name, x in places.items():
        yield _text(x, bottom + 14, name, "middle", _DIM)
    yield _text(LEFT, LINES_HEIGHT - 5, f"{unit} against context, tokens", style=_DIM)
    for line in panel.lines:
        marks = [(places[name], point) for name, point in line.points.items() if name in places]
        yield from _line(
            line, [(x, height(point.low), height(point.value), height(point.high), point) for x, point in marks]
        )


def _line(line: PlotLine, marks: Sequence[tuple[float, float, float, float, PlotPoint]]) -> Iterator[str]:
    stroke = f'stroke="{line.colour}"'
    if not line.hollow:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, _, y, _, _ in marks)
        yield f'<polyline points="{path}" fill="none" {stroke} stroke-width="1.5"/>'
    for x, low, y, high, point in marks:
        if point.low != point.high:
            yield _rule(x, low, x, high, stroke)
        fill = "none" if line.hollow else line.colour
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}" {stroke}>'
            f"<title>{escape(point.about)}</title></circle>"
        )


# --- intervals around zero


def _interval_panel(panel: IntervalPanel, unit: str) -> Iterator[str]:
    lows = [min(0.0, row.point.low, row.point.value) for row in panel.rows]
    highs = [max(0.0, row.point.high, row.point.value) for row in panel.rows]
    ticks = scale_ticks(min(lows), max(highs))
    bottom = TOP + ROW * len(panel.rows)
    left, right = 14.0, WIDTH - 18

    def across(value: float) -> float:
        return left + (right - left) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    yield _text(left, 14, panel.title, style=f'{_TEXT} font-weight="600"')
    for tick in ticks:
        zero = abs(tick) < 1e-9
        style = 'stroke="var(--dim)" stroke-width="1.5"' if zero else 'stroke="var(--line)"'
        yield _rule(across(tick), TOP, across(tick), bottom, style)
        yield _text(across(tick), bottom + 14, f"{'0' if zero else f'{tick:+.10g}'} {unit}", "middle", _DIM)
    for number, row in enumerate(panel.rows):
        y = TOP + ROW * number
        point, stroke = row.point, f'stroke="{row.colour}" stroke-width="2"'
        yield _text(left, y + 12, row.label)
        yield _text(right, y + 12, f"{point.value:+.1f} {unit}", "end", _DIM)
        yield _rule(across(point.low), y + 21, across(point.high), y + 21, stroke)
        yield (
            f'<circle cx="{across(point.value):.1f}" cy="{y + 21:.1f}" r="4" fill="{row.colour}">'
            f"<title>{escape(f'{row.label}: {point.about}')}</title></circle>"
        )


# --- bars


def _bars_height(panel: BarPanel) -> float:
    return sum(18 + BAR * len(bars) + 8 for _, bars in panel.groups) + 4


def _bar_panel(panel: BarPanel, unit: str) -> Iterator[str]:
    most = max([panel.most or 0.0, *(bar.value for _, bars in panel.groups for bar in bars)]) or 1.0
    left, right = 14.0, WIDTH - 18
    y = 0.0
    for label, bars in panel.groups:
        yield _text(left, y + 13, label)
        top = y + 18
        for number, bar in enumerate(bars):
            yield from _bar(bar, left, top + BAR * number, (right - left) * bar.value / most, unit)
        y = top + BAR * len(bars) + 8
        for value, dashed in panel.marks:
            x = left + (right - left) * value / most
            dash = ' stroke-dasharray="3 3"' if dashed else ""
            yield _rule(x, top - 2, x, y - 6, f'stroke="var(--dim)"{dash}')


def _bar(bar: PlotBar, x: float, y: float, length: float, unit: str) -> Iterator[str]:
    """Draw a bar with its text inside where there is room, else behind it."""
    title = escape(f"{bar.name}: {bar.text}" + ("" if "%" in bar.text else f" {unit}"))
    yield (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1.0, length):.1f}" height="{BAR - 2:.1f}" fill="{bar.colour}">'
        f"<title>{title}</title></rect>"
    )
    inside = length > 7 * len(bar.text)
    place = x + length - 4 if inside else x + length + 4
    colour = "#0f1318" if inside else "currentColor"
    yield _text(place, y + 9.5, bar.text, "end" if inside else "start", f'font-size="10" fill="{colour}"')

"""Filled charts of braille dots, two values per cell, with lines across them.

Rule: unmeasured values are blank; a measured zero is the lowest dot; a line never hides a dot.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sparkdash.domain.history import Series
from sparkdash.tui.text import Line, Span, Style, align_right, merge_spans, pad, styled

_LEFT = (0x40, 0x04, 0x02, 0x01)
"""Bits of a cell's left dots, lowest first."""
_RIGHT = (0x80, 0x20, 0x10, 0x08)
_DOTS = 4


class LevelLine(NamedTuple):
    """Line across a chart at `value`, drawn with `glyph`."""

    value: float
    glyph: str
    style: Style = Style.DIM


def filled_chart(
    values: Sequence[float | None], rows: int, top: float, lines: Sequence[LevelLine] = (), edge: Style = Style.GOOD
) -> list[Line]:
    """Draw `values`, two per cell, in `rows` lines, the highest first; `top` is the value of the upper border."""
    levels = [_level(value, top, rows * _DOTS) for value in values] + [0] * (len(values) % 2)
    across = {row_of(line.value, rows, top): line for line in lines}
    return [merge_spans(_row(levels, (rows - 1 - row) * _DOTS, across.get(row), edge)) for row in range(rows)]


def row_of(value: float, rows: int, top: float) -> int:
    """Return the row, counted from the top, in which a line at `value` is drawn."""
    if top <= 0 or rows <= 0:
        return max(rows - 1, 0)
    return min(max(rows - 1 - int(value / top * rows * 0.9999), 0), rows - 1)


def _level(value: float | None, top: float, full: int) -> int:
    if value is None:
        return 0
    return max(1, min(round(value / top * full), full)) if top > 0 else 1


def _row(levels: Sequence[int], base: int, line: LevelLine | None, edge: Style) -> list[Span]:
    """Draw the cells whose lowest dot is number `base`, counted from the chart's foot."""
    spans: list[Span] = []
    for place in range(0, len(levels), 2):
        left, right = levels[place] - base, levels[place + 1] - base
        if left <= 0 and right <= 0:
            spans.append(Span(line.glyph, line.style) if line else Span(" ", Style.PLAIN))
            continue
        bits = sum(_LEFT[: min(max(left, 0), _DOTS)]) + sum(_RIGHT[: min(max(right, 0), _DOTS)])
        spans.append(Span(chr(0x2800 + bits), Style.TRACE if max(left, right) > _DOTS else edge))
    return spans


BARS = " ▁▂▃▄▅▆▇█"
PARTS = " ▏▎▍▌▋▊▉█"


def sparkline(values: Sequence[float | None], top: float, rows: int = 1) -> list[str]:
    """Draw a sparkline in `rows` strings, top row first, one character per value; `top` fills the height."""
    levels = [_level(value, top, rows * 8) for value in values]
    return ["".join(BARS[min(max(level - row * 8, 0), 8)] for level in levels) for row in reversed(range(rows))]


def meter(share: float, width: int) -> tuple[str, str]:
    """Draw a bar of `width` cells; return its full and its empty part."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    full, part = divmod(eighths, 8)
    done = "█" * full + (PARTS[part] if part else "")
    return done, "─" * (width - len(done))


_BITS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of the left and the right dots of a cell, lowest first."""
_ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
AXIS = 9


class Range(NamedTuple):
    """Lowest and highest value of one dot column."""

    low: float
    high: float


Ranges = Sequence[Range | None]


def columns(series: Series | None, begin: float, end: float, count: int) -> list[Range | None]:
    """Put a series' buckets into `count` dot columns: the lowest and the highest of each."""
    found: list[Range | None] = [None] * count
    if series is None or end <= begin:
        return found
    wide = (end - begin) / count
    for start, low, high in zip(series.start, series.min, series.max, strict=True):
        if low is None or high is None:
            continue
        first = max(int((start - begin) / wide), 0)
        last = min(max(int((start + series.step_s - begin) / wide - 0.001), first), count - 1)
        for place in range(first, last + 1):
            own = found[place]
            found[place] = Range(min(low, own.low), max(high, own.high)) if own else Range(low, high)
    return found


class ChartMark(NamedTuple):
    """Sign below the chart, at a share (0..1) of its width."""

    at: float
    glyph: str
    style: Style


def nice_top(highest: float) -> float:
    """Return the next round number at or above `highest`, some digits of _ROUND times a power of ten."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in _ROUND if step * power >= highest * 0.9999)


def range_chart(
    first: Ranges, second: Ranges, rows: int, top: float, *, cursor: int | None, axis: Callable[[float], str]
) -> list[Line]:
    """Draw both series in `rows` lines, two columns a cell, the axis at the right; `cursor` is a cell with a line."""
    full = rows * _DOTS
    spans = [_levels(series, top, full) for series in (first, second)]
    cells = (max(len(first), len(second)) + 1) // 2
    lines: list[Line] = []
    for row in range(rows):
        base = (rows - 1 - row) * _DOTS
        told = [_cell(spans, place, base, lit=place == cursor) for place in range(cells)]
        lines.append(merge_spans(told) + align_right(styled(_axis_text(row, rows, top, axis), Style.DIM), AXIS))
    return lines


def _axis_text(row: int, rows: int, top: float, axis: Callable[[float], str]) -> str:
    if row == 0:
        return axis(top)
    if row == rows - 1:
        return axis(0.0)
    return axis(top / 2) if rows >= 5 and row == rows // 2 else ""


def _levels(series: Ranges, top: float, full: int) -> list[tuple[int, int] | None]:
    """Return the dots of each column, joined to the column before so that a line has no holes."""
    found: list[tuple[int, int] | None] = []
    before: tuple[int, int] | None = None
    for one in series:
        own = None if one is None else (_dot_level(one.low, top, full), _dot_level(one.high, top, full))
        joined = own
        if own is not None and before is not None:
            joined = (min(own[0], max(before[1], 0)), max(own[1], before[0]))
        found.append(joined)
        before = own
    return found


def _dot_level(value: float, top: float, full: int) -> int:
    return min(max(round(value / top * full) - 1, 0), full - 1)


def _cell(spans: Sequence[Sequence[tuple[int, int] | None]], place: int, base: int, *, lit: bool) -> Span:
    bits = [_dots(levels, place, base) for levels in spans]
    if bits[0]:
        return Span(chr(0x2800 + (bits[0] | bits[1])), Style.GOOD, lit)
    if bits[1]:
        return Span(chr(0x2800 + bits[1]), Style.DIM, lit)
    return Span("┊" if lit else " ", Style.DIM, lit)


def _dots(levels: Sequence[tuple[int, int] | None], place: int, base: int) -> int:
    found = 0
    for side in (0, 1):
        column = 2 * place + side
        span = levels[column] if column < len(levels) else None
        if span is not None:
            found |= sum(_BITS[side][dot] for dot in range(_DOTS) if span[0] <= base + dot <= span[1])
    return found


def mark_row(marks: Sequence[ChartMark], cells: int) -> Line:
    """Draw the marks in one line; where several meet, the worst is drawn."""
    order = (Style.DIM, Style.PLAIN, Style.GOOD, Style.WARN, Style.BAD)
    row = [Span(" ", Style.PLAIN)] * cells
    for mark in sorted(marks, key=lambda one: order.index(one.style) if one.style in order else 0):
        place = min(max(int(mark.at * cells), 0), cells - 1)
        row[place] = Span(mark.glyph, mark.style)
    return merge_spans(row)


def tick_row(ticks: Sequence[tuple[float, str]], cells: int) -> Line:
    """Write the texts below their places, shares of the width; one that would touch another is left out."""
    row = ""
    for at, text in ticks:
        place = int(at * cells)
        if place >= len(row) + (2 if row else 0) and place + len(text) <= cells:
            row = row.ljust(place) + text
    return pad(styled(row, Style.DIM), cells)


_THREE: Mapping[str, tuple[str, ...]] = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"),
    "1": ("╺┓ ", " ┃ ", "╺┻╸"),
    "2": ("╺━┓", "┏━┛", "┗━╸"),
    "3": ("╺━┓", " ━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"),
    "5": ("┏━╸", "┗━┓", "╺━┛"),
    "6": ("┏━╸", "┣━┓", "┗━┛"),
    "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"),
    "9": ("┏━┓", "┗━┫", "╺━┛"),
    "-": ("   ", "╺━╸", "   "),
    "~": ("  ", "┏┛", "  "),
    ".": (" ", " ", "."),
    "k": ("╻┏╸", "┣┫ ", "╹┗╸"),
    "M": ("┏┳┓", "┃╹┃", "╹ ╹"),
    "G": ("┏━╸", "┃╺┓", "┗━┛"),
}
_FIVE: Mapping[str, tuple[str, ...]] = {
    "0": ("██████", "██  ██", "██  ██", "██  ██", "██████"),
    "1": ("████  ", "  ██  ", "  ██  ", "  ██  ", "██████"),
    "2": ("██████", "    ██", "██████", "██    ", "██████"),
    "3": ("██████", "    ██", " █████", "    ██", "██████"),
    "4": ("██  ██", "██  ██", "██████", "    ██", "    ██"),
    "5": ("██████", "██    ", "██████", "    ██", "██████"),
    "6": ("██████", "██    ", "██████", "██  ██", "██████"),
    "7": ("██████", "    ██", "    ██", "    ██", "    ██"),
    "8": ("██████", "██  ██", "██████", "██  ██", "██████"),
    "9": ("██████", "██  ██", "██████", "    ██", "██████"),
    "-": ("      ", "      ", "██████", "      ", "      "),
    "~": ("     ", " ██ █", "█ ██ ", "     ", "     "),
    ".": ("  ", "  ", "  ", "  ", "██"),
    "k": ("██  ██", "██ ██ ", "████  ", "██ ██ ", "██  ██"),
    "M": ("██   ██", "███ ███", "██ █ ██", "██   ██", "██   ██"),
    "G": ("██████", "██    ", "██  ██", "██  ██", "██████"),
}


def large(figure: str, rows: int = 3) -> list[str]:
    """Draw a figure of 0-9, ".", "-", "~", "k", "M", "G" in `rows` strings of equal length; `rows` is 3 or 5."""
    glyphs, gap = (_FIVE, " ") if rows == 5 else (_THREE, "")
    drawn = [glyphs[each] for each in figure if each in glyphs]
    return [gap.join(glyph[row] for glyph in drawn) for row in range(rows)]

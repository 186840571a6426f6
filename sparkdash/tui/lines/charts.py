"""Filled charts of braille dots, two values per cell, with lines across them.

Rule: unmeasured values are blank; a measured zero is the lowest dot; a line never hides a dot. Pure.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from sparkdash.tui.text import Line, Span, Style, align_right, merge_spans, pad, styled

if TYPE_CHECKING:
    from sparkdash.domain.history import Series

_DOTS = 4
_BITS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of the left and the right dots of a cell, lowest first."""


class LevelLine(NamedTuple):
    """Line across a chart at `value`, drawn with `glyph`."""

    value: float
    glyph: str
    style: Style = Style.DIM


def filled_chart(
    values: Sequence[float | None], rows: int, top: float, lines: Sequence[LevelLine] = (), edge: Style = Style.GOOD
) -> list[Line]:
    """Draw `values`, two per cell, in `rows` lines, the highest first; `top` is the value of the upper border."""
    return _filled_chart(tuple(values), rows, top, tuple(lines), edge)


@lru_cache(maxsize=8)
def _filled_chart(
    values: tuple[float | None, ...], rows: int, top: float, lines: tuple[LevelLine, ...], edge: Style
) -> list[Line]:
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
    empty = Span(line.glyph, line.style) if line else Span(" ", Style.PLAIN)
    if max(levels, default=0) <= base:
        return [empty._replace(text=empty.text * (len(levels) // 2))]
    spans: list[Span] = []
    for place in range(0, len(levels), 2):
        left, right = levels[place] - base, levels[place + 1] - base
        if left <= 0 and right <= 0:
            spans.append(empty)
            continue
        bits = sum(_BITS[0][: min(max(left, 0), _DOTS)]) + sum(_BITS[1][: min(max(right, 0), _DOTS)])
        spans.append(Span(chr(0x2800 + bits), Style.TRACE if max(left, right) > _DOTS else edge))
    return spans


BARS = " ▁▂▃▄▅▆▇█"
BLOCKS = {
    0x2800 + dots: BARS[
        2 * max((level for side in _BITS for level, bit in enumerate(side, 1) if dots & bit), default=0)
    ]
    for dots in range(256)
}
"""Eighth block as high as each pattern of braille dots: the console's font (TERM=linux) has no braille."""


def sparkline(values: Sequence[float | None], top: float, rows: int = 1) -> list[str]:
    """Draw a sparkline in `rows` strings, top row first, one character per value; `top` fills the height."""
    levels = [_level(value, top, rows * 8) for value in values]
    return ["".join(BARS[min(max(level - row * 8, 0), 8)] for level in levels) for row in reversed(range(rows))]


def meter(share: float, width: int) -> tuple[str, str]:
    """Draw a gauge of `width` cells, unlike a sparkline; return its full and its empty part."""
    full, half = divmod(round(max(0.0, min(share, 1.0)) * width * 2), 2)
    done = "━" * full + "╸" * half
    return done, "─" * (width - len(done))


_ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
AXIS = 9


class Range(NamedTuple):
    """Values of one dot column: the lowest, the highest, and the mean of the `measured`."""

    low: float
    high: float
    mean: float
    measured: int

    def plus(self, other: "Range") -> "Range":
        measured = self.measured + other.measured
        mean = (self.mean * self.measured + other.mean * other.measured) / measured
        return Range(min(self.low, other.low), max(self.high, other.high), mean, measured)


Ranges = Sequence[Range | None]


def columns(series: "Series | None", begin: float, end: float, count: int) -> list[Range | None]:
    found: list[Range | None] = [None] * count
    if series is None or end <= begin:
        return found
    wide = (end - begin) / count
    for start, low, high, mean, measured in zip(
        series.start, series.min, series.max, series.mean, series.count, strict=True
    ):
        if low is None or high is None or mean is None:
            continue
        new = Range(low, high, mean, measured)
        first = max(int((start - begin) / wide), 0)
        last = min(max(int((start + series.step_s - begin) / wide - 0.001), first), count - 1)
        for place in range(first, last + 1):
            own = found[place]
            found[place] = own.plus(new) if own else new
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
    first: Ranges,
    second: Ranges,
    rows: int,
    top: float,
    *,
    cursor: int | None,
    axis: Callable[[float], str],
    last: float | None,
) -> list[Line]:
    """Draw both means as lines, the first over the band of its values, in `rows` lines of two columns a cell.

    The axis is at the right, with the `last` value of the first series; `cursor` is a cell with a line.
    """
    full = rows * _DOTS
    band = [one and (_dot_level(one.low, top, full), _dot_level(one.high, top, full)) for one in first]
    plotted = Plotted(_line(first, top, full), _line(second, top, full), band)
    cells = (max(len(first), len(second)) + 1) // 2
    lines: list[Line] = []
    for row in range(rows):
        base = (rows - 1 - row) * _DOTS
        told = [_cell(plotted, place, base, lit=place == cursor) for place in range(cells)]
        lines.append(merge_spans(told) + align_right(_axis_text(row, rows, top, last, axis), AXIS))
    return lines


def _axis_text(row: int, rows: int, top: float, last: float | None, axis: Callable[[float], str]) -> Line:
    if row == 0:
        return styled(axis(top), Style.DIM)
    if row == rows - 1:
        return styled(axis(0.0), Style.DIM)
    if last is not None and row_of(last, rows, top) == row:
        return styled(axis(last), Style.GOOD)
    return styled(axis(top / 2) if rows >= 5 and row == rows // 2 else "", Style.DIM)


Dots = Sequence[tuple[int, int] | None]
"""Lowest and highest dot of each column."""


class Plotted(NamedTuple):
    """Parts of a chart, the topmost first."""

    line: Dots
    other: Dots
    band: Dots


def _line(series: Ranges, top: float, full: int) -> Dots:
    """Return the dots of the means, each joined to the one before so that the line has no holes."""
    found: list[tuple[int, int] | None] = []
    before: int | None = None
    for one in series:
        own = None if one is None else _dot_level(one.mean, top, full)
        found.append(None if own is None else (own, own) if before is None else (min(own, before), max(own, before)))
        before = own
    return found


def _dot_level(value: float, top: float, full: int) -> int:
    return min(max(round(value / top * full) - 1, 0), full - 1)


def _cell(plotted: Plotted, place: int, base: int, *, lit: bool) -> Span:
    line, other = _dots(plotted.line, place, base), _dots(plotted.other, place, base)
    if line:
        return Span(chr(0x2800 + (line | other)), Style.GOOD, lit)
    if other:
        return Span(chr(0x2800 + other), Style.DIM, lit)
    if band := _dots(plotted.band, place, base):
        return Span(chr(0x2800 + band), Style.FAINT, lit)
    return Span("┊" if lit else " ", Style.DIM, lit)


def _dots(levels: Dots, place: int, base: int) -> int:
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

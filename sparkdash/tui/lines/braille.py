"""Filled charts of braille dots, two values per cell, with lines across them.

Owns: the dots, and which cells are the chart's upper edge. Must not know: what is charted.
Rule: unmeasured values are blank; a measured zero is the lowest dot; a line never hides a dot.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparkdash.tui.ink import Ink, Line, Span, merge_spans

_LEFT = (0x40, 0x04, 0x02, 0x01)
"""Bits of a cell's left dots, lowest first."""
_RIGHT = (0x80, 0x20, 0x10, 0x08)
_DOTS = 4


class LevelLine(NamedTuple):
    """Line across a chart at `value`, drawn with `glyph`."""

    value: float
    glyph: str
    ink: Ink = Ink.DIM


def filled_chart(
    values: Sequence[float | None], rows: int, top: float, lines: Sequence[LevelLine] = (), edge: Ink = Ink.GOOD
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


def _row(levels: Sequence[int], base: int, line: LevelLine | None, edge: Ink) -> list[Span]:
    """Draw the cells whose lowest dot is number `base`, counted from the chart's foot."""
    spans: list[Span] = []
    for place in range(0, len(levels), 2):
        left, right = levels[place] - base, levels[place + 1] - base
        if left <= 0 and right <= 0:
            spans.append(Span(line.glyph, line.ink) if line else Span(" ", Ink.PLAIN))
            continue
        bits = sum(_LEFT[: min(max(left, 0), _DOTS)]) + sum(_RIGHT[: min(max(right, 0), _DOTS)])
        spans.append(Span(chr(0x2800 + bits), Ink.TRACE if max(left, right) > _DOTS else edge))
    return spans

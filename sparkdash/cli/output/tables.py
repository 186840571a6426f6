"""Tables as aligned lines of text, fitted to the width of a terminal.

Owns: how columns align, which ones a narrow terminal omits, and where the last one wraps. Must not know: the terminal.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from textwrap import wrap

from sparkdash.units import one_line

Cell = str
RIGHT = ">"
LEAST_WORDS = 30
"""Least width of a column of sentences, however narrow the terminal is."""


def format_table(head: Sequence[str], rows: Sequence[Sequence[Cell]], align: str) -> list[str]:
    """Format rows as aligned lines, the head first; `align` has one of < and > per column.

    Cells are never wrapped.
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]


def fit_table(
    head: Sequence[str], rows: Sequence[Sequence[Cell]], align: str, least: Sequence[str], columns: int
) -> tuple[list[str], list[str]]:
    """Format a table that fits `columns`; return its lines and the titles of omitted columns.

    Columns of `least` are omitted in order until the table fits. A first cell that takes most of the width stands on a
    line of its own above its row, so that it costs the other rows no column.
    """
    apart = ["" if len(row[0]) <= columns * 5 // 8 else row[0] for row in rows]
    rows = [("", *row[1:]) if name else row for name, row in zip(apart, rows, strict=True)]
    left_out: list[str] = []
    while True:
        lines = _format_without(left_out, head, rows, align)
        spare = [title for title in least if title not in left_out]
        if not spare or max(map(len, lines)) <= columns:
            named = zip(("", *apart), lines, strict=True)
            return [line for pair in named for line in pair[not pair[0] :]], left_out
        left_out.append(spare[0])


def _format_without(
    left_out: Collection[str], head: Sequence[str], rows: Sequence[Sequence[Cell]], align: str
) -> list[str]:
    kept = [i for i, title in enumerate(head) if title not in left_out]
    return format_table(
        [head[i] for i in kept], [[row[i] for i in kept] for row in rows], "".join(align[i] for i in kept)
    )


def wrap_last_column(head: Sequence[str], rows: Sequence[Sequence[Cell]], align: str, columns: int) -> list[str]:
    """Format a table whose last column is wrapped at `columns`; `align` omits that column."""
    lines = format_table(head[:-1], [row[:-1] for row in rows], align)
    indent = max(map(len, lines)) + 2
    room = max(columns - 1 - indent, LEAST_WORDS)
    told = zip(lines, (head[-1], *(row[-1] for row in rows)), strict=True)
    return [
        f"{line if number == 0 else '':<{indent}}{part}"
        for line, words in told
        for number, part in enumerate(wrap(words, room))
    ]

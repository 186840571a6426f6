"""Terminal output for every command: text, JSON, tables, colours and the one line that is redrawn.

Owns: when colours are wanted, how columns line up, how a person is asked, and that nothing printed steers the
terminal: no other file of the command line writes to it. Must not know what is printed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TextIO

import typer

from sparkdash.printable import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console

Cell = str
RIGHT = ">"
LEAST_WORDS = 30
"""Cells of a column of sentences, however narrow the terminal is."""


def wants_colour(stream: TextIO) -> bool:
    """A terminal, and the owner did not say NO_COLOR (https://no-color.org) or TERM=dumb."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style_text(text: str, colour: str | None = None, *, bold: bool = False, dim: bool = False) -> str:
    """Style `text`, made printable, for `say_painted`; plain where colours are not wanted on stdout."""
    shown = one_line(text)
    return typer.style(shown, fg=colour, bold=bold or None, dim=dim or None) if wants_colour(sys.stdout) else shown


def print_text(text: str, *, nl: bool = True) -> None:
    """Print an answer on stdout."""
    typer.echo(printable(text), nl=nl)


def print_styled(text: str) -> None:
    """Print text that `paint` and `one_line` have already made printable."""
    typer.echo(text)


def print_json(value: object) -> None:
    """One JSON document on stdout, indented; takes domain values, mappings and sequences of them."""
    from pydantic_core import to_json

    print_text(to_json(value, indent=2).decode())


def print_json_line(value: object) -> None:
    """The same on one line, for streams of documents."""
    from pydantic_core import to_json

    print_text(to_json(value).decode())


def print_note(text: str) -> None:
    """A word to the person, on stderr, where it does not get into a pipe."""
    typer.echo(printable(text), err=True)


def make_console(stream: TextIO, columns: int | None = None) -> Console:
    """Make a rich console on `stream`, `columns` wide or as wide as the stream. Its output is always made printable."""
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

    class Printable(Console):
        def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text), style, control)

    return Printable(file=stream, width=columns, no_color=not wants_colour(stream), highlight=False)


def format_table(head: Sequence[str], rows: Sequence[Sequence[Cell]], align: str) -> list[str]:
    """Format rows as aligned lines, the head first; `align` has one of < and > per column.

    A cell stays on its line. Pure.
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
    """(the table's lines, the titles that it does without): those of `least`, in order, until it fits. A first cell that would
    take most of the width stands on a line of its own, above its row, so that it costs no other row a column. Pure."""
    apart = ["" if len(row[0]) <= columns * 5 // 8 else row[0] for row in rows]
    rows = [("", *row[1:]) if name else row for name, row in zip(apart, rows, strict=True)]
    left_out: list[str] = []
    while True:
        kept = [i for i, title in enumerate(head) if title not in left_out]
        lines = format_table(
            [head[i] for i in kept], [[row[i] for i in kept] for row in rows], "".join(align[i] for i in kept)
        )
        spare = [title for title in least if title not in left_out]
        if not spare or max(map(len, lines)) <= columns:
            named = zip(("", *apart), lines, strict=True)
            return [line for name, told in named for line in ((name, told) if name else (told,))], left_out
        left_out.append(spare[0])


def print_fitting_table(head: Sequence[str], rows: Sequence[Sequence[Cell]], align: str, least: Sequence[str]) -> None:
    """Print the table as far as it fits the terminal, and tell what it does without."""
    lines, left_out = fit_table(head, rows, align, least, terminal_width())
    print_text("\n".join(lines))
    if left_out:
        print_note(
            f"Left out to fit {terminal_width()} columns: {', '.join(left_out)}. A wider terminal and --json have them."
        )


def wrap_last_column(head: Sequence[str], rows: Sequence[Sequence[Cell]], align: str) -> list[str]:
    """As `table`, the last column broken at spaces where the terminal ends. `align` has one for each column but that."""
    lines = format_table(head[:-1], [row[:-1] for row in rows], align)
    indent = max(map(len, lines)) + 2
    room = max(terminal_width() - 1 - indent, LEAST_WORDS)
    told = zip(lines, (head[-1], *(row[-1] for row in rows)), strict=True)
    return [
        f"{line if number == 0 else '':<{indent}}{part}"
        for line, words in told
        for number, part in enumerate(wrap(words, room))
    ]


def terminal_width() -> int:
    """Columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def is_interactive() -> bool:
    """Is there a person to ask?"""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, default: bool = False) -> bool:
    """The person's answer. Ctrl-C is a no: a loop's own handler would keep it for later, and the question would stand."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm(printable(question), default=default, err=True)
    except typer.Abort:
        return False
    finally:
        signal.signal(signal.SIGINT, before)


class LiveLine:
    """One line on stderr: drawn over on a terminal; elsewhere every different line is printed once."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._over = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._last = ""

    def draw(self, text: str, plain: str) -> None:
        """Show `text` (terminal) or `plain`, which should change rarely."""
        line = one_line(text)[: terminal_width() - 1] if self._over else one_line(plain)
        if line == self._last:
            return
        self._last = line
        self._stream.write(f"\r\x1b[K{line}" if self._over else f"{line}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away (terminal)."""
        if self._over and self._last:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._last = ""

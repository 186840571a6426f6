"""Terminal output of every command: text, JSON, tables, colours, questions, progress line, error."""

import os
import shutil
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TextIO

import typer

from sparkdash.errors import SparkdashError
from sparkdash.units import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console


LEAST_WORDS = 30
"""Least width of a column of sentences, however narrow the terminal is."""


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Format rows as aligned lines, the head first; `align` has one of < and > per column. Cells are never wrapped."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]


def fit_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], align: str, least: Sequence[str], columns: int
) -> tuple[list[str], list[str]]:
    """Format a table that fits `columns`; return its lines and the titles of omitted columns.

    Columns of `least` are omitted in order until the table fits. A first cell that takes most of the width stands on a
    line of its own above its row, so that it costs the other rows no column.
    """
    apart = ["" if len(row[0]) <= columns * 5 // 8 else row[0] for row in rows]
    rows = [("", *row[1:]) if name else row for name, row in zip(apart, rows, strict=True)]
    left_out: list[str] = []
    spare = [*least]
    lines = _format_without((), head, rows, align)
    while spare and max(map(len, lines)) > columns:
        left_out.append(spare.pop(0))
        lines = _format_without(left_out, head, rows, align)
    named = zip(("", *apart), lines, strict=True)
    return [line for pair in named for line in pair[not pair[0] :]], left_out


def _format_without(
    titles: Collection[str], head: Sequence[str], rows: Sequence[Sequence[str]], align: str
) -> list[str]:
    kept = [i for i, title in enumerate(head) if title not in titles]
    shown = [[row[i] for i in kept] for row in rows]
    return format_table([head[i] for i in kept], shown, "".join(align[i] for i in kept))


def _wrap_last_column(head: Sequence[str], rows: Sequence[Sequence[str]], align: str, columns: int) -> list[str]:
    lines = format_table(head[:-1], [row[:-1] for row in rows], align[:-1])
    indent = max(map(len, lines)) + 2
    room = max(columns - 1 - indent, LEAST_WORDS)
    told = zip(lines, (head[-1], *(one_line(row[-1]) for row in rows)), strict=True)
    return [
        f"{line if number == 0 else '':<{indent}}{part}"
        for line, words in told
        for number, part in enumerate(wrap(words, room) or [""])
    ]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], align: str, least: Sequence[str] = ()) -> None:
    """Print a table that fits `table_width()`: without columns of `least`, in their order, as far as needed.

    A note names the omitted columns. Where none may be omitted, a last column of words is wrapped.
    """
    lines, left_out = fit_table(head, rows, align, least, table_width())
    if not least and align.endswith("<"):
        lines = _wrap_last_column(head, rows, align, table_width())
    print_text("\n".join(line.rstrip() for line in lines))
    if left_out:
        print_note(
            f"Left out to fit {terminal_width()} columns: {', '.join(left_out)}. Use a wider terminal or --json."
        )


def wants_colour(stream: TextIO) -> bool:
    """Whether `stream` is a terminal without NO_COLOR (https://no-color.org) and TERM=dumb."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style_text(text: str, colour: str | None = None, *, bold: bool = False) -> str:
    """Style printable `text` for `print_styled`; plain text when stdout takes no colours."""
    shown = one_line(text)
    return typer.style(shown, fg=colour, bold=bold or None) if wants_colour(sys.stdout) else shown


def print_text(text: str, *, nl: bool = True) -> None:
    typer.echo(printable(text), nl=nl)


def print_styled(text: str) -> None:
    """Print text that `style_text` and `one_line` have already made printable."""
    typer.echo(text)


def print_json(value: object) -> None:
    """Print one indented JSON document to stdout; takes domain values, mappings and sequences of them."""
    from pydantic_core import to_json

    print_text(to_json(value, indent=2).decode())


def print_json_line(value: object) -> None:
    from pydantic_core import to_json

    print_text(to_json(value).decode())


def print_note(text: str) -> None:
    typer.echo(printable(text), err=True)


def print_opening(text: str) -> None:
    """Say at once what is being started, on a terminal; the next line that is printed takes its place."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\r")
        sys.stderr.flush()


def make_console(stream: TextIO, columns: int | None = None) -> "Console":
    """Make a rich console on `stream`, `columns` wide or as wide as the stream; its output is always printable."""
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

    class Printable(Console):
        def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text), style, control)

    return Printable(file=stream, width=columns, no_color=not wants_colour(stream), highlight=False)


def table_width() -> int:
    """Return the columns that a table may take: unbounded in a pipe or a file, whose reader wants every column."""
    return terminal_width() if sys.stdout.isatty() or os.environ.get("COLUMNS") else sys.maxsize


def terminal_width() -> int:
    return shutil.get_terminal_size((80, 24)).columns


def is_interactive() -> bool:
    """Whether a user can be asked: stdin and stderr are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask a yes/no question; Ctrl-C ends the command with exit code 130, the end of the input means no."""
    # an event loop's own handler would defer Ctrl-C and leave the question open
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm(printable(question), default=default, err=True)
    except typer.Abort as abort:  # click raises it for both
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise typer.Exit(130) from None
        return False
    finally:
        signal.signal(signal.SIGINT, before)


def ask_or_refuse(question: str, refusal: SparkdashError) -> None:
    """Ask before what cannot be taken back. Raises `refusal` where nobody can be asked, typer.Abort after a no."""
    if not is_interactive():
        raise refusal
    if not confirm(question):
        raise typer.Abort


class LiveLine:
    """Progress line on stderr: redrawn in place on a terminal; elsewhere each new text is printed once."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._over = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._last = ""

    def draw(self, text: str, plain: str) -> None:
        line = one_line(text)[: terminal_width() - 1] if self._over else one_line(plain)
        if line == self._last:
            return
        self._last = line
        self._stream.write(f"\r\x1b[K{line}" if self._over else f"{line}\n")
        self._stream.flush()

    def clear(self) -> None:
        if self._over and self._last:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._last = ""


def print_error(error: SparkdashError, *, as_json: bool = False) -> None:
    """Print the error to stderr; with `as_json`, print its envelope to stdout too."""
    if as_json:
        print_json({"error": {"message": error.message, "code": error.code, "hint": error.hint, **error.details()}})
    head = typer.style("Error:", fg="red", bold=True) if wants_colour(sys.stderr) else "Error:"
    typer.echo(f"{head} {printable(error.message)}", err=True)
    for title, lines in _extra(error):
        print_note("\n".join((f"{title}:", *(f"  {line}" for line in lines))))
    if error.hint:
        print_note(f"Hint: {error.hint}")


def _extra(error: SparkdashError) -> list[tuple[str, tuple[str, ...]]]:
    """Return (title, lines) of everything that an error carries besides its message."""
    problems: tuple[str, ...] = getattr(error, "problems", ())
    if len(problems) == 1 and problems[0] in error.message:
        problems = ()  # it is the message
    evidence: str | None = getattr(error, "evidence", None)
    found = [
        ("problems", problems),
        ("last log lines", tuple(getattr(error, "log_tail", ()))),
        ("evidence kept in", (evidence,) if evidence else ()),
    ]
    return [(title, lines) for title, lines in found if lines]

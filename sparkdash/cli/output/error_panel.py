"""Output of an expected failure on the command line.

Owns: the panel on a terminal, its plain form elsewhere, and the JSON envelope for --json. Must not know: where the
error comes from.
"""

from __future__ import annotations

import sys
from typing import Any

from sparkdash.cli.output.screen import make_console, print_json, print_note, terminal_width, wants_colour
from sparkdash.errors import SparkdashError


def print_error(error: SparkdashError, *, as_json: bool = False) -> None:
    """Print the error to stderr; with `as_json`, print its envelope to stdout too."""
    if as_json:
        print_json({"error": {"message": error.message, "code": error.code, "hint": error.hint, **error.details()}})
    if wants_colour(sys.stderr):
        _rich(error)
    else:
        print_note("\n".join(_plain(error)))


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


def _plain(error: SparkdashError) -> list[str]:
    lines = [f"Error: {error.message}"]
    for title, extra in _extra(error):
        lines += [f"{title}:", *(f"  {line}" for line in extra)]
    return [*lines, f"Hint: {error.hint}"] if error.hint else lines


def _rich(error: SparkdashError) -> None:
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    parts: list[Any] = [Text(error.message, style="bold")]
    for title, lines in _extra(error):
        parts += [Text(f"\n{title}", style="dim"), Text("\n".join(lines), style="dim")]
    if error.hint:
        parts.append(Text(f"\n{error.hint}"))
    panel = Panel(Group(*parts), title=error.code, title_align="left", border_style="red", padding=(0, 1))
    make_console(sys.stderr, min(terminal_width(), 100)).print(panel)

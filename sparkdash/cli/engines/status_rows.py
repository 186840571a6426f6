"""Rows of `sparkdash status`: a label, and a text beside it.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from sparkdash.domain.state import Snapshot
from sparkdash.units import DASH, duration, one_line

LABEL = 10
"""Width of the label column."""
COLUMNS = 80


def status_row(label: str, text: str) -> str:
    """Format a label and a text on one line."""
    return f"{label:<{LABEL}}{one_line(text)}"


def wrapped_rows(label: str, text: str) -> Iterator[str]:
    """Format a label and sentences, wrapped at COLUMNS."""
    yield from fill(
        text, COLUMNS, initial_indent=f"{label:<{LABEL}}", subsequent_indent=" " * LABEL, break_long_words=False
    ).splitlines()


def time_since(then: float | None, world: Snapshot) -> str:
    """Format the time from `then` to the snapshot's own time."""
    return DASH if then is None else duration(max(0.0, world.at - then))

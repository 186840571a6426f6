"""What a report's page is made of: headings, sentences, commands, tables. Pure.

Owns: the blocks, and how a figure is written. Must not know: Markdown, terminals, HTML.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sparkdash.bench.judge.judgement import ArmFigure
from sparkdash.bench.judge.metrics import BenchMetric

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
DASH = "-"


class Tone(StrEnum):
    """What a cell's text means; a form may colour it, the words say it anyway."""

    PLAIN = ""
    BETTER = "better"
    WORSE = "worse"
    DIM = "dim"
    HEAD = "head"
    """A row that only titles those below it."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """One place in a table. Empty text is a blank: still to be measured."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. `widths` are the least widths of its columns, in characters; 0 leaves a cell as wide as its text."""

    head: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    widths: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    """Under the table, numbered from 1: cells refer to them with a superscript."""
    right: bool = False
    """Where the form allows it, all columns but the first are flush right."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A title; level 1 is the page's own."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A sentence, or lines that belong together."""

    lines: tuple[str, ...]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class CommandBlock:
    """What to type."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Separator:
    """A line between parts."""


Block = Heading | TextBlock | CommandBlock | Separator | Grid


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A whole report, as far as words and tables go."""

    blocks: tuple[Block, ...] = ()


@dataclass(slots=True)
class Footnotes:
    """Numbers reasons in the order in which they are first needed."""

    texts: list[str] = field(default_factory=list)

    def mark(self, reason: str) -> str:
        """The superscript of that reason."""
        if reason not in self.texts:
            self.texts.append(reason)
        return superscript(self.texts.index(reason) + 1)


def superscript(number: int) -> str:
    """1 as ¹."""
    return str(number).translate(SUPERSCRIPTS)


def format_value(number: float | None, digits: int = 1) -> str:
    """A figure, or nothing while it is not measured."""
    return "" if number is None else f"{number:.{digits}f}"


def decimals(metric: BenchMetric) -> int:
    """After the point: milliseconds of a time, tenths of a rate."""
    return 3 if metric.unit == "s" else 1


def format_spread(figure: ArmFigure, digits: int = 1) -> str:
    """`65.0 [64.8, 65.2]`: the median with its bounds, which a single value has none of."""
    if figure.median is None or figure.low is None or figure.high is None or figure.n < 2:
        return format_value(figure.median, digits)
    return f"{figure.median:.{digits}f} [{figure.low:.{digits}f}, {figure.high:.{digits}f}]"


def format_percent(share: float, digits: int = 0) -> str:
    """0.74 as 74%: without a space, as the published tables write it."""
    return f"{100 * share:.{digits}f}%"


def format_change(share: float, digits: int = 1) -> str:
    """0.137 as +13.7%."""
    return f"{100 * share:+.{digits}f}%"

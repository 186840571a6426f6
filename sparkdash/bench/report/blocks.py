"""Blocks of a report page: headings, sentences, commands, tables. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sparkdash.bench.judge.judgement import ArmFigure
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.run import CellKey

LENGTHS = ("short", "medium", "long")
"""Names of the published matrix's three output lengths."""


def matrix_cells(keys: Iterable[CellKey]) -> tuple[CellKey, ...]:
    """Return the cells of the context matrix: one request at a time, cold, all classes of prompt; no batches."""
    plain = [one for one in keys if not one.warm and not one.text]
    crowds = {(one.context, one.output) for one in plain if one.concurrency > 1}
    single = [one for one in plain if one.concurrency == 1]
    return tuple(one for one in single if (one.context, one.output) not in crowds) or tuple(single)


def context_name(tokens: int) -> str:
    """Format a context: 512, 2K, 16K. Even binary thousands have a K, as published."""
    return f"{tokens // 1024}K" if tokens and tokens % 1024 == 0 else str(tokens)


def length_names(outputs: Sequence[int], given: Mapping[str, int]) -> dict[int, str]:
    """Return the names of output lengths: the suite's, else short, medium and long for three, else the tokens."""
    found = sorted(set(outputs))
    if given:
        called = {tokens: word for word, tokens in given.items()}
        return {one: called.get(one, f"{one} tokens") for one in found}
    if len(found) == len(LENGTHS):
        return dict(zip(found, LENGTHS, strict=True))
    return {one: f"{one} tokens" for one in found}


def short_cell_name(key: CellKey, words: dict[int, str]) -> str:
    """Format a cell for narrow columns: `ctx=2K long`, `ctx=512 256 x4`."""
    said = [f"ctx={context_name(key.context)}", words.get(key.output, str(key.output)).removesuffix(" tokens")]
    said += [f"x{key.concurrency}"] * (key.concurrency > 1) + ["warm"] * key.warm + [key.text] * bool(key.text)
    return " ".join(said)


def cell_name(key: CellKey, words: dict[int, str] | None = None) -> str:
    """Format a cell: `ctx=2K long`, `ctx=512 256 tokens, 4 at once`, `ctx=0 long, warm`."""
    said = [f"ctx={context_name(key.context)} {(words or {}).get(key.output, f'{key.output} tokens')}"]
    if key.concurrency > 1:
        said.append(f"{key.concurrency} at once")
    if key.warm:
        said.append("warm")
    if key.text:
        said.append(key.text)
    return ", ".join(said)


SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
DASH = "-"


class Tone(StrEnum):
    """Meaning of a cell's text. A format may colour it; the words say it anyway."""

    PLAIN = ""
    BETTER = "better"
    WORSE = "worse"
    DIM = "dim"
    HEAD = "head"


@dataclass(frozen=True, slots=True)
class TableCell:
    """Cell of a table. Empty text is a blank: still to be measured."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Grid:
    """Table of cells. `widths` are minimum column widths in characters; 0 fits the text."""

    head: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    widths: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes under the table, numbered from 1. Cells refer to them with a superscript."""
    right: bool = False
    """Aligns all columns but the first to the right, where the format allows it."""


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
    """Shell command, possibly over several lines."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Separator:
    """Horizontal line between parts."""


Block = Heading | TextBlock | CommandBlock | Separator | Grid


@dataclass(frozen=True, slots=True)
class ReportPage:
    """Words and tables of a whole report."""

    blocks: tuple[Block, ...] = ()


@dataclass(slots=True)
class Footnotes:
    """Numbers reasons in the order of first use."""

    texts: list[str] = field(default_factory=list)

    def mark(self, reason: str) -> str:
        if reason not in self.texts:
            self.texts.append(reason)
        return superscript(self.texts.index(reason) + 1)


def superscript(number: int) -> str:
    return str(number).translate(SUPERSCRIPTS)


def format_value(number: float | None, digits: int = 1) -> str:
    """Format a figure; an empty string while it is not measured."""
    return "" if number is None else f"{number:.{digits}f}"


def decimals(metric: BenchMetric) -> int:
    """Return the digits after the point: milliseconds of a time, tenths of a rate."""
    return 3 if metric.unit == "s" else 1


def format_spread(figure: ArmFigure, digits: int = 1) -> str:
    """Format the median with its bounds, `65.0 [64.8, 65.2]`; a single value has no bounds."""
    if figure.median is None or figure.low is None or figure.high is None or figure.n < 2:
        return format_value(figure.median, digits)
    return f"{figure.median:.{digits}f} [{figure.low:.{digits}f}, {figure.high:.{digits}f}]"


def tokens_text(tokens: int) -> str:
    """Format tokens in the published way: 355K, 1.4M."""
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}M"
    return f"{tokens / 1000:.0f}K" if tokens >= 1000 else str(tokens)


def format_percent(share: float) -> str:
    """Format 0.74 as 74%, without a space, as the published tables write it."""
    return f"{100 * share:.0f}%"


def format_change(share: float) -> str:
    """Format 0.137 as +13.7%."""
    return f"{100 * share:+.1f}%"

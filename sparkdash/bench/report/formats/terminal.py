"""Page on the terminal, by rich: the same blocks as the Markdown. Only claimed differences have a colour."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.rule import Rule as Line
from rich.table import Table
from rich.text import Text as Words

from sparkdash.bench.report.blocks import (
    Block,
    CommandBlock,
    Grid,
    Heading,
    ReportPage,
    Separator,
    TextBlock,
    Tone,
    superscript,
)

STYLES = {Tone.PLAIN: "", Tone.BETTER: "green", Tone.WORSE: "red", Tone.DIM: "dim", Tone.HEAD: "bold"}


def print_page(page: ReportPage, console: Console) -> None:
    for block in page.blocks:
        for part in _block(block):
            console.print(part)


def _block(block: Block) -> Iterator[RenderableType]:
    match block:
        case Heading(level, text):
            yield Words(f"\n{text}", style="bold underline" if level == 1 else "bold")
        case TextBlock(lines, tone):
            yield Words("\n".join(lines), style=STYLES[tone])
        case CommandBlock(lines):
            yield Words("\n".join(f"  {line}" for line in lines), style="cyan")
        case Separator():
            yield Line(style="dim")
        case Grid():
            yield _grid(block)
            for number, note in enumerate(block.notes, 1):
                yield Words(f"{superscript(number)} {note}", style="dim")


def _grid(grid: Grid) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, head in enumerate(grid.head):
        table.add_column(head, justify="right" if grid.right and number else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Words(cell.text, style=STYLES[cell.tone]) for cell in row))
    return table

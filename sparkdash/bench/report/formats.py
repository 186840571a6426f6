"""Output formats of a report: Markdown and the terminal."""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.rule import Rule as Line
from rich.table import Table
from rich.text import Text as Words

from sparkdash.bench.report import blocks
from sparkdash.bench.report.blocks import Block, CommandBlock, Grid, Heading, TableCell, TextBlock, Tone


def render_markdown(page: blocks.ReportPage) -> str:
    parts = ["\n".join(_markdown_block(block)) for block in page.blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_block(block: Block) -> Iterator[str]:
    match block:
        case Heading(level, text):
            yield f"{'#' * level} {text.replace(chr(10), ' ')}"
        case TextBlock(lines):
            yield from _lines(lines)
        case CommandBlock(lines):
            yield from ("```bash", *lines, "```")
        case blocks.Separator():
            yield "---"
        case Grid():
            yield from _markdown_grid(block)


def _lines(lines: tuple[str, ...]) -> Iterator[str]:
    """Keep lines apart with two trailing spaces, as Markdown joins lines."""
    for line in lines[:-1]:
        yield f"{line}  "
    yield lines[-1]


def _markdown_grid(grid: Grid) -> Iterator[str]:
    widths = grid.widths or tuple(len(head) for head in grid.head)
    yield _row([_escape(head) for head in grid.head], widths)
    yield "|" + "|".join("-" * (len(head) + 2) for head in grid.head) + "|"
    for row in grid.rows:
        titles = row[0].tone is Tone.HEAD
        yield _row([_cell(cell) for cell in row], (0,) * len(row) if titles else widths)
    if grid.notes:
        yield ""
        yield from _lines(tuple(f"{blocks.superscript(number)} {note}" for number, note in enumerate(grid.notes, 1)))


def _row(cells: list[str], widths: tuple[int, ...]) -> str:
    """Join cells. A blank in a column without a width is one space, as in hand-made tables."""
    parts = [f" {text:<{width}} " if text or width else " " for text, width in zip(cells, widths, strict=True)]
    return f"|{'|'.join(parts)}|"


def _cell(cell: TableCell) -> str:
    text = _escape(cell.text)
    return f"**{text}**" if cell.tone is Tone.HEAD and text else text


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


STYLES = {Tone.PLAIN: "", Tone.BETTER: "green", Tone.WORSE: "red", Tone.DIM: "dim", Tone.HEAD: "bold"}


def print_page(page: blocks.ReportPage, console: Console) -> None:
    for block in page.blocks:
        for part in _terminal_block(block):
            console.print(part)


def _terminal_block(block: Block) -> Iterator[RenderableType]:
    match block:
        case Heading(level, text):
            yield Words(f"\n{text}", style="bold underline" if level == 1 else "bold")
        case TextBlock(lines, tone):
            yield Words("\n".join(lines), style=STYLES[tone])
        case CommandBlock(lines):
            yield Words("\n".join(f"  {line}" for line in lines), style="cyan")
        case blocks.Separator():
            yield Line(style="dim")
        case Grid():
            yield _terminal_grid(block)
            for number, note in enumerate(block.notes, 1):
                yield Words(f"{blocks.superscript(number)} {note}", style="dim")


def _terminal_grid(grid: Grid) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, head in enumerate(grid.head):
        table.add_column(head, justify="right" if grid.right and number else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Words(cell.text, style=STYLES[cell.tone]) for cell in row))
    return table

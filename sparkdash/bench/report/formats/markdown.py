"""Page as Markdown. Columns are padded to their titles, so that the plain text is readable.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.bench.report.blocks import (
    Block,
    CommandBlock,
    Grid,
    Heading,
    ReportPage,
    Separator,
    TableCell,
    TextBlock,
    Tone,
    superscript,
)


def render_markdown(page: ReportPage) -> str:
    parts = ["\n".join(_block(block)) for block in page.blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block) -> Iterator[str]:
    match block:
        case Heading(level, text):
            yield f"{'#' * level} {_inline(text)}"
        case TextBlock(lines):
            yield from _lines(lines)
        case CommandBlock(lines):
            yield from ("```bash", *lines, "```")
        case Separator():
            yield "---"
        case Grid():
            yield from _grid(block)


def _lines(lines: tuple[str, ...]) -> Iterator[str]:
    """Keep lines apart with two trailing spaces, as Markdown joins lines."""
    for line in lines[:-1]:
        yield f"{line}  "
    yield lines[-1]


def _grid(grid: Grid) -> Iterator[str]:
    widths = grid.widths or tuple(len(head) for head in grid.head)
    yield _row([_escape(head) for head in grid.head], widths)
    yield "|" + "|".join("-" * (len(head) + 2) for head in grid.head) + "|"
    for row in grid.rows:
        titles = row[0].tone is Tone.HEAD
        yield _row([_cell(cell) for cell in row], (0,) * len(row) if titles else widths)
    if grid.notes:
        yield ""
        yield from _lines(tuple(f"{superscript(number)} {note}" for number, note in enumerate(grid.notes, 1)))


def _row(cells: list[str], widths: tuple[int, ...]) -> str:
    """Join cells. A blank in a column without a width is one space, as in hand-made tables."""
    parts = [f" {text:<{width}} " if text or width else " " for text, width in zip(cells, widths, strict=True)]
    return f"|{'|'.join(parts)}|"


def _cell(cell: TableCell) -> str:
    text = _escape(cell.text)
    return f"**{text}**" if cell.tone is Tone.HEAD and text else text


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _inline(text: str) -> str:
    return text.replace("\n", " ")

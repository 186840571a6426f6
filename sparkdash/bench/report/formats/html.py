"""Report as one self-contained HTML page. Needs no network, no other file and no script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template

from sparkdash.bench.report.blocks import (
    Block,
    CommandBlock,
    Grid,
    Heading,
    ReportPage,
    Separator,
    TextBlock,
    superscript,
)
from sparkdash.bench.report.charts import Chart, draw_panel
from sparkdash.bench.report.page import SIMULATED


def render_html(page: ReportPage, charts: tuple[Chart, ...]) -> str:
    blocks = list(page.blocks)
    opening = _opening_length(blocks)
    title = next((block.text for block in blocks if isinstance(block, Heading)), "sparkdash")
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=escape(title),
        head=_blocks(blocks[:opening]),
        charts="\n".join(_figure(chart) for chart in charts),
        body=_blocks(blocks[opening:]),
    )


def _opening_length(blocks: Sequence[Block]) -> int:
    sections = (number for number, block in enumerate(blocks) if isinstance(block, Heading) and block.level > 1)
    return next(sections, len(blocks))


def _blocks(blocks: Sequence[Block]) -> str:
    return "\n".join(part for block in blocks for part in _block(block))


def _figure(chart: Chart) -> str:
    keys = "".join(f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in chart.legend)
    panels = "".join(draw_panel(panel, chart.unit) for panel in chart.panels)
    return (
        f'<figure id="{chart.name}"><h3>{escape(chart.title)}</h3><p class="legend">{keys}</p>'
        f'<div class="panels">{panels}</div><figcaption>{escape(chart.about)}</figcaption></figure>'
    )


def _block(block: Block) -> Iterator[str]:
    match block:
        case Heading(level, text):
            yield f"<h{level}>{escape(text)}</h{level}>"
        case TextBlock(lines, tone):
            kind = "simulated" if lines == (SIMULATED,) else tone.value
            yield f'<p class="{kind}">{"<br>".join(_inline(line) for line in lines)}</p>'
        case CommandBlock(lines):
            yield f"<pre>{escape(chr(10).join(lines))}</pre>"
        case Separator():
            yield "<hr>"
        case Grid():
            yield from _grid(block)


def _inline(text: str) -> str:
    """Mark text between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _grid(grid: Grid) -> Iterator[str]:
    yield f'<div class="scroll"><table class="{"right" if grid.right else ""}">'
    yield f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in grid.head)}</tr>"
    for row in grid.rows:
        cells = (f'<td class="{cell.tone.value if cell.text else "blank"}">{escape(cell.text)}</td>' for cell in row)
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table></div>"
    for number, note in enumerate(grid.notes, 1):
        yield f'<p class="notes">{superscript(number)} {escape(note)}</p>'

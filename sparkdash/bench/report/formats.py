"""Output formats of a report: Markdown, terminal, HTML, and the CSV of llama-benchy.

The HTML page is self-contained: it needs no network, no other file and no script.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib.resources import files
from statistics import fmean, pstdev
from string import Template

from rich.console import Console, RenderableType
from rich.rule import Rule as Line
from rich.table import Table
from rich.text import Text as Words

from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch, fixed_time_s, request_figure
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
from sparkdash.bench.report.charts import Chart, draw_panel
from sparkdash.bench.report.page import SIMULATED
from sparkdash.bench.results import RequestSample, Results
from sparkdash.bench.run import CellKey, Kind


def render_markdown(page: ReportPage) -> str:
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
        case Separator():
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


def render_html(page: ReportPage, charts: tuple[Chart, ...]) -> str:
    blocks = list(page.blocks)
    sections = (number for number, block in enumerate(blocks) if isinstance(block, Heading) and block.level > 1)
    opening = next(sections, len(blocks))
    title = next((block.text for block in blocks if isinstance(block, Heading)), "sparkdash")
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=escape(title),
        head=_blocks(blocks[:opening]),
        charts="\n".join(_figure(chart) for chart in charts),
        body=_blocks(blocks[opening:]),
    )


def _blocks(blocks: Sequence[Block]) -> str:
    return "\n".join(part for block in blocks for part in _html_block(block))


def _figure(chart: Chart) -> str:
    keys = "".join(f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in chart.legend)
    panels = "".join(draw_panel(panel, chart.unit) for panel in chart.panels)
    return (
        f'<figure id="{chart.name}"><h3>{escape(chart.title)}</h3><p class="legend">{keys}</p>'
        f'<div class="panels">{panels}</div><figcaption>{escape(chart.about)}</figcaption></figure>'
    )


def _html_block(block: Block) -> Iterator[str]:
    match block:
        case Heading(level, text):
            yield f"<h{level}>{escape(text)}</h{level}>"
        case TextBlock(lines, tone):
            kind = "simulated" if lines == (SIMULATED,) else tone.value
            yield f'<p class="{kind}">{"<br>".join(_html_inline(line) for line in lines)}</p>'
        case CommandBlock(lines):
            yield f"<pre>{escape(chr(10).join(lines))}</pre>"
        case Separator():
            yield "<hr>"
        case Grid():
            yield from _html_grid(block)


def _html_inline(text: str) -> str:
    """Mark text between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _html_grid(grid: Grid) -> Iterator[str]:
    yield f'<div class="scroll"><table class="{"right" if grid.right else ""}">'
    yield f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in grid.head)}</tr>"
    for row in grid.rows:
        cells = (f'<td class="{cell.tone.value if cell.text else "blank"}">{escape(cell.text)}</td>' for cell in row)
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table></div>"
    for number, note in enumerate(grid.notes, 1):
        yield f'<p class="notes">{superscript(number)} {escape(note)}</p>'


STYLES = {Tone.PLAIN: "", Tone.BETTER: "green", Tone.WORSE: "red", Tone.DIM: "dim", Tone.HEAD: "bold"}


def print_page(page: ReportPage, console: Console) -> None:
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
        case Separator():
            yield Line(style="dim")
        case Grid():
            yield _terminal_grid(block)
            for number, note in enumerate(block.notes, 1):
                yield Words(f"{superscript(number)} {note}", style="dim")


def _terminal_grid(grid: Grid) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, head in enumerate(grid.head):
        table.add_column(head, justify="right" if grid.right and number else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Words(cell.text, style=STYLES[cell.tone]) for cell in row))
    return table


MEASURES = ("t_s", "t_s_req", "peak_ts", "peak_ts_req", "ttfr", "est_ppt", "e2e_ttft")
COLUMNS = ("model", "test_name", *(f"{one}_{part}" for one in MEASURES for part in ("mean", "std")))

_MS = 1000.0


def render_csv(results: Results) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(results))
    return out.getvalue()


def _rows(results: Results) -> Iterator[dict[str, str]]:
    keys = [cell.key for cell in results.run.cells if cell.key.kind is Kind.SPEED]
    crowded = any(key.concurrency > 1 for key in keys)
    label = " (simulated)" if results.run.simulated else ""
    for arm in results.run.arms:
        fixed_s = fixed_time_s(results, arm.name)
        for key in keys:
            if samples := results.good(arm.name, key):
                together = results, arm.name, key
                for name, measures in (
                    (f"pp{key.context}", _prefill(samples, fixed_s)),
                    (f"tg{key.output}", _decode(together, samples)),
                ):
                    if any(measures.values()):
                        test = name + _suffix(key, name.startswith("tg"), crowded)
                        yield {"model": arm.name + label, "test_name": test, **_told(measures)}


def _suffix(key: CellKey, decode: bool, crowded: bool) -> str:
    depth = f" @ d{key.context}" if decode and key.context else ""
    warm = " (warm)" if key.warm else ""
    return depth + (f" (c{key.concurrency})" if crowded else "") + warm


def _prefill(samples: Sequence[RequestSample], fixed_s: float) -> dict[str, list[float]]:
    rates = _each(samples, lambda one: request_figure(one, BenchMetric.PREFILL, fixed_s))
    if not rates:
        return {}
    return {
        "t_s": rates,
        "t_s_req": rates,
        "ttfr": _each(samples, lambda one: one.ttfr_s, _MS),
        "est_ppt": _each(samples, lambda one: None if one.ttft_s is None else one.ttft_s - fixed_s, _MS),
        "e2e_ttft": _each(samples, lambda one: one.ttft_s, _MS),
    }


def _decode(where: tuple[Results, str, CellKey], samples: Sequence[RequestSample]) -> dict[str, list[float]]:
    """Return decode rates. With concurrent requests `t_s` is the aggregate."""
    rates = _each(samples, lambda one: one.decode_tok_s)
    total = rates
    if where[2].concurrency > 1:
        total = [one for ones in figures_by_launch(*where, BenchMetric.AGGREGATE).values() for one in ones.values()]
    return {"t_s": total, "t_s_req": rates}


def _each(
    samples: Sequence[RequestSample], get: Callable[[RequestSample], float | None], scale: float = 1.0
) -> list[float]:
    return [value * scale for one in samples if (value := get(one)) is not None]


def _told(measures: dict[str, list[float]]) -> dict[str, str]:
    found = {}
    for name, values in measures.items():
        if values:
            found[f"{name}_mean"] = repr(fmean(values))
            found[f"{name}_std"] = repr(pstdev(values))
    return found

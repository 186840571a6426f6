"""Tables of paired runs: ratios over the same prompts.

Owns: the rows and columns. Must not know: how prompts are paired, Markdown.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkdash.bench.judge.paired_prompts import PairedCell
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import Block, Grid, Heading, TableCell, TextBlock, Tone, format_value

HOW = (
    "Each prompt against itself: geometric mean of the ratios, 95 % interval and p of the paired t over their "
    "logarithms. They describe these prompts in these launches and claim nothing: what "
    "may be claimed rests on launches."
)
HEAD = ("Cell", "Figure", "N", "Baseline", "Arm", "Ratio", "Prompts higher", "Paired t")


def paired_tables(source: TableSource) -> Iterator[Block]:
    """Table of each arm, a row per cell and figure; nothing without enough common prompts."""
    found = source.report.pairs
    if not found:
        return
    yield Heading(2, "The same prompts on both arms")
    for arm in dict.fromkeys(one.arm for one in found):
        yield Heading(3, f"{arm} against {source.report.run.baseline}")
        yield Grid(head=HEAD, rows=tuple(_row(source, one) for one in found if one.arm == arm))
    yield TextBlock((HOW,), Tone.DIM)


def _row(source: TableSource, one: PairedCell) -> tuple[TableCell, ...]:
    texts = (
        cell_names.cell_name(one.key, source.words),
        one.metric.value,
        str(len(one.pairs)),
        format_value(one.base_median),
        format_value(one.arm_median),
        f"{one.ratio:.2f}x [{one.low:.2f}, {one.high:.2f}]",
        f"{one.higher}/{len(one.pairs)}",
        p_text(one.p_t),
    )
    return tuple(map(TableCell, texts))


def p_text(p: float) -> str:
    """Format a p value: `p = 0.012`, `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def paired_headline(cells: Sequence[PairedCell]) -> str | None:
    """Return the published headline of one arm's decode rates, `paired N=30: 32.1 TG tok/s @2K, …; 1.87-2.67x …`."""
    if not cells:
        return None
    rates = (f"{one.arm_median:.2f}{' TG tok/s' * (not at)} @{_context(one)}" for at, one in enumerate(cells))
    ratios = [one.ratio for one in cells]
    span = f"{min(ratios):.2f}-{max(ratios):.2f}x" if len(cells) > 1 else f"{ratios[0]:.2f}x"
    return f"paired N={min(len(one.pairs) for one in cells)}: {', '.join(rates)}; {span} vs the paired baseline"


def _context(one: PairedCell) -> str:
    return cell_names.context_name(one.key.context)

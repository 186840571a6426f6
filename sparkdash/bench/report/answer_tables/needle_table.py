"""Table of needles: the share found by depth and length, a row per depth, with the test against the baseline.

Owns: which figures stand side by side. Must not know: how they are judged, Markdown.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkdash.bench.judge.accuracy import AccuracyVerdict
from sparkdash.bench.judge.answer_scorer import ScoreTally
from sparkdash.bench.judge.needles import NeedleAnswers
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.blocks import DASH, Block, Grid, Heading, TableCell, TextBlock, Tone


def needle_tables(found: Sequence[NeedleAnswers]) -> Iterator[Block]:
    """Table of each arm: a row per depth, a column per length."""
    if not found:
        return
    yield Heading(2, "Needles by depth")
    for one in found:
        yield Heading(3, one.arm)
        yield _grid(one)
    how = (
        f"Found: the last line is `ANSWER: <number>` with the hidden number. {found[0].generator}, {found[0].scorer}. "
        "The words of the verdict rest on all depths together; a row alone is a hint."
    )
    yield TextBlock((how,), Tone.DIM)


def _grid(one: NeedleAnswers) -> Grid:
    lengths = sorted({length for depth in one.depths for length in depth.by_context})
    heads = (f"ctx={cell_names.context_name(length)}" for length in lengths)
    rows = [
        (
            TableCell(f"{depth.depth} %"),
            *(_share(depth.by_context.get(length)) for length in lengths),
            TableCell(depth.all.text),
            _against(depth.verdict),
        )
        for depth in one.depths
    ]
    blanks = (TableCell("", Tone.HEAD) for _ in lengths)
    rows.append((TableCell("all", Tone.HEAD), *blanks, TableCell(one.all.text, Tone.HEAD), _against(one.verdict)))
    return Grid(head=("Depth", *heads, "All lengths", "Against the baseline"), rows=tuple(rows))


def _share(found: ScoreTally | None) -> TableCell:
    return TableCell(DASH, Tone.DIM) if found is None or not found.n else TableCell(f"{found.right}/{found.n}")


def _against(verdict: AccuracyVerdict | None) -> TableCell:
    return TableCell(DASH if verdict is None else verdict.text, Tone.DIM)

"""Recommended value of a sweep, per class of text, with the reason.

Owns: the choice and its table. Must not know: how a verdict is made.
Rule: the baseline stays unless another value is shown to be faster. Of those, the one with the highest rate is chosen.
No difference between two of them is claimed: the runner-up stands beside the choice.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sparkdash.bench.judge.judgement import CellRow
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import (
    DASH,
    Block,
    Grid,
    Heading,
    TableCell,
    TextBlock,
    Tone,
    format_spread,
    format_value,
)
from sparkdash.bench.report.report import Advice, Speculation
from sparkdash.bench.run import CellKey, Run


def choose_values(run: Run, decode: Sequence[CellRow], speculation: Sequence[Speculation]) -> tuple[Advice, ...]:
    """Return a recommendation for each cell with a figure of the baseline; none without a sweep."""
    if not any(arm.parameters for arm in run.arms):
        return ()
    lengths = {(one.arm, one.key): one.acceptance_length for one in speculation}
    found = (_choose(row, run.baseline, lengths) for row in decode)
    return tuple(one for one in found if one is not None)


def _choose(row: CellRow, baseline: str, lengths: Mapping[tuple[str, CellKey], float]) -> Advice | None:
    """Return the recommendation for one cell; None without a figure of the baseline, or with no other."""
    known = sorted((one for one in row.figures if one.median is not None), key=lambda one: -(one.median or 0.0))
    base = next((one for one in known if one.arm == baseline), None)
    if base is None or len(known) < 2:
        return None
    best = next((one for one in known if one.verdict.claim is Conclusion.FASTER), base)
    return Advice(
        key=row.key,
        arm=best.arm,
        figure=best,
        acceptance_length=lengths.get((best.arm, row.key)),
        runner_up=next((one for one in known if one is not best), None),
    )


def advice_table(source: TableSource) -> Iterator[Block]:
    """Build the table of recommendations with their evidence."""
    report = source.report
    if not report.advice:
        return
    words = source.words
    yield Heading(2, "Recommended")
    said = (
        f"By decode rate; {report.run.baseline} stays where nothing is shown to be faster. "
        "That the next one is slower is not claimed."
    )
    yield TextBlock((said,), Tone.DIM)
    rows = tuple(_row(one, report.run.baseline, words) for one in report.advice)
    yield Grid(head=("Cell", "Take", "tok/s", "Against the baseline", "Acceptance length", "Next"), rows=rows)


def _row(one: Advice, baseline: str, words: dict[int, str]) -> tuple[TableCell, ...]:
    kept = one.arm == baseline
    nothing = "nothing is shown to be faster"
    following = f"{one.runner_up.arm} {format_value(one.runner_up.median)}" if one.runner_up else DASH
    return (
        TableCell(cell_names.cell_name(one.key, words)),
        TableCell(one.arm),
        TableCell(format_spread(one.figure)),
        TableCell(nothing if kept else one.figure.verdict.text, Tone.PLAIN if kept else Tone.BETTER),
        TableCell(format_value(one.acceptance_length, 2)),
        TableCell(following),
    )

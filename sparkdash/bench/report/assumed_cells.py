"""Cells whose decode rates hang on an estimate of the first chunk's tokens: marked, and compared with none.

Owns: which cells those are, and what of the decode table is taken out. Must not know: how the estimate is made.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkdash.bench.judge.judgement import ArmFigure, CellRow, overall
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.verdict import Conclusion, Verdict
from sparkdash.bench.report.report import AssumedCell, MetricTable
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey

REASON = "not comparable: the tokens of the first chunk are an estimate"


def assumed_cells(results: Results) -> tuple[AssumedCell, ...]:
    """Return the cells in which the tokens of a first chunk are an estimate."""
    found = dict.fromkeys((one.arm, one.cell) for one in results.samples if one.void is None and one.k1_assumed)
    return tuple(AssumedCell(arm=arm, key=key) for arm, key in found)


def without_assumed(results: Results, assumed: Sequence[AssumedCell]) -> Results:
    """Remove the samples whose decode rates may not be compared; of the baseline's cells, those of all arms."""
    if not assumed:
        return results
    kept = tuple(one for one in results.samples if not _hangs(assumed, results.run.baseline, one.arm, one.cell))
    return results.replace(samples=kept)


def with_assumed(
    tables: Sequence[MetricTable], decoded: Results, assumed: Sequence[AssumedCell]
) -> tuple[MetricTable, ...]:
    """Take the verdicts of those cells out of the decode table. `decoded`: the results without their samples."""
    if not assumed:
        return tuple(tables)
    return tuple(_decode_table(one, decoded, assumed) if one.metric is BenchMetric.DECODE else one for one in tables)


def _decode_table(table: MetricTable, decoded: Results, assumed: Sequence[AssumedCell]) -> MetricTable:
    rows = without_verdicts(table.rows, decoded.run.baseline, assumed)
    return table.replace(rows=rows, overall=overall(decoded, BenchMetric.DECODE))


def without_verdicts(rows: Sequence[CellRow], baseline: str, assumed: Sequence[AssumedCell]) -> tuple[CellRow, ...]:
    """Keep the figures of those cells without verdicts."""

    def judged(one: ArmFigure, key: CellKey) -> ArmFigure:
        if not _hangs(assumed, baseline, one.arm, key):
            return one
        return one.replace(verdict=Verdict(claim=Conclusion.VOID, reason=REASON))

    return tuple(row.replace(figures=tuple(judged(one, row.key) for one in row.figures)) for row in rows)


def _hangs(assumed: Sequence[AssumedCell], baseline: str, arm: str, key: CellKey) -> bool:
    return any(one.key == key and one.arm in (arm, baseline) for one in assumed)

"""JSON form of a run that has just been measured: `ab --json` and `bench --json`.

Owns: its keys. Must not know: how the run was measured; the report's own JSON is another form (bench/report).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparkdash.bench.judge import judgement
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.report import assumed_cells, void_counts
from sparkdash.bench.results import Results


def run_document(results: Results, place: Path) -> dict[str, Any]:
    """Return the figures and verdicts of a run that has just been measured, and what it lacks."""
    comparable = assumed_cells.without_assumed(results, assumed_cells.assumed_cells(results))
    return {
        "run": results.run,
        "folder": str(place),
        "missing": results.gaps(),
        "rows": {metric.value: _rows(results, metric) for metric in BenchMetric},
        "overall": judgement.overall(comparable) if len(results.run.arms) > 1 else (),
        "void": sum(one.void is not None for one in results.samples),
        "void_reasons": void_counts.count_voids(results),
        "damaged": len(results.damaged),
    }


def _rows(results: Results, metric: BenchMetric) -> tuple[judgement.CellRow, ...]:
    rows = judgement.judged_rows(results, metric)
    assumed = assumed_cells.assumed_cells(results) if metric is BenchMetric.DECODE else ()
    return assumed_cells.without_verdicts(rows, results.run.baseline, assumed)

"""Assembly of a report from the results of a run.

Owns: the parts of a report. Must not know: files, formats, how a comparison is made (judge/judgement.py).
Pure.
"""

from __future__ import annotations

from sparkdash.bench.judge.judgement import ArmFigure, CellRow, Decomposition, decompose, judged_rows, overall
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.paired_prompts import paired_cells
from sparkdash.bench.judge.quality import AnswerQuality, qualities
from sparkdash.bench.judge.verdict import Conclusion, Verdict
from sparkdash.bench.records import CellRecord
from sparkdash.bench.report.assumed_cells import assumed_cells, with_assumed, without_assumed
from sparkdash.bench.report.comparability import flags_between_runs, flags_within_run, paired_arms, refused_arms
from sparkdash.bench.report.missing_cells import estimate_missing
from sparkdash.bench.report.report import ArmReport, MetricTable, PrefixHits, Report, Speculation
from sparkdash.bench.report.sweep_advice import choose_values
from sparkdash.bench.report.void_counts import count_voids
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Kind


def assemble_report(results: Results) -> Report:
    """Build the report of a run. Arms that may not be compared have figures without verdicts."""
    run = results.run
    flags = flags_within_run(results)
    speed = [cell.key for cell in run.cells if cell.key.kind is Kind.SPEED]
    apart = refused_arms(flags)
    results_of_speed = _speed(results)
    judged = _without(results_of_speed, apart)
    assumed = assumed_cells(results_of_speed)
    decoded = without_assumed(judged, assumed)
    tables = tuple(_table(results_of_speed, judged, apart, metric, speed) for metric in BenchMetric) if speed else ()
    tables = with_assumed(tables, decoded, assumed)
    decode = next((table.rows for table in tables if table.metric is BenchMetric.DECODE), ())
    speculated = _speculation(results)
    return Report(
        run=run,
        simulated=run.simulated,
        arms=tuple(_arm(results, arm) for arm in run.arms),
        tables=tables,
        overall=overall(decoded),
        decompositions=_decompositions(decoded, speed),
        speculation=speculated,
        hits=_hits(results),
        scores=_scores(results, apart),
        advice=choose_values(run, decode, speculated),
        pairs=paired_cells(decoded, apart),
        filling=estimate_missing(results),
        voids=count_voids(results),
        damaged=len(results.damaged),
        flags=flags,
        assumed=assumed,
        late_p99_ms=_worst_lateness(results),
    )


def _worst_lateness(results: Results) -> float | None:
    known = (one.late_p99_ms for one in results.cells if one.void is None and one.late_p99_ms is not None)
    return max(known, default=None)


def add_math_scores(report: Report, questions: Report) -> Report:
    """Add the right answers of another run for the common arms; flag what may not be taken over.

    The suites differ by nature; what else would make another measurement of it (thinking, temperature, tokenizer,
    simulated or real) leaves the score out.
    """
    flags = tuple(flag for flag in flags_between_runs(report, questions) if flag.arm)
    apart = refused_arms(flags)
    pairs = [] if report.simulated != questions.simulated else paired_arms(report, questions)
    taken = [
        score.replace(arm=arm.name)
        for arm, other in pairs
        if arm.name not in apart and (score := questions.score(other.name)) is not None
    ]
    told = [flag.replace(text=f"Math of {questions.run.id}: {flag.text}") for flag in flags]
    return report.replace(scores=tuple(taken), flags=(*report.flags, *told))


def _speed(results: Results) -> Results:
    """Keep only the cells with rates and latencies."""
    cells = tuple(cell for cell in results.run.cells if cell.key.kind is Kind.SPEED)
    return results.replace(run=results.run.replace(cells=cells))


def _without(results: Results, apart: tuple[str, ...]) -> Results:
    """Remove the arms that may not be compared."""
    if not apart:
        return results
    return results.replace(samples=tuple(one for one in results.samples if one.arm not in apart))


def _table(
    results: Results, judged: Results, apart: tuple[str, ...], metric: BenchMetric, speed: list[CellKey]
) -> MetricTable:
    """Build the table of every arm's figures, with verdicts for the comparable ones."""
    wanted = {key for key in speed if metric is not BenchMetric.AGGREGATE or key.concurrency > 1}
    rows = [row for row in judged_rows(judged, metric) if row.key in wanted]
    if apart:
        measured = {row.key: row for row in judged_rows(results, metric)}
        rows = [_with_figures_apart(row, measured[row.key], apart) for row in rows]
    return MetricTable(metric=metric, rows=tuple(rows), overall=overall(judged, metric))


def _with_figures_apart(judged: CellRow, measured: CellRow, apart: tuple[str, ...]) -> CellRow:
    """Complete a row of comparable arms by the figures of the others, without verdicts."""
    kept = {one.arm: one for one in judged.figures}
    figures = tuple(_unjudged(one) if one.arm in apart else kept[one.arm] for one in measured.figures)
    return measured.replace(figures=figures)


def _unjudged(figure: ArmFigure) -> ArmFigure:
    return figure.replace(verdict=Verdict(claim=Conclusion.VOID, reason="not comparable with the baseline"))


def _arm(results: Results, arm: Arm) -> ArmReport:
    launches = [one for one in results.launches if one.arm == arm.name]
    return ArmReport(
        name=arm.name,
        profile=arm.profile,
        impossible=arm.impossible,
        launches=len({one.index for one in launches}),
        provenance=launches[-1].provenance if launches else None,
    )


def _decompositions(results: Results, speed: list[CellKey]) -> tuple[Decomposition, ...]:
    arms = [arm.name for arm in results.run.arms if arm.name != results.run.baseline]
    found = (decompose(results, arm, key) for arm in arms for key in speed)
    return tuple(one for one in found if one is not None and one.acceptance_length != 1)


def _speculation(results: Results) -> tuple[Speculation, ...]:
    keys = [planned.key for planned in _speed(results).run.cells]
    found = (_cell_speculation(results, arm.name, key) for arm in results.run.arms for key in keys)
    return tuple(one for one in found if one is not None)


def _cell_speculation(results: Results, arm: str, key: CellKey) -> Speculation | None:
    """Return the effect of speculation in a cell; None without its counters."""
    cells = _finished(results, arm, key)
    known = [one for one in cells if one.drafts and one.accepted_tokens is not None]
    drafts = sum(one.drafts or 0 for one in known)
    if not drafts:
        return None
    depth = min(len(one.accepted_at) for one in known)
    return Speculation(
        arm=arm,
        key=key,
        acceptance_length=1 + sum(one.accepted_tokens or 0 for one in known) / drafts,
        accepted_at=tuple(sum(one.accepted_at[at] for one in known) / drafts for at in range(depth)),
    )


def _hits(results: Results) -> tuple[PrefixHits, ...]:
    keys = [planned.key for planned in results.run.cells if planned.key.kind is Kind.PREFIX]
    found = (_cell_hits(results, arm.name, key) for arm in results.run.arms for key in keys)
    return tuple(one for one in found if one is not None)


def _cell_hits(results: Results, arm: str, key: CellKey) -> PrefixHits | None:
    """Return the hit rate of the prefix cache in a cell; None without its counters."""
    known = [one for one in _finished(results, arm, key) if one.prefix_hits is not None]
    queries = sum(one.prefix_queries or 0 for one in known)
    if not queries:
        return None
    return PrefixHits(arm=arm, key=key, rate=sum(one.prefix_hits or 0 for one in known) / queries)


def _scores(results: Results, apart: tuple[str, ...]) -> tuple[AnswerQuality, ...]:
    return tuple(one.replace(verdict=None) if one.arm in apart else one for one in qualities(results))


def _finished(results: Results, arm: str, key: CellKey) -> list[CellRecord]:
    return [one for one in results.cells if one.arm == arm and one.key == key and one.void is None]

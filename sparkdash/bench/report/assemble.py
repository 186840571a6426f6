"""Assembly of a report from the results of a run. Pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import median

from sparkdash.bench.judge.accuracy import AnswerQuality, qualities
from sparkdash.bench.judge.judgement import CellRow, Decomposition, decompose, judged_rows, overall
from sparkdash.bench.judge.metrics import BenchMetric, main_metric, metrics_of
from sparkdash.bench.judge.verdict import Conclusion, Verdict
from sparkdash.bench.report.comparability import flags_between_runs, flags_within_run, paired_arms, refused_arms
from sparkdash.bench.report.report import (
    Advice,
    ArmReport,
    AssumedCell,
    MetricTable,
    MissingCells,
    PrefixHits,
    Report,
    Speculation,
    VoidCount,
)
from sparkdash.bench.results import CellRecord, Gap, Results
from sparkdash.bench.run import Arm, CellKey, Kind, PlannedCell, Run


def assumed_cells(results: Results) -> tuple[AssumedCell, ...]:
    """Return the cells in which the tokens of a first chunk are an estimate."""
    found = dict.fromkeys((one.arm, one.cell) for one in results.samples if one.void is None and one.k1_assumed)
    return tuple(AssumedCell(arm=arm, key=key) for arm, key in found)


def without_assumed(results: Results, assumed: Sequence[AssumedCell]) -> Results:
    """Remove the samples whose decode rates may not be compared; of the baseline's cells, those of all arms."""
    base = results.run.baseline
    kept = tuple(one for one in results.samples if not _hangs(assumed, base, one.arm, one.cell))
    return results.replace(samples=kept) if assumed else results


def _hangs(assumed: Sequence[AssumedCell], baseline: str, arm: str, key: CellKey) -> bool:
    return any(one.key == key and one.arm in (arm, baseline) for one in assumed)


def estimate_missing(results: Results) -> tuple[MissingCells, ...]:
    by_arm: dict[str, list[Gap]] = defaultdict(list)
    for gap in results.gaps():
        by_arm[gap.arm].append(gap)
    places: dict[str, list[int]] = defaultdict(list)
    for index, slot in enumerate(results.run.order):
        places[slot.arm].append(index)
    return tuple(
        MissingCells(
            arm=arm.name,
            cells=len(by_arm[arm.name]),
            of=sum(len(results.run.planned(index)) for index in places[arm.name]),
            launches=len(places[arm.name]),
            seconds=_missing_seconds(results, by_arm[arm.name]),
            command=resume_command(results.run.id),
        )
        for arm in results.run.arms
        if arm.impossible is None and by_arm[arm.name]
    )


def estimate_blank(merged: Results, arm: str, blank: Sequence[PlannedCell], command: str) -> MissingCells:
    """Return an estimate for the cells of merged runs that no run fills, in one launch."""
    gaps = [Gap(launch=0, arm=arm, cell=cell.key, reps=tuple(range(cell.reps))) for cell in blank]
    seconds = _missing_seconds(merged, gaps)
    return MissingCells(arm=arm, cells=len(blank), of=len(merged.run.cells), seconds=seconds, command=command)


def resume_command(run: str) -> str:
    return f"sparkdash bench resume {run}"


def _paces(results: Results) -> dict[CellKey, float]:
    """Return the seconds per repetition of each cell that some launch finished."""
    reps = {cell.key: cell.reps for cell in results.run.cells}
    spent: dict[CellKey, list[float]] = defaultdict(list)
    for one in results.cells:
        if one.void is None and one.key in reps:
            spent[one.key].append((one.ended_at - one.started_at).total_seconds() / reps[one.key])
    return {key: median(times) for key, times in spent.items()}


def _missing_seconds(results: Results, gaps: list[Gap]) -> float | None:
    """Return the seconds; None where a cell or the start of an engine was never timed."""
    paces = _paces(results)
    startup = [one.provenance.startup_s for one in results.launches if one.provenance.startup_s is not None]
    if not startup or any(gap.cell not in paces for gap in gaps):
        return None
    return median(startup) * len({gap.launch for gap in gaps}) + sum(paces[gap.cell] * len(gap.reps) for gap in gaps)


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

    def why_not(metric: BenchMetric, arm: str, key: CellKey) -> str | None:
        if arm in apart:
            return "not comparable with the baseline"
        is_unsure = metric is BenchMetric.DECODE and _hangs(assumed, run.baseline, arm, key)
        return "not comparable: the tokens of the first chunk are an estimate" if is_unsure else None

    tables = tuple(
        _table(results_of_speed, decoded if metric is BenchMetric.DECODE else judged, metric, why_not)
        for metric in (metrics_of(run.suite) if speed else ())
    )
    judges = main_metric(run.suite)
    main = next((table for table in tables if table.metric is judges), None)
    speculated = _speculation(results)
    return Report(
        run=run,
        simulated=run.simulated,
        arms=tuple(_arm(results, arm) for arm in run.arms),
        tables=tables,
        overall=overall(decoded if judges is BenchMetric.DECODE else judged, judges),
        decompositions=_decompositions(decoded, speed),
        speculation=speculated,
        hits=_hits(results),
        scores=_scores(results, apart),
        advice=choose_values(run, main, speculated) if main else (),
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


def _scores(results: Results, apart: tuple[str, ...]) -> tuple[AnswerQuality, ...]:
    return tuple(one.replace(verdict=None) if one.arm in apart else one for one in qualities(results))


def _without(results: Results, apart: tuple[str, ...]) -> Results:
    if not apart:
        return results
    return results.replace(samples=tuple(one for one in results.samples if one.arm not in apart))


def add_math_scores(report: Report, questions: Report) -> Report:
    """Add the right answers of another run for the common arms; flag what may not be taken over.

    The suites differ by nature; what else would make another measurement of it (thinking, temperature, tokenizer,
    simulated or real) leaves the score out.
    """
    flags = flags_between_runs(report, questions)
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
    cells = tuple(cell for cell in results.run.cells if cell.key.kind is Kind.SPEED)
    return results.replace(run=results.run.replace(cells=cells))


def _table(
    results: Results, judged: Results, metric: BenchMetric, why_not: Callable[[BenchMetric, str, CellKey], str | None]
) -> MetricTable:
    """Build a metric's table. Figures that may not be compared have a reason in the place of their verdict."""
    rows = {row.key: row for row in judged_rows(judged, metric)}
    whole = rows.values() if judged is results else judged_rows(results, metric)
    of_one = metric is not BenchMetric.AGGREGATE or metric is main_metric(results.run.suite)
    shown = (row for row in whole if of_one or row.key.concurrency > 1)
    return MetricTable(
        metric=metric,
        rows=tuple(_judged_row(row, rows[row.key], partial(why_not, metric)) for row in shown),
        overall=overall(judged, metric),
    )


def _judged_row(whole: CellRow, judged: CellRow, why_not: Callable[[str, CellKey], str | None]) -> CellRow:
    """Return the figures of the whole run with the verdicts of its comparable part."""
    kept = {one.arm: one for one in judged.figures}
    figures = (
        one.replace(verdict=Verdict(claim=Conclusion.VOID, reason=why))
        if (why := why_not(one.arm, whole.key))
        else kept[one.arm]
        for one in whole.figures
    )
    return whole.replace(figures=tuple(figures))


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


def _finished(results: Results, arm: str, key: CellKey) -> list[CellRecord]:
    return [one for one in results.cells if one.arm == arm and one.key == key and one.void is None]


def choose_values(run: Run, main: MetricTable, speculation: Sequence[Speculation]) -> tuple[Advice, ...]:
    """Return a recommendation by the suite's main figure for each cell of the baseline; none without a sweep."""
    if not any(arm.parameters for arm in run.arms):
        return ()
    lengths = {(one.arm, one.key): one.acceptance_length for one in speculation}
    found = (_choose(row, run.baseline, lengths, -1 if main.metric.less_is_better else 1) for row in main.rows)
    return tuple(one for one in found if one is not None)


def _choose(row: CellRow, baseline: str, lengths: Mapping[tuple[str, CellKey], float], better: int) -> Advice | None:
    """Return the recommendation for one cell; None without a figure of the baseline, or with no other."""
    known = sorted(
        (one for one in row.figures if one.median is not None), key=lambda one: -better * (one.median or 0.0)
    )
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


_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")


def count_voids(results: Results) -> tuple[VoidCount, ...]:
    """Count the void samples of each arm by reason, most frequent first."""
    found = ((one.arm, one.void) for one in results.samples if one.void is not None)
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for arm, reason in found:
        alike = arm, _FIGURE.sub("#", reason)
        counts[alike] += 1
        first.setdefault(alike, reason)
    return tuple(VoidCount(arm=alike[0], reason=first[alike], samples=count) for alike, count in counts.most_common())


def void_text(voids: Iterable[VoidCount]) -> str:
    """Return the reasons with their counts: `2 samples do not count: 2 the client was 7.7 ms late`."""
    reasons: Counter[str] = Counter()
    for one in voids:
        reasons[one.reason] += one.samples
    total = sum(reasons.values())
    if not total:
        return ""
    verb = "1 sample does not count" if total == 1 else f"{total} samples do not count"
    return f"{verb}: {'; '.join(f'{count} {reason}' for reason, count in reasons.most_common())}"


def damage_text(damaged: int) -> str:
    """Return the words for damaged lines; empty without any."""
    if not damaged:
        return ""
    lines = "1 line of records.jsonl is" if damaged == 1 else f"{damaged} lines of records.jsonl are"
    return f"{lines} damaged and not counted; what they held is missing"

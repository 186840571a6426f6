"""Page of a report: its tables in order, its conclusion in a sentence. Pure."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparkdash.bench.judge.accuracy import AccuracyGate
from sparkdash.bench.judge.judgement import Overall
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.verdict import Conclusion, Verdict
from sparkdash.bench.plan import sweep
from sparkdash.bench.report import arm_tables, blocks, comparison_tables
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.assemble import damage_text
from sparkdash.bench.report.blocks import Block, CommandBlock, Grid, Heading, ReportPage, TableCell, TextBlock, Tone
from sparkdash.bench.report.filled_tables import filled_tables
from sparkdash.bench.report.layout import Layout, derive_layout
from sparkdash.bench.report.report import MissingCells, Report
from sparkdash.bench.run import Arm
from sparkdash.domain.profile import Published
from sparkdash.units import counted, duration

MULTIPLES = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}
ROUGHLY = 0.03
"""Relative distance from a multiple that is still called so."""


def conclusion(report: Report, metric: BenchMetric) -> str | None:
    """Return the sentence; None where one arm was measured, or merged runs allow no claim."""
    base = report.run.baseline
    others = [arm.name for arm in report.arms if arm.name != base and not arm.impossible]
    if not others or report.sources or not report.planned():
        return None
    if report.advice:
        return _of_sweep(report)
    if len(others) == 1:
        return _of_pair(report, metric, others[0])
    overall = {one.arm: one.verdict for one in _overall(report, metric)}
    faster = [arm for arm in others if arm in overall and overall[arm].claim is Conclusion.FASTER]
    if faster:
        best = max(faster, key=lambda arm: _ratio(overall[arm], metric))
        speed = _speed(overall[best], metric)
        return f"{best} gains most over {base}: it is {speed} over all cells. Keep it."
    return f"None of the {len(others)} others is shown to be faster than {base} over all cells. Keep {base}."


def _of_sweep(report: Report) -> str:
    takes: dict[str, list[str]] = {}
    for one in report.advice:
        name = one.key.text or blocks.short_cell_name(one.key, {})
        takes.setdefault(one.arm, []).append(name)
    if len(takes) == 1:
        return f"Keep {next(iter(takes))}: no other value is shown to be faster in any cell."
    told = ", ".join(f"{arm} for {' and '.join(names)}" for arm, names in takes.items())
    return f"The best value depends on the cell: {told}."


def _of_pair(report: Report, metric: BenchMetric, arm: str) -> str:
    base = report.run.baseline
    if (flag := next((one for one in report.flags if one.refuses and one.arm == arm), None)) is not None:
        return f"{arm} and {base} cannot be compared. {flag.text}"
    verdicts = _verdicts(report, metric, arm)
    if not verdicts:
        return f"No cell of both {arm} and {base} was measured yet, so nothing can be said."
    return _of_verdicts(report, metric, arm, verdicts)


def _of_verdicts(report: Report, metric: BenchMetric, arm: str, verdicts: Sequence[Verdict]) -> str:
    base = report.run.baseline
    over_all = next((one.verdict for one in _overall(report, metric) if one.arm == arm), verdicts[0])
    judged = [one for one in verdicts if one.claim is not Conclusion.SCREEN]
    if not judged or over_all.claim is Conclusion.SCREEN:
        return _hint(arm, over_all, metric)
    cells = "judged cells" if len(judged) < len(report.planned()) else "cells"
    text, kept = _found(arm, base, judged, over_all, _speed(over_all, metric), cells)
    if kept is None:
        return f"{text}. {_advice(judged)}."
    if kept != arm:
        return f"{text}. Keep {kept}."
    return f"{text}, but fewer of its answers are right. Keep {base}." if _fails(report, arm) else f"{text}. Keep it."


def _fails(report: Report, arm: str) -> bool:
    score = report.score(arm)
    return bool(score and score.verdict and score.verdict.gate is AccuracyGate.FAIL)


def _hint(arm: str, over_all: Verdict, metric: BenchMetric) -> str:
    few = over_all.reason or "one launch of each"
    more = "Take a larger suite, such as `--suite seeds`" if "prompt" in few else "Measure with `--mode standard`"
    return f"{arm} looks {_speed(over_all, metric)}, which {few} cannot show. {more}."


def _advice(verdicts: Sequence[Verdict]) -> str:
    if any(one.claim.told for one in verdicts):
        return "Choose by the cells that you use"
    return "Measure longer, with `--mode careful --reps 20`, or keep either"


def _where(count: int, cells: str) -> str:
    return {1: f"in the one {cells[:-1]}", 2: f"in both {cells}"}.get(count, f"in all {count} {cells}")


def _found(
    arm: str, base: str, verdicts: Sequence[Verdict], over_all: Verdict, speed: str, cells: str
) -> tuple[str, str | None]:
    """Return what was found, and the arm to keep; None where neither is. `cells` says which cells were counted."""
    counts, count = Counter(one.claim for one in verdicts), len(verdicts)
    where = _where(count, cells)
    faster, slower = counts[Conclusion.FASTER], counts[Conclusion.SLOWER]
    kept = base if slower else arm
    if count in (faster, slower):
        return f"{arm} is {speed} {where}", kept
    if faster and slower:
        return f"{arm} is faster in {faster} and slower in {slower} of {count} {cells}", None
    if faster or slower:
        word, other = ("slower", "faster") if slower else ("faster", "slower")
        return f"{arm} is {word} in {faster or slower} of {count} {cells} and {other} in none", kept
    if over_all.claim.told:
        kept = arm if over_all.claim is Conclusion.FASTER else base
        return f"{arm} is {speed} over all cells, which no single cell shows", kept
    if counts[Conclusion.NO_DIFFERENCE] == count:
        return f"{arm} is as fast as {base} {where}, as far as this can tell", "either"
    return f"{arm} is not shown to differ from {base}", None


def _verdicts(report: Report, metric: BenchMetric, arm: str) -> list[Verdict]:
    figures = (report.figure(metric, arm, key) for key in report.planned())
    return [one.verdict for one in figures if one and one.verdict.delta is not None]


def _overall(report: Report, metric: BenchMetric) -> Sequence[Overall]:
    return next((table.overall for table in report.tables if table.metric is metric), ())


def _ratio(verdict: Verdict, metric: BenchMetric) -> float:
    """Return how many times as fast the arm is."""
    ratio = 1 + (verdict.delta or 0.0)
    return 1 / ratio if metric.less_is_better else ratio


def _speed(verdict: Verdict, metric: BenchMetric) -> str:
    return speed_text(_ratio(verdict, metric), verdict.delta)


def speed_text(ratio: float, change: float | None = None) -> str:
    """Return "twice as fast", "2.6 times as fast", "13 % faster", "half as fast", "7 % slower".

    `change` is the share that a cell tells, of seconds where the metric is a time; None: the ratio's.
    """
    if ratio > 1.9:
        near = MULTIPLES.get(round(ratio)) if abs(ratio / round(ratio) - 1) < ROUGHLY else None
        return f"{near or f'{ratio:.1f} times'} as fast"
    if abs(ratio / 0.5 - 1) < ROUGHLY:
        return "half as fast"
    share = abs(100 * (ratio - 1 if change is None else change))
    return f"{share:.{int(share < 10)}f} % {'faster' if ratio >= 1 else 'slower'}"


def missing_text(one: MissingCells) -> str:
    """Return the number of the arm's blank cells, and the time and the command to fill them."""
    over = f" over {one.launches} launches" if one.launches > 1 else ""
    missing = f"Missing {one.cells} of {one.of} cells{over}"
    if not one.command:
        return f"{missing}. Suite or profile have changed since, so nothing fills them; measure anew."
    time = "time not known yet" if one.seconds is None else f"about {duration(one.seconds)}"
    return f"{missing}, {time}: `{one.command}`"


SIMULATED = "SIMULATED: at least one engine was a simulated one. No figure here was measured on a real model."


@dataclass(frozen=True, slots=True)
class LocalProfiles:
    """Facts of the profiles on this box, by name."""

    cannot_run: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, Sequence[Published]] = field(default_factory=dict)
    links: Mapping[str, float] = field(default_factory=dict)
    """Measured Gb/s of the link between two boxes, by queue pairs and channel."""


def report_page(
    report: Report,
    layout: Layout | None = None,
    local: LocalProfiles | None = None,
    *,
    bounds: bool = False,
    starts: bool = True,
) -> ReportPage:
    """Build the blocks; with `bounds` a matrix's figures have intervals, without `starts` no start commands follow."""
    layout = layout or derive_layout(report)
    local = local or LocalProfiles()
    source = TableSource(report, BenchMetric(layout.metric), local.cannot_run, bounds)
    how = _launches(report) if starts else ()
    said = conclusion(report, source.metric)
    last = (TextBlock((said,)),) if said else ()
    title, *rest = _blocks(source, layout, local)
    return ReportPage((title, *last, *rest, *how, *last))


def _blocks(source: TableSource, layout: Layout, local: LocalProfiles) -> Iterator[Block]:
    report = source.report
    yield Heading(1, layout.title)
    if report.simulated:
        yield TextBlock((SIMULATED,), Tone.WORSE)
    yield TextBlock((*layout.facts, *_measured(source)))
    for flag in report.flags:
        yield TextBlock((f"{'Not compared' if flag.refuses else 'Mind'} ({flag.arm}): {flag.text}",), Tone.WORSE)
    if layout.tables:
        yield from filled_tables(source, layout.tables, local.published, local.links)
        return
    yield from _commands(source)
    for arm in report.arms:
        yield from _arm(source, arm.name)
    if len(report.arms) > 1:
        if source.compared is not None:
            yield blocks.Separator()
        yield from comparison_tables.recipe_table(source)
    yield from comparison_tables.advice_table(source)
    yield from comparison_tables.evidence_tables(source)
    yield from comparison_tables.latency_table(source)
    yield from comparison_tables.speculation_tables(source)
    yield from comparison_tables.score_tables(source)
    yield from _void_tables(report)


def _measured(source: TableSource) -> tuple[str, ...]:
    run, metric = source.report.run, source.metric
    launches = counted(len(run.order), "launch")
    one_run = f"Run: {run.id}, {run.created_at:%Y-%m-%d}, {run.mode.value}: {launches}, through {run.target}"
    host = (
        ", ".join(one for one in (run.host.name, run.host.gpu, run.host.driver, run.host.kernel) if one) or blocks.DASH
    )
    return (
        f"Platform: {host}",
        f"Benchmark: sparkdash bench, suite {run.suite} {run.suite_version} ({run.suite_hash[:12]}), seed {run.seed}",
        *_merged(source.report),
        *(() if source.report.sources else (one_run,)),
        f"{metric.unit} is {metric.value}: {metric.definition}",
        *_client(source.report),
    )


def _merged(report: Report) -> Iterator[str]:
    runs: dict[str, list[str]] = {}
    for one in report.sources:
        runs.setdefault(one.run, []).append(f"{one.at:%Y-%m-%d}")
    if runs:
        what = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        yield f"Merged: {what}; of each cell the newest that counts, named under its table"
        for run in sorted(runs):
            yield f"Run: {run}, {min(runs[run])}, {counted(len(runs[run]), 'cell')}"
        yield "Nights differ: a difference between runs is shown in brackets and never claimed"


def _client(report: Report) -> tuple[str, ...]:
    if report.late_p99_ms is None:
        return ()
    return (f"Client: 99 % of what came was read within {report.late_p99_ms:.2f} ms of its arrival, in the worst cell",)


def _commands(source: TableSource) -> Iterator[Block]:
    run = source.report.run
    arms = [arm.profile for arm in source.report.arms if not arm.impossible]
    yield Heading(2, "Benchmark Commands")
    if source.report.sources:
        one_by_one = (f"sparkdash bench {arm} --suite {source.suite} --seed {run.seed}" for arm in arms)
        yield CommandBlock((*one_by_one, f"sparkdash bench show --matrix --suite {run.suite}"))
        return
    reps = "" if run.reps is None else f" --reps {run.reps}"
    more = f"{reps} --seed {run.seed}"
    if len(arms) == 1:
        yield CommandBlock((f"sparkdash bench {arms[0]} --suite {source.suite}{more}",))
        return
    first = f"sparkdash ab {_sweep(run.arms) or ' '.join(arms)} \\"
    yield CommandBlock((first, f"  --suite {source.suite} --mode {run.mode.value}{more}"))


def _sweep(arms: Sequence[Arm]) -> str | None:
    """Return the sweep's arguments, as its profiles are deleted once it is complete."""
    asked = sweep.sweep_of(arms)
    return f"{asked[0]} --sweep {asked[1]}" if asked else None


def _arm(source: TableSource, arm: str) -> Iterator[Block]:
    yield blocks.Separator()
    yield Heading(2, arm)
    if source.grid_keys:
        yield arm_tables.context_matrix(source, arm)
    yield from arm_tables.text_class_table(source, arm)
    yield from arm_tables.batch_table(source, arm)
    yield from arm_tables.prefix_cache_line(source, arm)
    if source.asks_math:
        yield TextBlock((f"Math: {arm_tables.math_share(source, arm) or '?%'}",))
    yield from (TextBlock((missing_text(one),), Tone.DIM) for one in source.report.filling if one.arm == arm)


def _launches(report: Report) -> Iterator[Block]:
    known = [arm for arm in report.arms if arm.provenance and arm.provenance.argv]
    if not known:
        return
    yield blocks.Separator()
    yield Heading(2, "Start commands")
    for arm in known:
        yield Heading(3, arm.name)
        if arm.provenance and arm.provenance.kv_dtype:
            yield TextBlock((f"KV cache: {arm.provenance.kv_dtype}, by the engine's own word",))
        yield CommandBlock((shlex.join(arm.provenance.argv if arm.provenance else ()),))


def _void_tables(report: Report) -> Iterator[Block]:
    if not report.voids and not report.damaged:
        return
    yield Heading(2, "What does not count")
    if report.damaged:
        yield TextBlock((f"{damage_text(report.damaged)}.",), Tone.WORSE)
    if report.voids:
        rows = tuple((TableCell(one.arm), TableCell(str(one.samples)), TableCell(one.reason)) for one in report.voids)
        yield Grid(head=("Arm", "Samples", "Reason"), rows=rows)

"""Page of a report: the order of its tables and the description of the measurement. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.plan import sweep
from sparkdash.bench.report import arm_tables, charts, comparison_tables, published
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.assemble import damage_text
from sparkdash.bench.report.blocks import (
    DASH,
    Block,
    CommandBlock,
    Grid,
    Heading,
    ReportPage,
    Separator,
    TableCell,
    TextBlock,
    Tone,
)
from sparkdash.bench.report.charts import Chart
from sparkdash.bench.report.conclusion import conclusion
from sparkdash.bench.report.filled_tables import filled_tables
from sparkdash.bench.report.layout import Build, BuildGroup, Layout, derive_layout, filled_layout
from sparkdash.bench.report.report import MissingCells, Report
from sparkdash.bench.run import Arm
from sparkdash.domain.profile import Published
from sparkdash.domain.weights import WeightFacts
from sparkdash.units import duration


def missing_note(source: TableSource, arm: str) -> TextBlock | None:
    """Return the number of the arm's blank cells, the time and the command to fill them."""
    if source.impossible(arm):
        return None
    name = source.arm(arm)
    if name is not None:
        found = next((one for one in source.report.filling if one.arm == name), None)
        return TextBlock((_missing(found),), Tone.DIM) if found else None
    cells = len(source.report.run.cells)
    command = f"sparkdash bench {arm} --suite {source.suite}"
    text = _missing(MissingCells(arm=arm, cells=cells, of=cells, command=command))
    if not source.report.sources:
        text += "; `sparkdash bench show --matrix` then shows both runs in one report"
    return TextBlock((text,), Tone.DIM)


def _missing(one: MissingCells) -> str:
    time = "time not known yet" if one.seconds is None else f"about {duration(one.seconds)}"
    over = f" over {one.launches} launches" if one.launches > 1 else ""
    missing = f"Missing {one.cells} of {one.of} cells{over}"
    if not one.command:
        return f"{missing}. The suite has changed since, so nothing fills them; measure anew."
    return f"{missing}, {time}: `{one.command}`"


SIMULATED = "SIMULATED: at least one engine was a simulated one. No figure here was measured on a real model."


@dataclass(frozen=True, slots=True)
class LocalProfiles:
    """Facts of the profiles on this box, by name."""

    cannot_run: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, Sequence[Published]] = field(default_factory=dict)
    weights: Mapping[str, Mapping[str, WeightFacts]] = field(default_factory=dict)
    """Weights by profile and role (target, drafter), where the headers could be read."""
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
    """Build the report as blocks.
    `bounds` writes each figure of the matrix with its interval. Without `starts` the start commands are left out.
    """
    layout = filled_layout(layout, report) if layout else derive_layout(report)
    local = local or LocalProfiles()
    source = TableSource(report, BenchMetric(layout.metric), local.cannot_run, bounds)
    how = _launches(report, layout) if starts else ()
    said = conclusion(report, source.metric)
    last = (TextBlock((said,)),) if said else ()
    title, *rest = _blocks(source, layout, local)
    return ReportPage((title, *last, *rest, *how, *last))


def report_charts(report: Report, layout: Layout | None = None) -> tuple[Chart, ...]:
    if layout and layout.tables:  # of several suites and models, which share no axis
        return ()
    layout = filled_layout(layout, report) if layout else derive_layout(report)
    return charts.draw_charts(TableSource(report, BenchMetric(layout.metric), {}))


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
    for group in layout.groups:
        yield from _group(source, layout, group)
    if len(report.arms) > 1:
        if source.compared is not None:
            yield Separator()
        if len(layout.modes) > 1 or not layout.recipe:  # the recipe has the same figures where there is one mode
            yield from comparison_tables.comparison_table(source, layout)
            yield from comparison_tables.delta_table(source, layout)
        if layout.recipe:
            yield from comparison_tables.recipe_table(source, layout)
    yield from comparison_tables.advice_table(source)
    yield from comparison_tables.evidence_tables(source)
    yield from comparison_tables.latency_table(source)
    yield from comparison_tables.speculation_tables(source)
    yield from arm_tables.kv_table(source)
    yield from arm_tables.ceiling_table(source, arm_tables.cell_ceilings(source, local.weights))
    yield from comparison_tables.score_tables(source)
    yield from _void_tables(report)
    yield from published.published_tables(source, _comparable(report, local))


def _comparable(report: Report, local: LocalProfiles) -> Mapping[str, Sequence[Published]]:
    """Return the published figures, none for a simulated run."""
    return {} if report.simulated else local.published


def _measured(source: TableSource) -> tuple[str, ...]:
    run, metric = source.report.run, source.metric
    when = f"{run.created_at:%Y-%m-%d}"
    launches = f"{len(run.order)} launches" if len(run.order) != 1 else "1 launch"
    host = ", ".join(one for one in (run.host.name, run.host.gpu, run.host.driver, run.host.kernel) if one) or DASH
    return (
        f"Platform: {host}",
        f"Benchmark: sparkdash bench, suite {run.suite} {run.suite_version} ({run.suite_hash[:12]}), seed {run.seed}",
        *((f"Corpus: {run.corpus.text}",) if run.corpus else ()),
        *_merged(source.report),
        *(
            ()
            if source.report.sources
            else (f"Run: {run.id}, {when}, {run.mode.value}: {launches}, through {run.target}",)
        ),
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
            yield f"Run: {run}, {min(runs[run])}, {len(runs[run])} cells"
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
        url = "--url " * (run.target == "url")
        one_by_one = (
            f"sparkdash bench {url}{shlex.quote(arm)} --suite {source.suite} --seed {run.seed}" for arm in arms
        )
        yield CommandBlock((*one_by_one, f"sparkdash bench show --matrix --suite {run.suite}"))
        return
    reps = "" if run.reps is None else f" --reps {run.reps}"
    more = f"{reps} --seed {run.seed}" + " --direct" * (run.target == "direct")
    if len(arms) == 1:
        what = f"--url {shlex.quote(arms[0])}" if run.target == "url" else arms[0]
        model = f" --model {shlex.quote(run.model)}" if run.model is not None else ""
        yield CommandBlock((f"sparkdash bench {what}{model} --suite {source.suite}{more}",))
        return
    yield CommandBlock(
        (
            f"sparkdash ab {_sweep(run.arms) or ' '.join(arms)} \\",
            f"  --suite {source.suite} --mode {run.mode.value}{more}",
        )
    )


def _sweep(arms: Sequence[Arm]) -> str | None:
    """Return the sweep's arguments, as its profiles are deleted once it is complete."""
    asked = sweep.sweep_of(arms)
    return f"{asked[0]} --sweep {asked[1]}" if asked else None


def _group(source: TableSource, layout: Layout, group: BuildGroup) -> Iterator[Block]:
    yield Separator()
    yield Heading(2, group.title)
    if group.facts:
        yield TextBlock(("As published, not as seen here:", *group.facts), Tone.DIM)
    for build in group.builds:
        if build.combined:
            yield Heading(3, build.combined)
            yield arm_tables.combined_matrix(source, build, layout.modes)
            for _, arm in build.shown(layout.modes):
                yield from _rest(source, arm)
        else:
            yield from _tables(source, layout, build, group.title)


def _tables(source: TableSource, layout: Layout, build: Build, above: str) -> Iterator[Block]:
    """Build a table for each mode, titled unless the group has the same title."""
    for mode, arm in build.shown(layout.modes):
        title = f"{build.title} {mode.title}" if len(build.arms) > 1 else build.title
        if title != above:
            yield Heading(3, title)
        if source.grid_keys:
            yield arm_tables.context_matrix(source, arm, warm=layout.warm)
        yield from arm_tables.text_class_table(source, arm)
        yield from arm_tables.batch_table(source, arm)
        yield from arm_tables.reasoning_table(source, arm)
        yield from arm_tables.prefix_cache_line(source, arm)
        if layout.math or source.asks_math:
            yield TextBlock((f"Math: {arm_tables.math_share(source, arm)}",))
        yield from _rest(source, arm)


def _rest(source: TableSource, arm: str) -> Iterator[Block]:
    if (note := missing_note(source, arm)) is not None:
        yield note


def _launches(report: Report, layout: Layout) -> Iterator[Block]:
    known = [arm for arm in report.arms if arm.provenance and arm.provenance.argv]
    if not known:
        return
    yield Separator()
    yield Heading(2, layout.words.starts)
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

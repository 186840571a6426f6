"""Tables of all arms together: each over the baseline, and verdicts with their evidence. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from sparkdash.bench.judge.accuracy import AccuracyGate, AnswerQuality
from sparkdash.bench.judge.judgement import Decomposition, Overall
from sparkdash.bench.judge.metrics import BenchMetric, main_metric
from sparkdash.bench.judge.verdict import Conclusion, Verdict
from sparkdash.bench.plan.math_questions import Stratum
from sparkdash.bench.report import blocks
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import Block, Footnotes, Grid, Heading, TableCell, TextBlock, Tone
from sparkdash.bench.report.report import Advice, Speculation
from sparkdash.bench.run import CellKey

TONES = {Conclusion.FASTER: Tone.BETTER, Conclusion.SLOWER: Tone.WORSE}
FALSE_DISCOVERIES = "Of the differences that this report claims, one in twenty may be false (false discovery rate 5 %)."
HINTS = (Conclusion.NO_DIFFERENCE, Conclusion.INCONCLUSIVE, Conclusion.SCREEN)


def recipe_table(source: TableSource) -> Iterator[Block]:
    """Table of arms as steps over the baseline: figure, gain, image."""
    key = source.compared
    if key is None:
        return
    notes = Footnotes()
    rows = []
    for arm in source.report.arms:
        image = arm.provenance.image if arm.provenance else None
        figure, gain = source.cell(arm.name, key, notes), _delta(source, arm.name, key, notes)
        rows.append((TableCell(arm.name), figure, gain, TableCell(image or "—")))
    head = ("Build", source.metric.unit, "Gain", "Image")
    yield Heading(2, f"Comparison ({_where(source, key)})")
    yield Grid(head=head, rows=tuple(rows), widths=(0,) * 4, notes=tuple(notes.texts))
    yield from _bracket_note(rows)


def latency_table(source: TableSource) -> Iterator[Block]:
    """Table of the waits for the first token and between tokens, in the compared cell."""
    if (key := source.compared) is None:
        return
    notes = Footnotes()
    metrics = (BenchMetric.TTFT, BenchMetric.ITL_P99)
    rows = tuple(
        (TableCell(arm.name), *(source.cell(arm.name, key, notes, metric) for metric in metrics))
        for arm in source.report.arms
    )
    yield Heading(2, f"Latency ({_where(source, key)})")
    yield Grid(head=("Arm", "TTFT s", "ITL p99 s"), rows=rows, notes=tuple(notes.texts), right=True)


def evidence_tables(source: TableSource) -> Iterator[Block]:
    """Tables per arm: both figures of every cell with bounds and verdict, the geometric mean, and the extremes."""
    report = source.report
    others = [arm.name for arm in report.arms if arm.name != report.run.baseline and not arm.impossible]
    if not others:
        return
    yield Heading(2, "What can be claimed")
    if not report.planned():
        yield TextBlock(("No cell of this suite measures speed, so no difference in speed is judged.",), Tone.DIM)
        return
    for arm in others:
        yield from _evidence(source, arm)
    figures = (source.figure(arm, key) for arm in others for key in report.planned())
    if sum(one.verdict.claim.told for one in figures if one) > 1:
        yield TextBlock((FALSE_DISCOVERIES,), Tone.DIM)


def _evidence(source: TableSource, arm: str) -> Iterator[Block]:
    report = source.report
    yield Heading(3, f"{arm} against {report.run.baseline}")
    rows = tuple(_pair(source, arm, key, source.words) for key in report.planned())
    yield Grid(head=("Cell", "Baseline", "Arm", "Verdict"), rows=rows)
    over_all = next((table.overall for table in report.tables if table.metric is source.metric), ())
    total = next((one for one in over_all if one.arm == arm), None)
    if total is not None and total.cells > 1:
        yield TextBlock((_overall(total, source),))


def speculation_tables(source: TableSource) -> Iterator[Block]:
    """Tables of tok/s = acceptance length x steps/s, which separate the text's effect from the engine's."""
    report = source.report
    parts = {(one.arm, one.key): one for one in report.decompositions}
    arms = list(dict.fromkeys(one.arm for one in report.speculation))
    if arms:
        yield Heading(2, "What speculation did")
        yield TextBlock(("tok/s = acceptance length x steps/s, both by the engine's own counters.",), Tone.DIM)
    for arm in arms:
        mine = (one for one in report.speculation if one.arm == arm)
        yield Heading(3, arm)
        yield Grid(
            head=("Cell", "Acceptance length", "Accepted by position", "Steps/s", "Steps/s against the baseline"),
            rows=tuple(_speculation_row(one, parts.get((arm, one.key)), source.words) for one in mine),
        )


def _speculation_row(one: Speculation, part: Decomposition | None, words: dict[int, str]) -> tuple[TableCell, ...]:
    by_place = " ".join(f"{share:.2f}" for share in one.accepted_at) or blocks.DASH
    steps = blocks.format_value(part.steps_per_s if part else None) or blocks.DASH
    told = _moved(part.steps_s) if part else TableCell(blocks.DASH, Tone.DIM)
    cells = (blocks.cell_name(one.key, words), f"{one.acceptance_length:.2f}", by_place, steps)
    return (*(TableCell(text) for text in cells), told)


def _moved(verdict: Verdict) -> TableCell:
    if verdict.delta is None:
        return TableCell(blocks.DASH, Tone.DIM)
    bounds = ""
    if verdict.low is not None and verdict.high is not None:
        bounds = f" [{blocks.format_change(verdict.low)}, {blocks.format_change(verdict.high)}]"
    return TableCell(blocks.format_change(verdict.delta) + bounds, TONES.get(verdict.claim, Tone.DIM))


def score_tables(source: TableSource) -> Iterator[Block]:
    """Tables of right answers with Wilson's interval by stratum."""
    found = source.report.scores
    if found:
        yield Heading(2, "Math")
        strata = [kind for kind in Stratum if any(kind in one.strata for one in found)]
        head = ("Arm", "Right", *strata, "Lenient", "Truncated", "Unparsed", "Against the baseline")
        yield Grid(head=head, rows=tuple(_score(one, strata) for one in found))
        said = f"Only a last line `ANSWER: <integer>` is right. {found[0].generator}, {found[0].scorer}."
        yield TextBlock((said,), Tone.DIM)


def _score(one: AnswerQuality, strata: list[Stratum]) -> tuple[TableCell, ...]:
    parts = (one.strata.get(kind) for kind in strata)
    odd = (one.all.lenient, one.all.truncated, one.all.unparsed)
    tones = {AccuracyGate.PASS: Tone.BETTER, AccuracyGate.FAIL: Tone.WORSE}
    text, tone = (one.verdict.text, tones.get(one.verdict.gate, Tone.DIM)) if one.verdict else (blocks.DASH, Tone.DIM)
    shares = (TableCell(f"{part.right}/{part.n}" if part else blocks.DASH) for part in parts)
    return (
        TableCell(one.arm),
        TableCell(one.all.text),
        *shares,
        *(TableCell(str(count)) for count in odd),
        TableCell(text, tone),
    )


def _pair(source: TableSource, arm: str, key: CellKey, words: dict[int, str]) -> tuple[TableCell, ...]:
    ours, theirs = source.figure(arm, key), source.figure(source.report.run.baseline, key)
    verdict = ours.verdict if ours else Verdict(claim=Conclusion.MISSING)
    return (
        TableCell(blocks.cell_name(key, words)),
        TableCell(blocks.format_spread(theirs, blocks.decimals(source.metric)) if theirs else ""),
        TableCell(blocks.format_spread(ours, blocks.decimals(source.metric)) if ours else ""),
        TableCell(verdict.text, TONES.get(verdict.claim, Tone.DIM)),
    )


def _overall(one: Overall, source: TableSource) -> str:
    said = f"All {one.cells} cells ({source.metric.value}, geometric mean): {one.verdict.text}"
    for word, key, delta in (("worst", one.worst, one.worst_delta), ("best", one.best, one.best_delta)):
        if key is not None and delta is not None:
            figure, text = source.figure(one.arm, key), blocks.format_change(delta)
            text = text if figure and figure.verdict.claim.told else f"({text})"
            said += f"; {word} {blocks.cell_name(key, source.words)} {text}"
    return said + "."


def _bracket_note(rows: Iterable[Sequence[TableCell]]) -> Iterator[Block]:
    if any(cell.text.startswith("(") for row in rows for cell in row):
        yield TextBlock(("In brackets: a difference that these measurements cannot claim.",), Tone.DIM)


def _delta(source: TableSource, arm: str, key: CellKey, notes: Footnotes) -> TableCell:
    if arm == source.report.run.baseline:
        return TableCell("—", Tone.DIM)
    figure = source.figure(arm, key)
    if figure is None or figure.median is None:
        return source.cell(arm, key, notes)
    verdict = figure.verdict
    if verdict.delta is None:
        return TableCell(blocks.DASH, Tone.DIM)
    text = blocks.format_change(verdict.delta)
    if verdict.claim in HINTS:
        return TableCell(f"({text})", Tone.DIM)
    return TableCell(text, TONES.get(verdict.claim, Tone.PLAIN))


def _where(source: TableSource, key: CellKey) -> str:
    return blocks.cell_name(key, source.words)


_BY = {
    BenchMetric.DECODE: "decode rate",
    BenchMetric.AGGREGATE: "the tokens of all users a second",
    BenchMetric.LOAD: "the time of a load",
}


def advice_table(source: TableSource) -> Iterator[Block]:
    report = source.report
    if not report.advice:
        return
    words, metric = source.words, main_metric(report.run.suite)
    yield Heading(2, "Recommended")
    said = f"By {_BY[metric]}; {report.run.baseline} stays where nothing is shown to be faster."
    yield TextBlock((f"{said} That the next one is slower is not claimed.",), Tone.DIM)
    rows = tuple(_advice_row(one, report.run.baseline, words) for one in report.advice)
    yield Grid(head=("Cell", "Take", metric.unit, "Against the baseline", "Acceptance length", "Next"), rows=rows)


def _advice_row(one: Advice, baseline: str, words: dict[int, str]) -> tuple[TableCell, ...]:
    kept = one.arm == baseline
    nothing = "nothing is shown to be faster"
    following = f"{one.runner_up.arm} {blocks.format_value(one.runner_up.median)}" if one.runner_up else blocks.DASH
    return (
        TableCell(blocks.cell_name(one.key, words)),
        TableCell(one.arm),
        TableCell(blocks.format_spread(one.figure)),
        TableCell(nothing if kept else one.figure.verdict.text, Tone.PLAIN if kept else Tone.BETTER),
        TableCell(blocks.format_value(one.acceptance_length, 2)),
        TableCell(following),
    )

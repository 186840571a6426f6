"""Conclusion of a comparison in one plain sentence: the finding, and which arm to keep. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sparkdash.bench.judge.accuracy import AccuracyGate
from sparkdash.bench.judge.judgement import Overall
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.verdict import Conclusion, Verdict
from sparkdash.bench.report import blocks
from sparkdash.bench.report.report import Report

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
        return (
            f"{best} gains most over {base}: it is {speed_text(_ratio(overall[best], metric))} over all cells. Keep it."
        )
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
    over_all = next((one.verdict for one in _overall(report, metric) if one.arm == arm), verdicts[0])
    judged = [one for one in verdicts if one.claim is not Conclusion.SCREEN]
    if not judged or over_all.claim is Conclusion.SCREEN:
        return _hint(arm, over_all, metric)
    where = _where(len(judged), " judged" * (len(judged) < len(report.planned())))
    text, kept = _found(arm, base, judged, over_all, speed_text(_ratio(over_all, metric)), where)
    score = report.score(arm)
    if kept == arm and score and score.verdict and score.verdict.gate is AccuracyGate.FAIL:
        return f"{text}, but fewer of its answers are right. Keep {base}."
    return f"{text}. {'Keep it' if kept == arm else f'Keep {kept}' if kept else ADVICE[_is_open(judged)]}."


def _hint(arm: str, over_all: Verdict, metric: BenchMetric) -> str:
    few = over_all.reason or "one launch of each"
    more = "Take a larger suite, such as `--suite seeds`" if "prompt" in few else "Measure with `--mode standard`"
    return f"{arm} looks {speed_text(_ratio(over_all, metric))}, which {few} cannot show. {more}."


ADVICE = {
    True: "Measure longer, with `--mode careful --reps 20`, or keep either",
    False: "Choose by the cells that you use",
}


def _is_open(verdicts: Sequence[Verdict]) -> bool:
    return not any(one.claim.told for one in verdicts)


def _where(count: int, judged: str) -> str:
    return {1: f"in the one{judged} cell", 2: f"in both{judged} cells"}.get(count, f"in all {count}{judged} cells")


def _found(
    arm: str, base: str, verdicts: Sequence[Verdict], over_all: Verdict, speed: str, where: str
) -> tuple[str, str | None]:
    """Return what was found, and the arm to keep; None where neither is."""
    counts, count = Counter(one.claim for one in verdicts), len(verdicts)
    faster, slower = counts[Conclusion.FASTER], counts[Conclusion.SLOWER]
    kept = base if slower else arm
    if count in (faster, slower):
        return f"{arm} is {speed} {where}", kept
    if faster and slower:
        return f"{arm} is faster in {faster} and slower in {slower} of {count} cells", None
    if faster or slower:
        word, other = ("slower", "faster") if slower else ("faster", "slower")
        return f"{arm} is {word} in {faster or slower} of {count} cells and {other} in none", kept
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


def speed_text(ratio: float) -> str:
    """Return "twice as fast", "2.6 times as fast", "13 % faster", "half as fast", "7 % slower"."""
    if ratio > 1.9:
        near = MULTIPLES.get(round(ratio)) if abs(ratio / round(ratio) - 1) < ROUGHLY else None
        return f"{near or f'{ratio:.1f} times'} as fast"
    if abs(ratio / 0.5 - 1) < ROUGHLY:
        return "half as fast"
    share = abs(100 * (ratio - 1))
    return f"{share:.{int(share < 10)}f} % {'faster' if ratio >= 1 else 'slower'}"

"""Answers to the questions for hidden facts, by depth and length, arm by arm against the baseline.

Owns: which answers count, their tallies by depth. Must not know: how a number is read (answer_scorer.py).
Rule: all arms are judged on the same questions, by McNemar's exact test. Each question counts once, by its first
answer.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkdash.bench.judge.accuracy import AccuracyVerdict, compare_accuracy
from sparkdash.bench.judge.answer_scorer import SCORER, Outcome, ScoreTally, score, tally
from sparkdash.bench.plan.needles import DEPTHS, GENERATOR, needle
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Kind
from sparkdash.domain.base import Frozen


class DepthAnswers(Frozen):
    """Answers of one arm for needles at one depth."""

    depth: int
    """Per cent of the text before the needle."""
    all: ScoreTally
    by_context: dict[int, ScoreTally]
    """Tallies by the prompt's tokens."""
    verdict: AccuracyVerdict | None = None
    """Against the baseline; None for the baseline, and without answers to compare."""


class NeedleAnswers(Frozen):
    """Answers of one arm for needles at all depths."""

    arm: str
    all: ScoreTally
    depths: tuple[DepthAnswers, ...]
    verdict: AccuracyVerdict | None = None
    generator: str = GENERATOR
    scorer: str = SCORER


Items = Mapping[tuple[CellKey, int], Outcome]
"""Outcomes by cell and question number."""


def needle_answers(results: Results, apart: Sequence[str] = ()) -> tuple[NeedleAnswers, ...]:
    """Judge every arm that answered; arms of `apart` have no verdict."""
    found = {arm.name: needle_outcomes(results, arm.name) for arm in results.run.arms}
    base = results.run.baseline
    return tuple(
        _arm(arm, items, None if arm == base or arm in apart or not found[base] else found[base])
        for arm, items in found.items()
        if items
    )


def needle_outcomes(results: Results, arm: str) -> dict[tuple[CellKey, int], Outcome]:
    """Judge each question by its first answer that counts."""
    judged: dict[tuple[CellKey, int], Outcome] = {}
    for planned in results.run.cells:
        if planned.key.kind is Kind.NEEDLE:
            for one in results.good(arm, planned.key):
                if one.text is not None and (planned.key, one.rep) not in judged:
                    hidden = needle(results.run.seed, planned.key.context, one.rep)
                    judged[planned.key, one.rep] = score(hidden.number, one.text, one.finish_reason)
    return judged


def _arm(arm: str, items: Items, base: Items | None) -> NeedleAnswers:
    depths = [_depth(depth, items, base) for depth in DEPTHS]
    return NeedleAnswers(
        arm=arm,
        all=tally(items.values()),
        depths=tuple(one for one in depths if one.all.n),
        verdict=_compared(items, base),
    )


def _depth(depth: int, items: Items, base: Items | None) -> DepthAnswers:
    mine, theirs = _at(depth, items), None if base is None else _at(depth, base)
    lengths = sorted({key.context for key, _ in mine})
    return DepthAnswers(
        depth=depth,
        all=tally(mine.values()),
        by_context={
            length: tally(one for (key, _), one in mine.items() if key.context == length) for length in lengths
        },
        verdict=_compared(mine, theirs),
    )


def _at(depth: int, items: Items) -> Items:
    return {(key, item): one for (key, item), one in items.items() if DEPTHS[item % len(DEPTHS)] == depth}


def _compared(items: Items, base: Items | None) -> AccuracyVerdict | None:
    return None if base is None else compare_accuracy(_right(base), _right(items))


def _right(items: Items) -> dict[str, bool]:
    return {f"{key.context} {item}": one is Outcome.RIGHT for (key, item), one in items.items()}

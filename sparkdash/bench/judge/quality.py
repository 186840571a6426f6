"""Quality of a run's answers, arm by arm against the baseline.

Owns: which answers of a run are judged. Must not know: how an answer is judged (answer_scorer.py), how two arms compare
(accuracy.py).
Rule: answers are judged anew from their text, so that runs of older scorers can be compared.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkdash.bench.judge.accuracy import AccuracyVerdict, compare_accuracy
from sparkdash.bench.judge.answer_scorer import SCORER, Outcome, ScoreTally, score, tally
from sparkdash.bench.plan.math_questions import GENERATOR, Stratum, number_of, question
from sparkdash.bench.records import RequestSample
from sparkdash.bench.results import Results
from sparkdash.bench.run import Kind
from sparkdash.domain.base import Frozen


class AnswerQuality(Frozen):
    """Answers of one arm to the arithmetic questions."""

    arm: str
    all: ScoreTally
    strata: dict[Stratum, ScoreTally]
    """Tallies of the strata that were asked."""
    verdict: AccuracyVerdict | None = None
    """Against the baseline; None for the baseline, and while one of the two has no answers."""
    generator: str = GENERATOR
    scorer: str = SCORER

    @property
    def share(self) -> float:
        """Return the share of right answers, 0..1."""
        return self.all.right / self.all.n


def qualities(results: Results) -> tuple[AnswerQuality, ...]:
    """Judge every arm that answered. Each question counts once, by its first answer."""
    outcomes = {arm.name: _outcomes(results, arm.name) for arm in results.run.arms}
    right = {
        arm: {str(number): one is Outcome.RIGHT for number, one in found.items()} for arm, found in outcomes.items()
    }
    base = results.run.baseline
    return tuple(
        AnswerQuality(
            arm=arm,
            all=tally(told.values()),
            strata=_tally_strata(told, results.run.seed),
            verdict=None if arm == base or not outcomes[base] else compare_accuracy(right[base], right[arm]),
        )
        for arm, told in outcomes.items()
        if told
    )


def _tally_strata(outcomes: Mapping[int, Outcome], seed: int) -> dict[Stratum, ScoreTally]:
    """Tally the outcomes of each stratum that was asked, by question number."""
    seen = {number: question(seed, number).stratum for number in outcomes}
    return {
        kind: tally(one for number, one in outcomes.items() if seen[number] is kind)
        for kind in Stratum
        if kind in seen.values()
    }


def _outcomes(results: Results, arm: str) -> dict[int, Outcome]:
    """Return outcomes by question number."""
    judged: dict[int, Outcome] = {}
    for one in _answered(results, arm, Kind.MATH):
        number = number_of(one.prompt_id)
        if number is not None and number not in judged:
            answer = question(results.run.seed, number).answer
            judged[number] = score(answer, one.text or "", one.finish_reason)
    return judged


def _answered(results: Results, arm: str, kind: Kind) -> Iterator[RequestSample]:
    """Yield the samples of that kind whose text was kept, in the order of measuring."""
    for planned in results.run.cells:
        if planned.key.kind is kind:
            yield from (one for one in results.good(arm, planned.key) if one.text is not None)

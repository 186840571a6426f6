"""Right answers to arithmetic: the scorer, an arm's shares, and the test of one arm against another. Pure."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import chain

from sparkdash.bench.judge.stats import Paired, mcnemar, paired_difference, wilson
from sparkdash.bench.plan.math_questions import GENERATOR, Stratum, number_of, question
from sparkdash.bench.results import Results
from sparkdash.bench.run import Kind
from sparkdash.domain.base import Frozen

SCORER = "sparkdash-math-scorer/v2"

_NUMERAL = r"[-\u2212+]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?"
_ANSWER = re.compile(rf"[*_`\s]*ANSWER:[*_`$\s]*({_NUMERAL})[*_`$.\s]*")
"""Markdown's emphasis and a full stop around it are no other form."""
_NUMBER = re.compile(rf"(?<![0-9A-Za-z.,])({_NUMERAL})")


class Outcome(StrEnum):
    """Outcome of one question."""

    RIGHT = "right"
    """The last `ANSWER:` line holds the right number: the only outcome that counts."""
    LENIENT = "lenient"
    """No such line, but the last number of the text is right."""
    WRONG = "wrong"
    TRUNCATED = "truncated"
    """The length limit came before any `ANSWER:` line."""
    UNPARSED = "unparsed"


def score(answer: int, text: str, finish_reason: str | None = None) -> Outcome:
    """Judge an answer's visible text: nothing before the last `</think>`, nor after a `<think>` that is not closed."""
    visible = text.rpartition("</think>")[2].partition("<think>")[0]
    lines = [found for line in visible.splitlines() if (found := _ANSWER.fullmatch(line.strip()))]
    if lines:
        return Outcome.RIGHT if _value(lines[-1].group(1)) == answer else Outcome.WRONG
    if finish_reason == "length":
        return Outcome.TRUNCATED
    numbers = _NUMBER.findall(visible)
    if not numbers:
        return Outcome.UNPARSED
    return Outcome.LENIENT if _value(numbers[-1]) == answer else Outcome.WRONG


class ScoreTally(Frozen):
    """Number of questions with each outcome, of n."""

    n: int
    right: int
    lenient: int
    wrong: int
    truncated: int
    unparsed: int

    @property
    def share(self) -> float | None:
        """Right / all, 0..1; None of nothing."""
        return self.right / self.n if self.n else None

    @property
    def text(self) -> str:
        """`37/50 = 74 % [60, 84]`, with Wilson's 95 % interval."""
        if not self.n:
            return "-"
        low, high = wilson(self.right, self.n)
        return f"{self.right}/{self.n} = {100 * self.right / self.n:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def tally(outcomes: Iterable[Outcome]) -> ScoreTally:
    found = list(outcomes)
    return ScoreTally(n=len(found), **{one.value: found.count(one) for one in Outcome})


def _value(numeral: str) -> float:
    return float(numeral.replace(",", "").replace("\u2212", "-"))


MARGIN = 0.05
"""An arm that may be more than five points worse does not pass."""


class AccuracyGate(StrEnum):
    """Result of the accuracy test of an arm against the baseline."""

    PASS = "pass"  # noqa: S105 - no password
    """The 95 % interval of the difference lies above minus the margin: it is not worse by as much as that."""
    FAIL = "fail"
    """The interval lies below minus the margin: it is worse by more."""
    NO_EVIDENCE = "no evidence"
    """Neither: more questions would tell; or A has so few right that none could be worse by the margin."""


class AccuracyVerdict(Frozen):
    """Arm B against arm A on the items that both answered. Shares 0..1."""

    gate: AccuracyGate
    n: int
    difference: float | None = None
    """Share right in B minus share right in A."""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """Exact two-sided p value of McNemar's test."""
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """`pass -1.0 points [-3.6, 1.5], 3 lost, 1 won, p = 0.62`."""
        if self.difference is None or self.low is None or self.high is None or self.p is None:
            return f"{self.gate} (no common items)"
        return (
            f"{self.gate} {100 * self.difference:+.1f} points [{100 * self.low:.1f}, {100 * self.high:.1f}], "
            f"{len(self.only_a)} lost, {len(self.only_b)} won, p = {self.p:.2g}"
        )


def compare_accuracy(a: Mapping[str, bool], b: Mapping[str, bool], margin: float = MARGIN) -> AccuracyVerdict:
    """Test whether B is non-inferior to A. Both map each item to whether its answer was right."""
    shared = [item for item in a if item in b]
    if not shared:
        return AccuracyVerdict(gate=AccuracyGate.NO_EVIDENCE, n=0)
    only_a = tuple(item for item in shared if a[item] and not b[item])
    only_b = tuple(item for item in shared if b[item] and not a[item])
    both = sum(a[item] and b[item] for item in shared)
    pairs = Paired(both, len(only_a), len(only_b), len(shared) - both - len(only_a) - len(only_b))
    low, high = paired_difference(pairs)
    return AccuracyVerdict(
        gate=AccuracyGate.NO_EVIDENCE if both + len(only_a) <= margin * pairs.n else _gate(low, high, margin),
        n=pairs.n,
        difference=pairs.difference,
        low=low,
        high=high,
        p=mcnemar(pairs),
        only_a=only_a,
        only_b=only_b,
    )


def _gate(low: float, high: float, margin: float) -> AccuracyGate:
    if low > -margin:
        return AccuracyGate.PASS
    return AccuracyGate.FAIL if high < -margin else AccuracyGate.NO_EVIDENCE


class AnswerQuality(Frozen):
    """Answers of one arm to the arithmetic questions."""

    arm: str
    all: ScoreTally
    strata: dict[Stratum, ScoreTally]
    verdict: AccuracyVerdict | None = None
    """Against the baseline; None for the baseline, and while one of the two has no answers."""
    generator: str = GENERATOR
    scorer: str = SCORER

    @property
    def share(self) -> float:
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
    seen = {number: question(seed, number).stratum for number in outcomes}
    return {
        kind: tally(one for number, one in outcomes.items() if seen[number] is kind)
        for kind in Stratum
        if kind in seen.values()
    }


def _outcomes(results: Results, arm: str) -> dict[int, Outcome]:
    judged: dict[int, Outcome] = {}
    keys = [cell.key for cell in results.run.cells if cell.key.kind is Kind.MATH]
    for one in chain.from_iterable(results.good(arm, key) for key in keys):
        number = number_of(one.prompt_id)
        if one.text is not None and number is not None and number not in judged:
            judged[number] = score(question(results.run.seed, number).answer, one.text, one.finish_reason)
    return judged

"""Quality of the arms' answers to the owner's own requests and to needles, against the baseline's.

Owns: which answers count as right, the tests between two arms, the verdict in words. Must not know: how an answer is
checked (tool_calls.py).
Rule 1: a request counts for tools when it demands a call, or when any arm called one. All arms are judged on the same
requests.
Rule 2: a loss or gain is claimed only when McNemar's exact p holds for all tests of the run together (Bonferroni).
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sparkdash.bench.judge.accuracy import AccuracyGate, AccuracyVerdict, compare_accuracy
from sparkdash.bench.judge.answer_scorer import Outcome
from sparkdash.bench.judge.judgement import Overall
from sparkdash.bench.judge.needles import needle_outcomes
from sparkdash.bench.judge.stats import ALPHA
from sparkdash.bench.judge.tool_calls import AnswerCheck, JsonOutcome, ToolOutcome
from sparkdash.bench.records import RequestSample
from sparkdash.bench.results import Results
from sparkdash.bench.run import Kind
from sparkdash.domain.base import Frozen


class ValidShare(Frozen):
    """Valid answers of one arm, of those that can be judged."""

    n: int
    valid: int
    faults: dict[str, int] = {}
    """Number of invalid answers by their first fault."""
    verdict: AccuracyVerdict | None = None
    """Against the baseline; None for the baseline."""
    level: float = ALPHA
    """Level of p at which a difference is claimed."""

    @property
    def share(self) -> float | None:
        """Valid / all, 0..1; None of nothing."""
        return self.valid / self.n if self.n else None

    @property
    def is_lost(self) -> bool:
        """Whether a loss against the baseline is shown."""
        return self._is_shown(-1)

    @property
    def is_gained(self) -> bool:
        """Whether a gain over the baseline is shown."""
        return self._is_shown(1)

    def _is_shown(self, sign: int) -> bool:
        found = self.verdict
        known = found is not None and found.p is not None and found.difference is not None
        return known and found.p <= self.level and sign * found.difference > 0  # type: ignore[operator,union-attr]


class EqualAnswers(Frozen):
    """Answers of one arm that equal the baseline's; for the baseline those of its own second launch."""

    n: int
    identical: int
    """Byte by byte, reasoning included."""
    agreeing: int
    """Same tools with the same arguments, same JSON value, or same words."""
    deciding: int
    """Same tools in the same order; no tool is a decision too."""


class OwnWork(Frozen):
    """Answers of one arm to the owner's own requests, and to needles."""

    arm: str
    asked: int
    """Requests with an answer that counts; 0: the suite only hides needles."""
    tools: ValidShare | None = None
    """Valid tool calls; None: no request of the suite led to one."""
    json_answers: ValidShare | None = None
    """Valid JSON answers; None: no request wants JSON."""
    needles: ValidShare | None = None
    """Needles found; None: the suite hides none."""
    equal: EqualAnswers | None = None
    verdict: str | None = None
    """`+12.0 % decode, tool calls 96.0 -> 91.2 %: loses tools`; None for the baseline."""


def judge_own_work(results: Results, apart: Sequence[str] = (), decode: Iterable[Overall] = ()) -> tuple[OwnWork, ...]:
    """Judge every arm with answers; arms of `apart` have no verdict. `decode`: verdicts over all speed cells."""
    answers = {arm.name: _answers(results, arm.name) for arm in results.run.arms}
    found_needles = {arm: {str(item): one for item, one in needle_outcomes(results, arm).items()} for arm in answers}
    judged_arms = [arm for arm, told in answers.items() if told or found_needles[arm]]
    first = {arm: {item: found[0] for item, found in answers[arm].items()} for arm in judged_arms}
    checks = {arm: {item: one.check for item, one in told.items() if one.check} for arm, told in first.items()}
    base = results.run.baseline
    compared = [arm for arm in first if arm != base and arm not in apart] if base in first else []
    tools, structured = _tool_items(checks), _json_items(checks)
    kinds = any(tools.values()) + any(structured.values()) + any(found_needles.values())
    level = ALPHA / max(1, len(compared) * kinds)
    speeds = {one.arm: one for one in decode}
    found = []
    for arm, told in first.items():
        judged = base if arm in compared else None
        one = OwnWork(
            arm=arm,
            asked=len(told),
            tools=_share(tools, arm, judged, level),
            json_answers=_share(structured, arm, judged, level),
            needles=_share(found_needles, arm, judged, level),
            equal=_equality(answers[arm], first[base] if judged else None, is_base=arm == base),
        )
        found.append(one)
    head = next((one for one in found if one.arm == base), None)
    return tuple(
        one.replace(verdict=_verdict_text(head, one, speeds.get(one.arm))) if head and one.arm in compared else one
        for one in found
    )


def _equality(
    mine: Mapping[str, Sequence[RequestSample]], base: Mapping[str, RequestSample] | None, *, is_base: bool
) -> EqualAnswers | None:
    """Compare an arm's first answers with the baseline's, the baseline's with its own second ones."""
    if not mine:
        return None
    if is_base:
        return _repeated(mine)
    return None if base is None else _equal(base, {item: found[0] for item, found in mine.items()})


def _answers(results: Results, arm: str) -> dict[str, list[RequestSample]]:
    """Return the answers of each request, in the order of measuring."""
    found: dict[str, list[RequestSample]] = {}
    for planned in results.run.cells:
        if planned.key.kind is Kind.WORK:
            for one in results.good(arm, planned.key):
                found.setdefault(one.prompt_id, []).append(one)
    return found


GOOD = ("valid", "right")
"""Outcomes of answers without a fault."""
Outcomes = Mapping[str, Mapping[str, ToolOutcome | JsonOutcome | Outcome]]
"""Outcomes by arm and request."""


def _tool_items(checks: Mapping[str, Mapping[str, AnswerCheck]]) -> Outcomes:
    """Return the outcomes of the requests that count for tools."""
    counted = {
        item
        for told in checks.values()
        for item, one in told.items()
        if one.required or one.tools not in (None, ToolOutcome.NONE)
    }
    return {
        arm: {item: one.tools or ToolOutcome.NONE for item, one in told.items() if item in counted}
        for arm, told in checks.items()
    }


def _json_items(checks: Mapping[str, Mapping[str, AnswerCheck]]) -> Outcomes:
    return {
        arm: {item: one.json_answer for item, one in told.items() if one.json_answer is not None}
        for arm, told in checks.items()
    }


def _share(outcomes: Outcomes, arm: str, base: str | None, level: float) -> ValidShare | None:
    """Return the arm's share of valid answers; None without any to judge."""
    mine = outcomes[arm]
    if not mine:
        return None
    faults = Counter(str(one) for one in mine.values() if one.value not in GOOD)
    verdict = None if base is None else compare_accuracy(_valid(outcomes[base]), _valid(mine))
    return ValidShare(
        n=len(mine), valid=len(mine) - faults.total(), faults=dict(faults.most_common()), verdict=verdict, level=level
    )


def _valid(outcomes: Mapping[str, ToolOutcome | JsonOutcome | Outcome]) -> dict[str, bool]:
    return {item: one.value in GOOD for item, one in outcomes.items()}


def _equal(base: Mapping[str, RequestSample], arm: Mapping[str, RequestSample]) -> EqualAnswers:
    pairs = [(base[item], one) for item, one in arm.items() if item in base]
    checks = [(one.check, other.check) for one, other in pairs if one.check and other.check]
    return EqualAnswers(
        n=len(pairs),
        identical=sum(one.output_sha256 == other.output_sha256 for one, other in pairs),
        agreeing=sum(one.answer_sha256 == other.answer_sha256 for one, other in checks),
        deciding=sum(one.decision_sha256 == other.decision_sha256 for one, other in checks),
    )


def _repeated(answers: Mapping[str, Sequence[RequestSample]]) -> EqualAnswers | None:
    """Compare an arm's first and second answers to the same request; None when none was repeated."""
    twice = {item: found for item, found in answers.items() if len(found) > 1}
    if not twice:
        return None
    return _equal({item: found[0] for item, found in twice.items()}, {item: found[1] for item, found in twice.items()})


def _verdict_text(base: OwnWork, arm: OwnWork, speed: Overall | None) -> str:
    """Return the verdict in words: speed, shares, and what is lost or gained."""
    parts = (
        ("tool calls", "tools", base.tools, arm.tools),
        ("JSON", "JSON", base.json_answers, arm.json_answers),
        ("needles", "needles", base.needles, arm.needles),
    )
    judged = [(name, noun, one, other) for name, noun, one, other in parts if one is not None and other is not None]
    figures = [_speed_text(speed)] + [_shares_text(name, one, other) for name, _, one, other in judged]
    told = [_claim(noun, other) for _, noun, _, other in judged]
    said = ", ".join(one for one in figures if one)
    if told:
        return f"{said}: {', '.join(told)}"
    same = arm.equal
    agree = "no tools or JSON asked" if same is None else f"{same.agreeing}/{same.n} answers agree"
    return f"{said}: {agree}" if said else agree


def _speed_text(speed: Overall | None) -> str | None:
    if speed is None or speed.verdict.delta is None:
        return None
    change = f"{100 * speed.verdict.delta:+.1f} % decode"
    return change if speed.verdict.claim.told else f"{change} (not claimed)"


def _shares_text(name: str, base: ValidShare, arm: ValidShare) -> str:
    return f"{name} {100 * (base.share or 0.0):.1f} -> {100 * (arm.share or 0.0):.1f} %"


def _claim(noun: str, found: ValidShare) -> str:
    if found.is_lost:
        return f"loses {noun}"
    if found.is_gained:
        return f"gains {noun}"
    if found.verdict is not None and found.verdict.gate is AccuracyGate.PASS:
        return f"keeps {noun}"
    return f"too few requests to judge {noun}"

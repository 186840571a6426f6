"""The judge of what was answered to an arithmetic question.

Owns: scorer v2. v1 took an answer inside of an unclosed `<think>` for a visible one. Must not know: engines, files,
how questions are made (math_questions.py), how two arms compare.
Rule: a published version never changes; a correction becomes v2. Results carry the version.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from sparkdash.bench.judge.stats import wilson
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
    """The text contains no number."""


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
    """Count the outcomes."""
    found = list(outcomes)
    return ScoreTally(n=len(found), **{one.value: found.count(one) for one in Outcome})


def _value(numeral: str) -> float:
    return float(numeral.replace(",", "").replace("\u2212", "-"))

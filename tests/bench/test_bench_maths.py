"""The questions are the same everywhere and for ever; the judge is strict, and says what it was lenient about."""

from __future__ import annotations

import hashlib
import re
from collections import Counter

import pytest

from sparkdash.bench.judge.accuracy import SCORER, Outcome, score, tally
from sparkdash.bench.plan.math_questions import GENERATOR, Stratum, question, questions

GOLDEN = {
    42: "d12b3f5a21aa644126d630eb97944f8dd4302518111c567128a3b19911895718",
    0: "95dc9ddeaab9a0b93eeac93899dbf5551294a686e325f99697b1c31b90076c75",
}


@pytest.mark.parametrize(("seed", "sha256"), GOLDEN.items())
def test_questions_are_golden(seed: int, sha256: str) -> None:
    """A thousand questions, text and answer, to the byte. When this fails it is no longer v2."""
    lines = (f"{one.number}|{one.stratum}|{one.text}|{one.answer}\n" for one in questions(seed, 1000))
    assert (GENERATOR, SCORER) == ("sparkdash-math/v2", "sparkdash-math-scorer/v2")
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == sha256


def test_a_question_can_be_made_by_hand() -> None:
    """Without a line of ours: the digest's words, modulo the ranges that the rule names."""
    for number in range(0, 500, 5):
        digest = hashlib.sha256(f"sparkdash-math/v2|42|{number}".encode()).hexdigest()
        a, b, plus = (int(digest[8 * k : 8 * k + 8], 16) for k in range(3))
        a, b = 100 + a % 900, 100 + b % 900
        expected = (f"What is {a} + {b}?", a + b) if plus % 2 else (f"What is {a} - {b}?", a - b)
        assert (question(42, number).text, question(42, number).answer) == expected


def test_more_questions_change_none_of_the_first() -> None:
    """Append-only; another seed asks others."""
    assert list(questions(7, 40)) == list(questions(7, 400))[:40]
    assert not {one.text for one in questions(7, 100)} & {one.text for one in questions(8, 100)}
    assert len({one.id for one in questions(7, 400)}) == 400


def test_strata_are_a_fifth_and_four_fifths() -> None:
    counts = Counter(one.stratum for one in questions(42, 200))
    assert counts == {Stratum.SUM: 40, Stratum.PRODUCT: 160}


def test_sums_and_products_are_right() -> None:
    """By the text alone, with the promised digits."""
    shapes = Counter()
    for one in questions(42, 1000):
        a, sign, b = re.fullmatch(r"What is (\d+) ([-+*]) (\d+)\?", one.text).groups()  # type: ignore[union-attr]
        assert one.answer == {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign]
        shapes[sign, len(a), len(b)] += 1
    assert set(shapes) == {("+", 3, 3), ("-", 3, 3), ("*", 2, 2), ("*", 3, 2), ("*", 3, 3)}


def test_the_prompt_asks_for_the_form_that_is_judged() -> None:
    prompt = question(42, 1).prompt
    assert prompt.startswith(question(42, 1).text)
    assert prompt.endswith("ANSWER: <integer>")


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("ANSWER: 1234", Outcome.RIGHT),
        ("12 * 3\n ANSWER: 1,234 ", Outcome.RIGHT),
        ("**ANSWER: 1234.**", Outcome.RIGHT),
        ("**ANSWER:** 1234", Outcome.RIGHT),
        ("ANSWER: 99\nno, wait\nANSWER: 1234", Outcome.RIGHT),
        ("ANSWER: 1234\nThat is 5 more.", Outcome.RIGHT),
        ("ANSWER: 1234.0", Outcome.RIGHT),
        ("<think>ANSWER: 7</think>\nANSWER: 1234", Outcome.RIGHT),
        ("ANSWER: 1234\nANSWER: 99", Outcome.WRONG),
        ("ANSWER: 12345", Outcome.WRONG),
        ("ANSWER: 1234.5", Outcome.WRONG),
        ("The answer is 1234", Outcome.LENIENT),
        ("answer: 1234", Outcome.LENIENT),
        ("ANSWER: 1234 apples", Outcome.LENIENT),
        (r"\boxed{1,234}", Outcome.LENIENT),
        ("<think>ANSWER: 1234</think>\nIt is 7", Outcome.WRONG),
        ("<think>I try 7.\nANSWER: 1234", Outcome.UNPARSED),
        ("It is 1234.<think>\nANSWER: 1234", Outcome.LENIENT),
        ("It is 1234 or 1235", Outcome.WRONG),
        ("I do not know", Outcome.UNPARSED),
        ("", Outcome.UNPARSED),
    ],
)
def test_the_judge(text: str, outcome: Outcome) -> None:
    """The last line of the form decides; without one the last number is looked at, and counted apart."""
    assert score(1234, text, "stop") is outcome


def test_negative_answers() -> None:
    """With a hyphen or a typographic minus; a subtraction's second operand is no negative number."""
    assert score(-42, "ANSWER: -42") is Outcome.RIGHT
    assert score(-42, "ANSWER: \u221242") is Outcome.RIGHT
    assert score(-42, "so it is -42") is Outcome.LENIENT
    assert score(42, "10-42") is Outcome.LENIENT


def test_an_answer_that_was_cut_off_is_truncated_and_not_guessed_at() -> None:
    """Its last number is some step's. A line that was finished before the limit counts."""
    assert score(1234, "first 12 * 3, then 1234", "length") is Outcome.TRUNCATED
    assert score(1234, "ANSWER: 1234\nBecause", "length") is Outcome.RIGHT


def test_tally_counts_every_outcome_once() -> None:
    """Only what is right counts; the share has Wilson's interval."""
    found = tally(
        [Outcome.RIGHT] * 37 + [Outcome.WRONG] * 8 + [Outcome.LENIENT] * 3 + [Outcome.TRUNCATED, Outcome.UNPARSED]
    )
    assert found.text == "37/50 = 74 % [60, 84]"
    assert (found.wrong, found.lenient, found.truncated, found.unparsed) == (8, 3, 1, 1)
    assert (tally([]).text, tally([]).share) == ("-", None)

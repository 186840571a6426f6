"""The questions are the same everywhere and for ever; the judge is strict, and says what it was lenient about."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable

import pytest

from sparkdash.bench.judge.accuracy import SCORER, Outcome, score, tally
from sparkdash.bench.plan.math_questions import GENERATOR, Stratum, question, questions

GOLDEN = {
    42: "2fb4c13b075021f60be81db7b5821c904cf9c89430db2d09f5d472307e2bf6a6",
    0: "1e9f791a02675adea448294819c7876f116da662bd532a5de6a0592f0f72a125",
}


@pytest.mark.parametrize(("seed", "sha256"), GOLDEN.items())
def test_questions_are_golden(seed: int, sha256: str) -> None:
    """A thousand questions, text and answer, to the byte. When this fails it is no longer v1."""
    lines = (f"{one.number}|{one.stratum}|{one.text}|{one.answer}\n" for one in questions(seed, 1000))
    assert (GENERATOR, SCORER) == ("sparkdash-math/v1", "sparkdash-math-scorer/v2")
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == sha256


def test_a_question_can_be_made_by_hand() -> None:
    """Without a line of ours: the digest's words, modulo the ranges that the rule names."""
    for number in range(0, 500, 5):
        digest = hashlib.sha256(f"sparkdash-math/v1|42|{number}".encode()).hexdigest()
        a, b, plus = (int(digest[8 * k : 8 * k + 8], 16) for k in range(3))
        a, b = 100 + a % 900, 100 + b % 900
        expected = (f"What is {a} + {b}?", a + b) if plus % 2 else (f"What is {a} - {b}?", a - b)
        assert (question(42, number).text, question(42, number).answer) == expected


def test_more_questions_change_none_of_the_first() -> None:
    """Append-only; another seed asks others."""
    assert list(questions(7, 40)) == list(questions(7, 400))[:40]
    assert not {one.text for one in questions(7, 100)} & {one.text for one in questions(8, 100)}
    assert len({one.id for one in questions(7, 400)}) == 400


def test_strata_are_a_fifth_and_two_fifths() -> None:
    counts = Counter(one.stratum for one in questions(42, 200))
    assert counts == {Stratum.SUM: 40, Stratum.PRODUCT: 80, Stratum.WORDS: 80}


def test_sums_and_products_are_right() -> None:
    """By the text alone, with the promised digits."""
    shapes = Counter()
    for one in questions(42, 1000):
        if one.stratum is not Stratum.WORDS:
            a, sign, b = re.fullmatch(r"What is (\d+) ([-+*]) (\d+)\?", one.text).groups()  # type: ignore[union-attr]
            expected = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign]
            assert one.answer == expected
            shapes[sign, len(a), len(b)] += 1
    assert set(shapes) == {("+", 3, 3), ("-", 3, 3), ("*", 2, 2), ("*", 3, 1), ("*", 3, 2)}


def _posts(long: int, wide: int, gap: int, price: int) -> int:
    """Counted one by one along the edge."""
    places = {(x, y) for x in range(0, long + 1, gap) for y in (0, wide)}
    return len(places | {(x, y) for x in (0, long) for y in range(0, wide + 1, gap)}) * price


STORIES: dict[str, Callable[..., int]] = {
    "notebooks": lambda a, p, b, q, paid: paid - (a * p + b * q),
    "pump": lambda first, alone, second, both: sum([first] * alone + [first + second] * both),
    "brother": lambda older, years, total: next(x for x in range(200) if x + x - older + 2 * years == total),
    "apples": lambda n, crate, trucks: divmod(n, crate)[0] - divmod(n, crate)[0] // trucks * trucks,
    "tour": lambda total, h, v, g, w: total - h * v - g * w,
    "library": lambda books, percent, lent: round(books * (1 - percent / 100)) - lent,
    "machines": lambda m, r, h, off, g: m * r * h + (m - off) * r * g,
    "theatre": lambda rows, seats, empty, price, kids: price * (rows * seats - empty) - kids * price // 2,
    "coins": lambda first, more, weeks, spent: sum(first + more * week for week in range(weeks)) - spent,
    "field": lambda long, wide, gap, price: _posts(long, wide, gap, price),
}


def test_stories_are_right() -> None:
    """Every story worked out in another way from the numbers in its text; answers are whole and not negative."""
    told = Counter()
    for one in questions(42, 1000):
        if one.stratum is Stratum.WORDS:
            (kind,) = [word for word in STORIES if word in one.text]
            assert STORIES[kind](*map(int, re.findall(r"\d+", one.text))) == one.answer, one.text
            assert one.answer >= 0
            told[kind] += 1
    assert set(told) == set(STORIES)
    assert min(told.values()) >= 20


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

"""Right answers: the questions are the same everywhere, the judge is strict, and arms are compared on the same items."""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparkdash.bench.judge.accuracy import SCORER, AccuracyGate, Outcome, compare_accuracy, qualities, score, tally
from sparkdash.bench.plan.math_questions import GENERATOR, Stratum, question, questions
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, Mode

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


def test_more_questions_change_none_of_the_first() -> None:
    assert list(questions(7, 40)) == list(questions(7, 400))[:40]
    assert not {one.text for one in questions(7, 100)} & {one.text for one in questions(8, 100)}
    assert len({one.id for one in questions(7, 400)}) == 400


def test_sums_and_products_are_right() -> None:
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


@pytest.mark.parametrize(("text", "outcome"), [
    ("ANSWER: 1234", Outcome.RIGHT), ("12 * 3\n ANSWER: 1,234 ", Outcome.RIGHT), ("**ANSWER: 1234.**", Outcome.RIGHT),
    ("**ANSWER:** 1234", Outcome.RIGHT), ("ANSWER: 99\nno, wait\nANSWER: 1234", Outcome.RIGHT),
    ("ANSWER: 1234\nThat is 5 more.", Outcome.RIGHT), ("ANSWER: 1234.0", Outcome.RIGHT),
    ("<think>ANSWER: 7</think>\nANSWER: 1234", Outcome.RIGHT), ("ANSWER: 1234\nANSWER: 99", Outcome.WRONG),
    ("ANSWER: 12345", Outcome.WRONG), ("ANSWER: 1234.5", Outcome.WRONG), ("The answer is 1234", Outcome.LENIENT),
    ("answer: 1234", Outcome.LENIENT), ("ANSWER: 1234 apples", Outcome.LENIENT), (r"\boxed{1,234}", Outcome.LENIENT),
    ("<think>ANSWER: 1234</think>\nIt is 7", Outcome.WRONG), ("<think>I try 7.\nANSWER: 1234", Outcome.UNPARSED),
    ("It is 1234.<think>\nANSWER: 1234", Outcome.LENIENT), ("It is 1234 or 1235", Outcome.WRONG),
    ("I do not know", Outcome.UNPARSED), ("", Outcome.UNPARSED),
])  # fmt: skip
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
    """The last number of a cut answer is some step's. A line that was finished before the limit counts."""
    assert score(1234, "first 12 * 3, then 1234", "length") is Outcome.TRUNCATED
    assert score(1234, "ANSWER: 1234\nBecause", "length") is Outcome.RIGHT


def test_tally_counts_every_outcome_once() -> None:
    found = tally(
        [Outcome.RIGHT] * 37 + [Outcome.WRONG] * 8 + [Outcome.LENIENT] * 3 + [Outcome.TRUNCATED, Outcome.UNPARSED]
    )
    assert found.text == "37/50 = 74 % [60, 84]"
    assert (found.wrong, found.lenient, found.truncated, found.unparsed) == (8, 3, 1, 1)
    assert (tally([]).text, tally([]).share) == ("-", None)


def test_answers_are_judged_against_the_baselines(rehearse: Callable[..., Results]) -> None:
    """Eagle gets every product wrong that plain gets right: by stratum it shows, and the gate fails."""
    asked = [question(42, number) for number in range(50)]
    arms = [Arm(name=name, profile=name) for name in ("plain", "eagle")]
    results = rehearse(arms=arms, rates={}, maths={"plain": 50, "eagle": 50}, mode=Mode.SCREEN)
    told = tuple(
        one.replace(text=f"Well.\nANSWER: {asked[one.rep].answer + 1}")
        if one.arm == "eagle" and asked[one.rep].stratum is Stratum.PRODUCT
        else one
        for one in results.samples
    )
    plain, eagle = qualities(results.replace(samples=told))
    assert (plain.all.right, plain.verdict, plain.scorer) == (50, None, SCORER)
    assert {kind: (one.right, one.n) for kind, one in eagle.strata.items()} == {
        Stratum.SUM: (10, 10),
        Stratum.PRODUCT: (0, 40),
    }
    assert eagle.verdict is not None
    assert (eagle.verdict.gate, eagle.verdict.only_a[:2], eagle.verdict.only_b) == (AccuracyGate.FAIL, ("1", "2"), ())
    no_questions = tuple(one.replace(prompt_id="warm-up") for one in results.samples)
    assert qualities(results.replace(samples=no_questions)) == ()


def answers(both: int, only_a: int, only_b: int, neither: int) -> tuple[dict[str, bool], dict[str, bool]]:
    table = [(True, True)] * both + [(True, False)] * only_a + [(False, True)] * only_b + [(False, False)] * neither
    return (
        {f"math {number}": one for number, (one, _) in enumerate(table)},
        {f"math {number}": other for number, (_, other) in enumerate(table)},
    )


def test_the_seeds_fifty_questions_tell_nothing() -> None:
    """74 % against 70 %: three lost and one won out of fifty is no evidence of anything."""
    found = compare_accuracy(*answers(34, 3, 1, 12))
    assert found.gate is AccuracyGate.NO_EVIDENCE
    assert found.p == pytest.approx(0.625)
    assert found.difference == pytest.approx(-0.04)
    assert (found.only_a, found.only_b) == (("math 34", "math 35", "math 36"), ("math 37",))
    assert found.text.startswith("no evidence -4.0 points [")
    assert found.text.endswith("3 lost, 1 won, p = 0.62")


@pytest.mark.parametrize(("table", "gate"), [
    ((290, 10, 10, 90), AccuracyGate.PASS), ((300, 0, 0, 100), AccuracyGate.PASS),
    ((290, 4, 40, 66), AccuracyGate.PASS), ((200, 90, 10, 100), AccuracyGate.FAIL),
    ((280, 20, 8, 92), AccuracyGate.NO_EVIDENCE), ((0, 0, 0, 200), AccuracyGate.NO_EVIDENCE),
    ((10, 0, 0, 190), AccuracyGate.NO_EVIDENCE), ((100, 0, 0, 100), AccuracyGate.PASS),
])  # fmt: skip
def test_the_gate_is_five_points(table: tuple[int, int, int, int], gate: AccuracyGate) -> None:
    """Where both, the first, the second and neither are right; a baseline with 5 % right cannot be missed by five."""
    assert compare_accuracy(*answers(*table)).gate is gate


def test_a_gate_for_four_hundred_lets_few_bad_arms_pass() -> None:
    """An arm that is truly five points worse passes in at most 5 % of 400 simulated comparisons."""
    rng = random.Random(29)
    passed = 0
    for _ in range(400):
        a, b = {}, {}
        for number in range(400):
            kind = rng.random()
            a[str(number)] = kind < 0.75
            b[str(number)] = kind < 0.675 or 0.75 <= kind < 0.775
        passed += compare_accuracy(a, b).gate is AccuracyGate.PASS
    assert passed <= 0.05 * 400


def test_only_common_items_count() -> None:
    assert compare_accuracy({"a": True, "b": True}, {"b": True, "c": False}).n == 1
    assert compare_accuracy({"a": True}, {"b": True}).text == "no evidence (no common items)"


ANYTHING = st.lists(st.integers(0, 0x2FFFF).map(chr)).map("".join)
"""As st.text(), without the table of all characters, which takes seconds to make."""


@settings(max_examples=60, deadline=None)
@given(ANYTHING | st.text(alphabet="ANSWER: -,.0123456789*`$\n</think>"), st.integers(-1000, 100_000))
def test_the_judge_takes_any_text(text: str, answer: int) -> None:
    score(answer, text)
    assume("<think>" not in text)  # what follows an unclosed one is no answer
    assert score(answer, f"{text}\nANSWER: {answer}") == "right"

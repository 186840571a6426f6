"""Accuracy is compared item by item: what passes, what fails, and what fifty questions cannot tell."""

from __future__ import annotations

import random

import pytest

from sparkdash.bench.judge.accuracy import AccuracyGate, compare_accuracy


def answers(both: int, only_a: int, only_b: int, neither: int) -> tuple[dict[str, bool], dict[str, bool]]:
    """Two arms with that table."""
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


@pytest.mark.parametrize(
    ("table", "gate"),
    [
        ((290, 10, 10, 90), AccuracyGate.PASS),
        ((300, 0, 0, 100), AccuracyGate.PASS),
        ((290, 4, 40, 66), AccuracyGate.PASS),
        ((200, 90, 10, 100), AccuracyGate.FAIL),
        ((280, 20, 8, 92), AccuracyGate.NO_EVIDENCE),
    ],
    ids=["equal", "identical", "better", "worse", "perhaps worse"],
)
def test_the_gate_is_five_points(table: tuple[int, int, int, int], gate: AccuracyGate) -> None:
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

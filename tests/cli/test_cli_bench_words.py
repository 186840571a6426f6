"""What a measurement says on the terminal."""

from __future__ import annotations

from sparkdash.cli.bench.progress import arm_letters


def test_every_arm_has_a_mark() -> None:
    marks = arm_letters(f"n={value}" for value in range(60))
    assert [marks[f"n={value}"] for value in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "AB", "BA"]
    assert len(set(marks.values())) == 60

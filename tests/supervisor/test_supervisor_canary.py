"""The warm-up's answer: another one than at the first start of the same launch is told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from surroundings.engines import Behaviour
from surroundings.house import make_profile

from sparkdash.supervisor.canary import Canaries


async def restarted(house: Any, *says: str) -> list[str]:
    """Texts of the notices about the answers of `a`, which is started once for each of these."""
    for text in says:
        house.runtime.zoo["a"].says = text
        await house.leased("a")
        await house.leased("b")
    return [one.text for one in house.notices() if one.code == "answer_differs"]


@pytest.fixture
def answers(tmp_path: Path) -> Canaries:
    return Canaries(tmp_path / "answers.json")


async def test_another_answer_than_the_first_one_is_told_with_both(house: Any, answers: Canaries) -> None:
    """Each time, as the first one stays what it is measured by; the engine serves, as the owner decides."""
    house.runtime.zoo["a"] = Behaviour()
    await house.open(make_profile("a"), make_profile("b"), canaries=answers)
    told = await restarted(house, "one two", "one two", "!!!!", "!!!!")
    assert len(told) == 2
    assert told[0].startswith("a answers the warm-up with '!!!!'; its first start answered 'one two'.")


async def test_an_answer_that_the_second_question_sets_right_is_chance(house: Any, answers: Canaries) -> None:
    house.runtime.zoo["a"] = Behaviour()
    await house.open(make_profile("a"), make_profile("b"), canaries=answers)
    assert await restarted(house, "one two", "one, two|one two") == []


def test_a_launch_is_another_one_with_another_image_flag_or_file(answers: Canaries, tmp_path: Path) -> None:
    weights = tmp_path / "model" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"w")
    plain = make_profile("a", models={"target": {"path": str(weights.parent)}})

    def kept(profile: Any, image_id: str, answer: str) -> str:
        return answers.kept(profile, image_id, tmp_path, answer)

    assert [kept(plain, "1", "x"), kept(plain, "1", "y")] == ["x", "x"]
    assert [kept(plain, "2", "y"), kept(plain.replace(args={"seed": 1}), "2", "z")] == ["y", "z"]
    assert [kept(plain, "2", "a"), kept(plain, "2", "b")] == ["a", "a"]
    os.utime(weights, (1, 1))
    assert kept(plain, "2", "c") == "c"

"""What a launch remembers from its earlier starts: compile caches, of which a torn one costs no more than a second try, and
the answer of the warm-up."""

import os
from pathlib import Path
from typing import Any

import pytest
from surroundings.box import Behaviour
from surroundings.house import make_profile

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import SwapChanged
from sparkdash.domain.phrases import estimate_text, past_stages
from sparkdash.domain.swap import Swap, SwapPhase
from sparkdash.store import Store
from sparkdash.supervisor.canary import Canaries

FOLDER = "engines/image@idofimage@a"


@pytest.fixture
def cache(house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cache that an earlier start of `a` compiled."""

    async def image_id(_image: str) -> str:
        return "idofimage"

    monkeypatch.setattr(house.runtime, "image_id", image_id)
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    (folder / "kernel").write_text("compiled")
    return folder


def renamed(folder: Path, name: str) -> None:
    folder.rename(folder.with_name(name))


def model(name: str) -> dict[str, Any]:
    return {"models": {"target": {"hf": name}}}


async def test_a_start_that_a_torn_cache_lets_fail_is_tried_once_without_it(
    house: Any, cache: Path, tmp_path: Path
) -> None:
    house.runtime.zoo["a"] = Behaviour(dies_of_cache=True)
    await house.served(make_profile("a", **model("a")), cache_dir=tmp_path)
    assert house.runtime.calls == [("start", "a"), ("start", "a")]
    assert [one.code for one in house.notices()] == ["cache_set_aside", "cache_dropped"]
    assert list(cache.parent.iterdir()) == []


async def test_a_start_that_fails_without_its_cache_too_keeps_it(house: Any, cache: Path, tmp_path: Path) -> None:
    house.runtime.zoo["a"] = Behaviour(empty_answers=True)
    await house.open(make_profile("a", **model("a")), cache_dir=tmp_path)
    assert (await house.refused("a")).code == "bad_answer"
    assert [what for what, _ in house.runtime.calls] == ["start", "stop", "start", "stop"]
    assert [one.code for one in house.notices()] == ["cache_set_aside", "bad_answer"]
    assert [each.name for each in cache.parent.rglob("*")] == [cache.name, "kernel"]


async def test_a_failure_with_a_known_cause_is_not_tried_again(house: Any, cache: Path, tmp_path: Path) -> None:
    """Nor one without a cache, nor one whose cache another engine uses."""
    house.runtime.zoo |= {"a": Behaviour(dies_after_s=1), "b": Behaviour(empty_answers=True)}
    house.runtime.zoo["c"] = Behaviour(empty_answers=True)
    twin = make_profile("d", gib=1, **model("c"))
    await house.open(
        make_profile("a", **model("a")),
        make_profile("b"),
        make_profile("c", gib=1, **model("c")),
        twin,
        cache_dir=tmp_path,
    )
    assert (await house.refused("a")).code == "out_of_memory"
    assert (await house.refused("b")).code == "bad_answer"
    renamed(cache, "image@idofimage@c")
    await house.leased("d")
    assert (await house.refused("c")).code == "bad_answer"
    assert house.state("d") is EngineState.READY
    assert [name for what, name in house.runtime.calls if what == "start"] == ["a", "b", "d", "c"]


async def test_the_time_to_expect_is_that_of_starts_with_caches_like_its_own(
    house: Any, cache: Path, tmp_path: Path
) -> None:
    """Where only starts with other caches are known, it says so. A profile without a model learns from no other."""
    profiles = make_profile("a", **model("a")), make_profile("b"), make_profile("never")
    await house.open(*profiles, cache_dir=tmp_path, store=Store(lambda _: None), no_progress_s=90)

    async def load(load_s: float) -> Swap:
        """The load as it was told last while it went on."""
        house.runtime.zoo["a"] = Behaviour(load_s=load_s)
        house.facts.clear()
        await house.leased("a")
        told = [fact.swap for fact in house.facts if isinstance(fact, SwapChanged)]
        await house.leased("b")
        return next(one for one in told if one.target == "a" and one.phase is SwapPhase.LOAD)

    first = await load(5)
    assert (past_stages(first), first.start.caches_empty, first.learned_from) == ("first start on this image", False, 0)
    renamed(cache, "away")
    second = await load(60)
    assert (past_stages(second), second.learned_from) == ("", 1)
    assert estimate_text(second, second.eta_at).endswith("or more: its caches are empty")
    third = await load(60)
    assert (third.learned_from, third.other_caches, third.eta_s > 50) == (1, False, True)
    renamed(cache.with_name("away"), cache.name)
    assert (await load(5)).eta_s < 10
    assert (await house.supervisor.plan("never")).starts == ()


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

"""Compile caches around a start: a torn one costs a second try, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from surroundings.engines import Behaviour
from surroundings.house import make_profile

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import SwapChanged
from sparkdash.domain.phrases import estimate_text, past_stages
from sparkdash.domain.swap import Swap, SwapPhase
from sparkdash.store import Store

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
    """The engine comes up, the cache is gone, and both are told."""
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

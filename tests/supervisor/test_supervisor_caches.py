"""Compile caches around a start: a torn one costs a second try, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.engine import EngineState

FOLDER = "engines/image@idofimage@a"


@pytest.fixture
def cache(house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an earlier start of `a` compiled."""

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
    house: Any, make_profile: Any, behaviour: Any, cache: Path, tmp_path: Path
) -> None:
    """It comes up, the cache is gone, and both are told."""
    house.runtime.zoo["a"] = behaviour(dies_of_cache=True)
    await house.open(make_profile("a", **model("a")), cache_dir=tmp_path)
    await house.leased("a")
    assert house.runtime.calls == [("start", "a"), ("start", "a")]
    assert [one.code for one in house.notices()] == ["cache_set_aside", "cache_dropped"]
    assert list(cache.parent.iterdir()) == []


async def test_a_start_that_fails_without_its_cache_too_keeps_it(
    house: Any, make_profile: Any, behaviour: Any, cache: Path, tmp_path: Path
) -> None:
    house.runtime.zoo["a"] = behaviour(empty_answers=True)
    await house.open(make_profile("a", **model("a")), cache_dir=tmp_path)
    assert (await house.refused("a")).code == "bad_answer"
    assert [what for what, _ in house.runtime.calls] == ["start", "stop", "start", "stop"]
    assert [one.code for one in house.notices()] == ["cache_set_aside", "bad_answer"]
    assert [each.name for each in cache.parent.rglob("*")] == [cache.name, "kernel"]


async def test_a_failure_with_a_known_cause_is_not_tried_again(
    house: Any, make_profile: Any, behaviour: Any, cache: Path, tmp_path: Path
) -> None:
    """Nor one without a cache, nor one whose cache another engine uses."""
    house.runtime.zoo |= {"a": behaviour(dies_after_s=1), "b": behaviour(empty_answers=True)}
    house.runtime.zoo["c"] = behaviour(empty_answers=True)
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

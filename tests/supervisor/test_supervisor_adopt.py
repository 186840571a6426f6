"""What an earlier daemon left running: adopted when it is what the catalog says and answers, else put away."""

from __future__ import annotations

from typing import Any

from sparkdash.domain.container import ContainerState
from sparkdash.domain.engine import EngineState


async def test_a_running_engine_is_adopted_and_serves_without_a_start(house: Any, make_profile: Any) -> None:
    """The daemon ends, another begins: the same container, ready, watched."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    await house.open(make_profile("a"))
    engine = house.supervisor.engines["a"]
    assert (engine.state, engine.adopted, engine.load_s) == (EngineState.READY, True, None)
    assert (await house.leased("a")).url == engine.url
    assert (await house.leased("auto")).profile.name == "a"
    assert house.runtime.calls == [("start", "a")]
    assert [line async for line in house.supervisor.logs("a")] != []
    await house.runtime.kill("a", "Segmentation fault")
    await house.clock.rest()
    assert house.state("a") is EngineState.FAILED


async def test_an_engine_of_a_changed_profile_is_stopped_with_a_notice(house: Any, make_profile: Any) -> None:
    """Its fingerprint tells: it would serve something else than the file says."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    await house.open(make_profile("a", args={"max-model-len": 4096}))
    assert house.runtime.here == {}
    assert house.supervisor.engines == {}
    assert [n.code for n in house.notices()] == ["not_adopted"]
    assert "changed" in house.notices()[0].text


async def test_an_engine_that_does_not_answer_is_stopped_with_a_notice(house: Any, make_profile: Any) -> None:
    """It was loading when its daemon died, or it hangs."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    await house.runtime.of("a").server.cleanup()
    await house.open(make_profile("a"))
    assert house.runtime.here == {}
    assert "does not answer" in house.notices()[0].text


async def test_ended_leftovers_are_removed_without_a_word(house: Any, make_profile: Any) -> None:
    """An exited container of ours is rubbish, not news."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    await house.runtime.end(house.runtime.of("a"), 0)
    await house.open(make_profile("a"))
    assert house.runtime.here == {}
    assert house.notices() == []


async def test_containers_of_others_are_left_alone(house: Any, make_profile: Any, foreign_owner: Any) -> None:
    """Another daemon's engine, same profile and all, is not ours to touch."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    container = house.runtime.of("a")
    container.spec = container.spec.model_copy(update={"labels": {**container.spec.labels, **foreign_owner}})
    await house.open(make_profile("a"))
    assert container.state is ContainerState.RUNNING
    assert house.supervisor.engines == {}


async def test_of_two_that_run_the_younger_is_adopted(house: Any, make_profile: Any) -> None:
    """One managed engine is resident at a time, also after a crash in the middle of something."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    old = house.runtime.here.pop(house.runtime.of("a").spec.name)
    await house.open(make_profile("b"))
    await house.leased("b")
    await house.close()
    house.runtime.here[old.spec.name] = old
    await house.open(make_profile("a"), make_profile("b"))
    assert list(house.supervisor.engines) == ["b"]
    assert house.runtime.running() == ["b"]

"""Faults of a start that are known before anything is stopped, and clients that leave meanwhile."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.engine import EngineState
from sparkdash.domain.images import ImageBuild
from sparkdash.domain.profile import EngineKind, ModelRef, Mount
from sparkdash.domain.swap import SwapOutcome
from sparkdash.errors import AdmissionError, HostError, SparkdashError
from sparkdash.supervisor.swap.transition import weights_paths


async def refused(house: Any, name: str) -> SparkdashError:
    """What a request for `name` is refused with."""
    asking = house.ask(name)
    (result,) = await house.clock.drive(asyncio.gather(asking.granted(), return_exceptions=True))
    assert isinstance(result, SparkdashError), result
    await house.settled()
    return result


async def test_a_missing_image_evicts_nobody(house: Any, make_profile: Any) -> None:
    """What can be known to fail is looked at first: the running engine serves on, and the hint says what to do."""
    await house.open(make_profile("a"), make_profile("b", image="registry.example/none:0"))
    await house.leased("a")
    error = await refused(house, "b")
    assert isinstance(error, HostError)
    assert error.code == "image_missing"
    assert "sparkdash pull b" in error.hint
    assert house.swaps()[-1].failure.phase == "preflight"
    assert house.state("a") is EngineState.READY
    assert house.runtime.calls == [("start", "a")]
    await house.leased("a")


async def test_an_image_to_be_built_is_named_with_its_command_and_never_pulled(house: Any, make_profile: Any) -> None:
    """`use` and `pull` say the same, and which profile serves the model from a published image."""
    build = ImageBuild(context="images/b", minutes=30)
    await house.open(make_profile("a"), make_profile("b", image="localhost/none:0", build=build, nearest="a"))
    error = await refused(house, "b")
    told = (
        "It must be built: `sparkdash build b`, about 30m00s. "
        "a serves the same model from a published image: `sparkdash use a`."
    )
    assert (error.code, error.hint) == ("image_missing", told)
    with pytest.raises(HostError) as caught:
        await anext(house.supervisor.pull("b"))
    assert (caught.value.code, caught.value.hint) == ("image_missing", told)


async def test_weights_at_a_path_of_another_box_name_the_profile_whose_weights_can_be_pulled(
    house: Any, make_profile: Any, tmp_path: Path
) -> None:
    """Nobody can fetch a folder whose repository no source names."""
    weights = {"target": ModelRef(path=str(tmp_path / "theirs"))}
    await house.open(make_profile("a"), make_profile("b", models=weights, nearest="a"))
    error = await refused(house, "b")
    assert error.code == "weights_missing"
    assert error.hint == (
        "Put them there, or correct the path in the profile. "
        "a serves the same model from a published image: `sparkdash use a`."
    )


@pytest.mark.parametrize(
    "facts", [{"build": ImageBuild(context="images/a")}, {"image": "localhost/mine:1"}], ids=["a recipe", "by hand"]
)
async def test_an_image_that_was_built_is_here_and_asks_no_registry(house: Any, make_profile: Any, facts: Any) -> None:
    house.runtime.present.add("localhost/mine:1")
    await house.open(make_profile("a", **facts))
    assert [step.detail async for step in house.supervisor.pull("a")] == ["here already"]


async def test_an_image_that_no_registry_has_is_not_asked_for(house: Any, make_profile: Any) -> None:
    await house.open(make_profile("a", image="localhost/mine:1"))
    with pytest.raises(HostError, match="No registry has localhost/mine:1") as caught:
        [step async for step in house.supervisor.pull("a")]
    assert caught.value.hint == "No registry has it: build it yourself, or say how with `build:` in the profile."


async def test_what_can_never_fit_evicts_nobody(house: Any, make_profile: Any) -> None:
    """More than the whole box: refused at once, with the figures."""
    await house.open(make_profile("a"), make_profile("whale", gib=125))
    await house.leased("a")
    assert (await house.supervisor.plan("whale")).fits is False
    error = await refused(house, "whale")
    assert error.code == "does_not_fit"
    assert "128.0 GiB in all" in error.message
    assert house.runtime.running() == ["a"]


async def test_pulling_the_image_mends_it_at_once(house: Any, make_profile: Any) -> None:
    """The remembered failure does not outlive its cause."""
    await house.open(make_profile("b", image="new"))
    assert (await refused(house, "b")).code == "image_missing"
    steps = [step async for step in house.supervisor.pull("b")]
    assert steps[-1].done
    await house.leased("b")
    assert house.state("b") is EngineState.READY


async def test_weights_that_came_mend_it_at_once(house: Any, make_profile: Any, tmp_path: Path) -> None:
    """A path that does not exist is told before anything is evicted; once it is filled and released, it starts."""
    path = tmp_path / "weights"
    await house.open(make_profile("a"), make_profile("b", models={"target": ModelRef(path=str(path))}))
    await house.leased("a")
    error = await refused(house, "b")
    assert (error.code, str(path) in error.message) == ("weights_missing", True)
    assert house.runtime.running() == ["a"]
    path.mkdir()
    assert (await refused(house, "b")).code == "weights_missing"
    await house.supervisor.release("b")
    await house.leased("b")
    assert house.state("b") is EngineState.READY


def test_paths_of_a_container_are_looked_for_where_they_lie(make_profile: Any) -> None:
    """Under an own mount's source, in a volume not at all; never a model that the launch does not use."""
    models = {"target": ModelRef(path="/models/x/y"), "drafter": ModelRef(path="/nosuch")}
    for mounts, place in (
        ((), "/models/x/y"),
        ((Mount(source="/data", target="/models"),), "/data/x/y"),
        ((Mount(source="/data", target="/models"), Mount(source="/fast", target="/models/x")), "/fast/y"),
        ((Mount(source="volume", target="/models"),), None),
    ):
        profile = make_profile("a", models=models, mounts=mounts)
        assert weights_paths(profile, containerised=True) == ([Path(place)] if place else [])
        assert weights_paths(profile, containerised=False) == [Path("/models/x/y")]


@pytest.mark.parametrize(("facts", "told"), [
    ({"engine": EngineKind.SIM}, "it is simulated"),
    ({"engine": EngineKind.OPENAI, "url": "http://x"}, "listens at http://x"),
], ids=["simulated", "elsewhere"])  # fmt: skip
async def test_there_is_nothing_to_pull(house: Any, make_profile: Any, facts: dict[str, Any], told: str) -> None:
    """Said so, without advice to add an image."""
    await house.open(make_profile("b", image=None, models={}, **facts))
    with pytest.raises(AdmissionError, match=told) as caught:
        await anext(house.supervisor.pull("b"))
    assert (caught.value.code, caught.value.hint) == ("nothing_to_pull", None)


async def test_a_taken_port_is_passed_over_and_a_full_range_is_told(house: Any, make_profile: Any) -> None:
    """Another program's port is never handed to an engine; when none is left, the range is named."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        await house.open(make_profile("a"), engine_ports=(port, port))
        error = await refused(house, "a")
    assert error.code == "port_in_use"
    assert str(port) in error.message
    assert house.runtime.here == {}


async def test_a_client_that_leaves_during_the_drain_spares_the_running_engine(house: Any, make_profile: Any) -> None:
    """Nothing was stopped yet and nobody wants the other: the swap is called off."""
    await house.open(make_profile("a"), make_profile("b"))
    holder = house.ask("a")
    await house.clock.drive(holder.granted())
    waiting, younger = house.ask("b"), house.ask("a")
    await house.clock.rest()
    await waiting.vanish()
    await house.clock.rest()
    assert younger.has_lease
    assert house.state("a") is EngineState.READY
    assert house.swaps()[-1].outcome is SwapOutcome.CANCELLED
    assert house.runtime.calls == [("start", "a")]
    await holder.leave()
    await younger.leave()


async def test_a_client_that_leaves_during_the_load_does_not_end_it(house: Any, make_profile: Any) -> None:
    """Its retry is coming: the load goes on, and the retry joins it."""
    await house.open(make_profile("a"))
    waiting = house.ask("a")
    await house.loads("a")
    await waiting.vanish()
    await house.leased("a")
    assert len(house.swaps()) == 1
    assert house.runtime.calls == [("start", "a")]


async def test_a_client_that_leaves_as_it_is_granted_leaves_nothing_behind(house: Any, make_profile: Any) -> None:
    """Cancelled between the grant that it waited for and its first use: the lease ends all the same."""
    await house.open(make_profile("a"), make_profile("b"))
    asking = house.ask("a")
    granted: list[bool] = []

    def hang_up(fact: Any) -> None:
        if fact.kind == "engine" and fact.engine.in_flight == 1:
            granted.append(asking.has_lease)
            asking.task.cancel()

    house.on_fact = hang_up
    await house.clock.drive(asyncio.wait({asking.task}))
    await house.settled()
    assert granted == [False]
    assert asking.task.cancelled()
    assert house.supervisor.engines["a"].in_flight == 0
    await house.leased("b")
    assert house.runtime.running() == ["b"]

"""Looks for engines of an earlier daemon while this one adopts and starts others: none costs a living engine."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.container import ContainerInfo, ContainerState
from sparkdash.domain.engine import EngineState


async def let_pass(house: Any, steps: int = 5) -> None:
    """Let everything run that waits for nothing but a short pause."""
    for _ in range(steps):
        house.clock.step()
        await house.clock.rest()


async def test_a_node_that_answers_during_the_first_look_costs_no_engine_that_loads(
    house: Any, make_profile: Any, behaviour: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second look that ended before the first was taken over had removed the container whose load was to go on."""
    loads = house.runtime.zoo["a"] = behaviour(never_ready=True, heartbeat=True)
    await house.open(make_profile("a"))
    house.ask("a")
    await house.loads("a")
    await house.crash()
    list_containers, looks = house.runtime.containers, []

    async def listed_late(labels: Any) -> list[ContainerInfo]:
        found = await list_containers(labels)
        looks.append(labels)
        if len(looks) == 1:
            house.supervisor.node_returned()
            await let_pass(house)
        return list(found)

    monkeypatch.setattr(house.runtime, "containers", listed_late)
    await house.open(make_profile("a"))
    await let_pass(house)
    assert house.state("a") is EngineState.LOADING
    loads.never_ready = False
    await house.settled()
    assert (house.state("a"), house.runtime.calls) == (EngineState.READY, [("start", "a")])
    assert house.notices() == []
    assert len(looks) > 1


@pytest.mark.parametrize("state", [ContainerState.CREATED, ContainerState.EXITED])
async def test_a_container_that_is_started_during_a_look_is_left_alone(
    house: Any, make_profile: Any, state: ContainerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed as made and not yet running, or as the ended one of its name that the start replaces."""
    await house.open(make_profile("a"))
    list_containers, listed = house.runtime.containers, []

    async def listed_meanwhile(labels: Any) -> list[ContainerInfo]:
        if not house.runtime.here:
            house.ask("a")
            await let_pass(house)
            listed[:] = [each.replace(state=state) for each in await list_containers(labels)]
        return listed

    monkeypatch.setattr(house.runtime, "containers", listed_meanwhile)
    house.supervisor.node_returned()
    await let_pass(house, 10)
    await house.settled()
    assert [each.name for each in listed] == ["sparkdash-a"]
    assert (house.state("a"), house.runtime.calls) == (EngineState.READY, [("start", "a")])
    assert house.notices() == []

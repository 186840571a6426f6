"""A supervisor with a second node: where engines come, what is refused, and what a launch is told."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from surroundings.house import House, profile

from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.domain.node import LOCAL, NodeLaunch, NodeState, NodeStatus
from sparkdash.domain.profile import Published
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError, HostError
from sparkdash.supervisor.memory.footprint import read_memory
from sparkdash.units import GIB


class SecondNode:
    """This box and spark2, whose memory nobody takes."""

    names = (LOCAL, "spark2")
    samples: Mapping[str, NodeSample] = {}

    def __init__(self, house: House, status: NodeStatus = NodeStatus.REACHABLE) -> None:
        self._house = house
        self.states = {"spark2": NodeState(name="spark2", status=status, since=0.0, reason=None)}

    def memory(self, node: str) -> Memory | None:
        if node == LOCAL:
            return self._house.reader.memory()
        return Memory(total=128 * GIB, available=120 * GIB, free=120 * GIB)

    async def fresh_memory(self, node: str) -> Memory:
        found = self.memory(node)
        assert found is not None
        return found

    def launch_on(self, names: tuple[str, ...]) -> tuple[NodeLaunch, ...]:
        return tuple(NodeLaunch(name=name, address="127.0.0.1", hf_home="/hf", cache_dir="/cache") for name in names)


async def test_a_second_engine_that_does_not_fit_beside_the_first_comes_to_the_other_node(house: House) -> None:
    """Nobody leaves, and the plan says where."""
    supervisor = await house.open(profile("a"), profile("b"), nodes=SecondNode(house))
    await house.leased("a")
    plan = await house.clock.drive(supervisor.plan("b"))
    assert (plan.nodes, plan.evict, plan.fits) == (("spark2",), (), True)
    assert plan.verdict == "It fits now on spark2."
    assert [(row.node, row.now_bytes) for row in plan.on_nodes] == [("spark2", 120 * GIB)]
    await house.leased("b")
    assert {name: engine.nodes for name, engine in supervisor.engines.items()} == {"a": (LOCAL,), "b": ("spark2",)}
    assert [(swap.target, swap.nodes) for swap in house.swaps()] == [("a", (LOCAL,)), ("b", ("spark2",))]


@pytest.mark.parametrize(("status", "code"), [(None, "needs_two_nodes"), (NodeStatus.UNREACHABLE, "node_unreachable")])
async def test_a_profile_for_two_nodes_is_refused_and_nobody_leaves_where_there_is_no_second(
    house: House, status: NodeStatus | None, code: str
) -> None:
    """The reason names what is missing."""
    nodes = None if status is None else SecondNode(house, status)
    supervisor = await house.open(profile("a"), profile("wide", nodes=2), nodes=nodes)
    await house.leased("a")
    with pytest.raises(AdmissionError) as refused:
        await house.clock.drive(supervisor.use("wide", cause=SwapCause.USER))
    assert refused.value.code == code
    assert "spark2: spark2" not in refused.value.message
    assert list(supervisor.engines) == ["a"]


class LateNode(SecondNode):
    """A node that is too busy to answer `late` times; `late` counts down."""

    late = 2
    asked = 0

    async def fresh_memory(self, node: str) -> Memory:
        self.asked += 1
        if self.asked <= self.late:
            raise HostError("spark2 does not answer: no figures for 3.0s.", code="node_unreachable")
        return await super().fresh_memory(node)


def _tools(house: House, nodes: SecondNode) -> Any:
    return SimpleNamespace(nodes=nodes, clock=house.clock, reader=house.reader)


async def test_a_node_that_is_too_busy_to_tell_its_memory_is_asked_again(house: House) -> None:
    """It is reachable: a swap does not fail of a late answer."""
    nodes = LateNode(house)
    assert (await house.clock.drive(read_memory(_tools(house, nodes), "spark2"))).available == 120 * GIB
    assert nodes.asked == 3


@pytest.mark.parametrize(("status", "asked"), [(NodeStatus.UNREACHABLE, 1), (NodeStatus.REACHABLE, 31)])
async def test_a_node_that_stays_silent_is_an_error(house: House, status: NodeStatus, asked: int) -> None:
    """At once where its connection is lost, else after half a minute."""
    nodes = LateNode(house, status)
    nodes.late = 1000
    with pytest.raises(HostError, match="does not answer"):
        await house.clock.drive(read_memory(_tools(house, nodes), "spark2"))
    assert nodes.asked == asked


async def test_a_published_start_is_expected_until_one_was_measured(house: House) -> None:
    """A quarter of an hour, as its owner saw it."""
    row = Published(workload="start", start_s=900, source="test")
    supervisor = await house.open(profile("a", published=(row,)))
    assert (await house.clock.drive(supervisor.plan("a"))).expected_s == 900


@pytest.mark.parametrize("taken", [2, 3])
async def test_a_port_that_another_nodes_program_has_is_passed_over(
    house: House, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start tries three ports: what listens on another node is only known once it is looked at there."""
    await house.open(profile("a"), nodes=SecondNode(house))
    start_container, tried = house.runtime.start, []

    async def refused_first(spec: Any) -> Any:
        tried.append(spec.port)
        if len(tried) <= taken:
            raise HostError(f"A program listens on port {spec.port} of spark2 already.", code="port_in_use")
        return await start_container(spec)

    monkeypatch.setattr(house.runtime, "start", refused_first)
    if taken == 3:
        with pytest.raises(HostError, match="listens on port") as refused:
            await house.leased("a")
        assert str(tried[-1]) in refused.value.message
    else:
        assert (await house.leased("a")).url == f"http://127.0.0.1:{tried[-1]}"
    assert len(set(tried)) == len(tried) == 3

"""A supervisor with a second node: where engines come, what is refused, and what a launch is told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from surroundings.house import House, profile

from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.domain.node import LOCAL, NodeLaunch, NodeState, NodeStatus
from sparkdash.domain.profile import Published
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError
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


async def test_a_published_start_is_expected_until_one_was_measured(house: House) -> None:
    """A quarter of an hour, as its owner saw it."""
    row = Published(workload="start", start_s=900, source="test")
    supervisor = await house.open(profile("a", published=(row,)))
    assert (await house.clock.drive(supervisor.plan("a"))).expected_s == 900

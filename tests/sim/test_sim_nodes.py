"""Two simulated boxes: an engine over both, one on the other box alone, their link, and a box that falls silent."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.container import LABEL_OWNER, ContainerSpec
from sparkdash.domain.event import NodesChanged
from sparkdash.domain.node import LOCAL, NodeStatus
from sparkdash.domain.profile import EngineKind, Profile, SimSpec
from sparkdash.engines import registry
from sparkdash.engines.containers import LaunchContext
from sparkdash.errors import HostError
from sparkdash.host.runtime import Nodes
from sparkdash.nodes.cluster.node_runtimes import NodeRuntimes
from sparkdash.sim.box import SimBox
from sparkdash.sim.nodes import SimulatedBoxes, SimulatedNodes, several_boxes
from sparkdash.sim.process import ClaimFile, read_claims
from sparkdash.units import GIB

OWNER = "test"
SPARK2 = "spark2"
Eventually = Callable[[Callable[[], bool]], Awaitable[None]]


def profile_of(name: str = "both", nodes: int = 2) -> Profile:
    """A simulated profile that loads in no time and takes 64 GiB on each of its boxes."""
    return Profile(name=name, engine=EngineKind.SIM, nodes=nodes, sim=SimSpec(load_s=0.1, memory_gib=64))


def spec_of(boxes: SimulatedBoxes, profile: Profile, port: int, *nodes: str) -> ContainerSpec:
    """The containers of a launch on these nodes."""
    assert boxes.nodes is not None
    launch = LaunchContext(
        port=port, containerised=False, hf_home="/hf", cache_dir="/cache", labels={LABEL_OWNER: OWNER},
        nodes=boxes.nodes.launch_on(nodes),
    )  # fmt: skip
    return registry.adapter(EngineKind.SIM).container(profile, launch)


@asynccontextmanager
async def boxes_in(folder: Path) -> AsyncIterator[SimulatedBoxes]:
    """Two boxes; what runs on them ends with the block."""
    boxes = several_boxes(folder, 2, owner=OWNER, reserve=10 * GIB)
    try:
        yield boxes
    finally:
        for runtime in boxes.processes:
            for left in await runtime.containers({}):
                await runtime.stop(left.name, 1.0)


def claimed(folder: Path, name: str) -> dict[str, int]:
    """Memory by profile on one box, in whole GiB."""
    return {claim.profile: round(claim.memory / GIB) for claim in read_claims(folder / name)}


async def test_an_engine_over_both_boxes_takes_memory_on_both_and_its_stop_gives_both_back(
    tmp_path: Path, eventually: Eventually, unused_tcp_port: int
) -> None:
    """One process serves, one computes on the other box; one stop by the head's name ends both."""
    async with boxes_in(tmp_path) as boxes:
        spec = spec_of(boxes, profile_of(), unused_tcp_port, LOCAL, SPARK2)
        assert [worker.node for worker in spec.workers] == [SPARK2]
        await boxes.runtime.start(spec)
        await eventually(lambda: claimed(tmp_path, "sim") == {"both": 64})
        await eventually(lambda: claimed(tmp_path, "sim-spark2") == {"both": 64})
        (listed,) = await boxes.runtime.containers({LABEL_OWNER: OWNER})
        assert (listed.name, listed.node) == (spec.name, LOCAL)
        await boxes.runtime.stop(spec.name, 3.0)
        assert claimed(tmp_path, "sim") == claimed(tmp_path, "sim-spark2") == {}


async def test_a_worker_says_that_it_is_simulated_and_computes_while_its_head_does(
    tmp_path: Path, eventually: Eventually, unused_tcp_port: int
) -> None:
    """Its log is vLLM's, and its GPU is as busy as the head's claim says."""
    async with boxes_in(tmp_path) as boxes:
        spec = spec_of(boxes, profile_of(), unused_tcp_port, LOCAL, SPARK2)
        (worker,) = spec.workers
        head = ClaimFile("both", tmp_path / "sim")
        head.write(64 * GIB, 0.8, 40.0)
        await boxes.processes[1].start(worker)
        busy = lambda: [claim.busy for claim in read_claims(tmp_path / "sim-spark2")]  # noqa: E731
        await eventually(lambda: busy() == [0.8])
        head.write(64 * GIB)
        await eventually(lambda: busy() == [0.0])
        log = [line async for line in boxes.processes[1].logs(worker.name, follow=False)]
        assert any("SIMULATED" in line for line in log)


async def test_an_engine_on_the_other_box_leaves_this_ones_memory_alone(
    tmp_path: Path, eventually: Eventually, unused_tcp_port: int
) -> None:
    """Its figures are the other box's, with its name."""
    async with boxes_in(tmp_path) as boxes:
        await boxes.runtime.start(spec_of(boxes, profile_of("beside", nodes=1), unused_tcp_port, SPARK2))
        assert boxes.nodes is not None
        nodes = boxes.nodes
        await eventually(lambda: claimed(tmp_path, "sim-spark2") == {"beside": 64})
        memory = await nodes.fresh_memory(SPARK2)
        here = nodes.memory(LOCAL)
        assert here is not None
        assert here.available - memory.available > 60 * GIB
        assert memory.reserve == 10 * GIB
        assert claimed(tmp_path, "sim") == {}


@pytest.fixture
def nodes(tmp_path: Path) -> SimulatedNodes:
    """Two boxes without processes."""
    boxes = several_boxes(tmp_path, 2, owner=OWNER, reserve=0)
    assert boxes.nodes is not None
    return boxes.nodes


def test_they_are_what_the_daemon_takes_for_nodes(nodes: SimulatedNodes) -> None:
    """Both protocols, checked by the type checker; this box first."""
    known: Nodes = nodes
    runtimes: NodeRuntimes = nodes
    assert known.names == (LOCAL, SPARK2)
    assert list(runtimes.states) == [SPARK2]
    facts = nodes.states[SPARK2].facts
    assert facts is not None
    assert (facts.hostname, facts.driver) == ("spark2 (simulated)", "simulated")


def test_a_launch_over_both_has_addresses_on_one_network_and_one_alone_has_loopback(nodes: SimulatedNodes) -> None:
    """As real nodes tell it."""
    here, there = nodes.launch_on((LOCAL, SPARK2))
    assert (here.address, there.address) == ("192.168.100.10", "192.168.100.11")
    assert here.link is not None
    assert here.link.hca == "rocep1s0f1"
    assert nodes.launch_on((LOCAL,)) == ()
    assert [(one.name, one.address, one.link) for one in nodes.launch_on((SPARK2,))] == [(SPARK2, "127.0.0.1", None)]
    with pytest.raises(HostError, match="no node spark9"):
        nodes.launch_on(("spark9",))


def test_the_link_is_busy_while_an_engine_on_both_boxes_computes(tmp_path: Path) -> None:
    """RDMA in both directions; an engine on one box alone sends nothing."""
    now = [100.0]
    local, other = SimBox(tmp_path / "a"), SimBox(tmp_path / "b")
    nodes = SimulatedNodes(local, {SPARK2: other}, {}, folder=tmp_path, clock=lambda: now[0])

    def rate() -> Any:
        now[0] += 1
        local.memory()
        return next(link for link in nodes.samples[LOCAL].links if link.rdma).received_bytes_s

    ClaimFile("both", tmp_path / "a").write(GIB, 0.9)
    assert rate() == 0
    ClaimFile("both", tmp_path / "b", pid=os.getppid()).write(GIB, 0.9)
    assert rate() > 300e6


async def test_a_box_that_falls_silent_keeps_its_last_figures_and_answers_nothing(tmp_path: Path) -> None:
    """Their time stays behind, memory is unknown, calls are refused, and who waits is told of the return."""
    now = [100.0]
    nodes = SimulatedNodes(
        SimBox(tmp_path / "a"), {SPARK2: SimBox(tmp_path / "b")}, {}, folder=tmp_path, clock=lambda: now[0]
    )
    told: list[NodesChanged] = []
    back: list[str] = []
    nodes.on_change = lambda states: told.append(NodesChanged(nodes=states))
    nodes.on_return(back.append)
    before = nodes.samples[SPARK2]
    nodes.change(SPARK2, NodeStatus.UNREACHABLE, "The cable is out.")
    now[0] += 30
    assert nodes.samples[SPARK2] == before
    assert nodes.samples[LOCAL].at == before.at + 30
    assert all(link.up is False for link in nodes.samples[LOCAL].links)
    assert nodes.memory(SPARK2) is None
    assert nodes.memory(LOCAL) is not None
    for ask in (lambda: nodes.launch_on((SPARK2,)), lambda: nodes.runtime(SPARK2)):
        with pytest.raises(HostError) as caught:
            ask()
        assert caught.value.code == "node_unreachable"
    with pytest.raises(HostError):
        await nodes.fresh_memory(SPARK2)
    nodes.owe(SPARK2, ("sparkdash-both",))
    nodes.change(SPARK2, NodeStatus.REACHABLE)
    assert [one.nodes[SPARK2].status for one in told] == [NodeStatus.UNREACHABLE] * 2 + [NodeStatus.REACHABLE]
    assert told[1].nodes[SPARK2].owed == ("sparkdash-both",)
    assert back == [SPARK2]
    assert nodes.samples[SPARK2].at == now[0]

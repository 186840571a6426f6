"""Identity of a box: the hardware addresses of its fast ports, as cloned images share all else."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts, NodeStatus
from sparkdash.errors import AdmissionError, HostError
from sparkdash.nodes import directory
from sparkdash.nodes.boxes import Box, refuse_known_box
from sparkdash.nodes.directory import NodeDirectory, NodeInputs

FAST = Link(interface="enp1s0f0np0", address="192.168.100.1", prefix=24, hca="rocep1s0f0", hardware="4c:bb:47:00:00:01")
SLOW = Link(interface="enP7s7", address="10.0.0.1", prefix=24, rate_gbit_s=10.0, hardware="4c:bb:47:00:00:05")
BOX = NodeFacts(hostname="spark", arch="aarch64", home="/h", uid=0, boot="one image, one boot", links=(FAST, SLOW))
CLONE = BOX.replace(links=(FAST.replace(hardware="4c:bb:47:00:00:02"), SLOW.replace(hardware="4c:bb:47:00:00:06")))


@pytest.mark.parametrize("known", [CLONE, CLONE.replace(links=(FAST.replace(hardware=None),))])
def test_clones_of_one_image_are_two_boxes(known: NodeFacts) -> None:
    assert refuse_known_box(Box("spark2", facts=BOX), [Box(LOCAL, facts=known)]) is BOX


@pytest.mark.parametrize("new", [BOX, BOX.replace(boot="another", hostname="b", links=(SLOW, FAST))])
def test_the_same_ports_under_another_name_are_the_same_box(new: NodeFacts) -> None:
    with pytest.raises(AdmissionError, match="spark3 is the box spark2, which is known already") as refused:
        refuse_known_box(Box("spark3", facts=new), [Box(LOCAL), Box("spark2", facts=BOX)])
    assert refused.value.code == "node_known"


def test_a_box_without_a_fast_port_is_known_by_its_fastest_one() -> None:
    slow = BOX.replace(links=(SLOW,))
    with pytest.raises(AdmissionError):
        refuse_known_box(Box("spark3", facts=slow), [Box("spark2", facts=slow)])


async def test_a_name_that_was_written_by_hand_for_a_box_that_is_known_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A box under two names would count its memory twice. This box's own facts are waited for."""
    nodes = tuple(Node(name=name, ssh=name, host_key="ssh-ed25519 AAAA") for name in ("spark2", "spark3"))
    reader: Any = SimpleNamespace()
    made = NodeDirectory(NodeInputs(lambda: nodes, reader, "podman", "/hf", "/cache"))

    async def read_facts(connection: Any, program: str) -> NodeFacts:
        return {"spark2": BOX, "spark3": CLONE}[connection.node.name]

    monkeypatch.setattr(directory.boxes, "read_facts", read_facts)
    one, other = (monitor.connection for monitor in made._monitors.values())
    waiting = asyncio.create_task(made._read_facts(one))
    await asyncio.sleep(0)
    assert not waiting.done()
    made._local = CLONE
    made._tried_local.set()
    assert await waiting is BOX
    with pytest.raises(HostError, match=f"spark3 is the box {CLONE.hostname}, which is known already") as refused:
        await made._read_facts(other)
    assert (refused.value.code, "nodes remove spark3" in (refused.value.hint or "")) == ("node_known", True)
    made._local = None
    monitor = made._monitors["spark2"]
    monitor.state = monitor.state.replace(status=NodeStatus.REACHABLE, facts=BOX)
    assert await made._read_facts(other) is CLONE
    assert await made._read_facts(one) is BOX, "a box is not held against itself"

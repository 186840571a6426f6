"""The directory of nodes: what it knows of a node's memory."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.domain.node import Node, NodeStatus
from sparkdash.nodes.directory import NodeDirectory, NodeInputs
from sparkdash.telemetry.collector import ASLEEP_S
from sparkdash.units import GIB

NODE = Node(name="spark2", ssh="lab@spark2", host_key="ssh-ed25519 AAAA")
MEMORY = Memory(total=128 * GIB, available=100 * GIB, free=90 * GIB)


@pytest.mark.parametrize(("age_s", "known"), [(0.0, True), (ASLEEP_S + 5.0, True), (60.0, False)])
async def test_the_memory_of_a_node_is_known_between_two_figures_of_a_quiet_daemon(age_s: float, known: bool) -> None:
    """Otherwise a start on it would be refused a third of the time."""
    figures: Any = SimpleNamespace(sample=NodeSample(at=time.time() - age_s, memory=MEMORY))
    directory = NodeDirectory(
        NodeInputs(lambda: (NODE,), SimpleNamespace(), "podman", "/hf", "/cache", figures=lambda _: figures)  # type: ignore[arg-type]
    )
    link = directory._links["spark2"]
    link._state = link.state.replace(status=NodeStatus.REACHABLE)
    assert directory.memory("spark2") == (MEMORY if known else None)

"""The directory of nodes: what it knows of a node's memory."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkdash.daemon.other_nodes import OtherNodes
from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.domain.node import Node, NodeStatus
from sparkdash.nodes.directory import NodeDirectory, NodeInputs
from sparkdash.settings import Settings
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
    monitor = directory._monitors["spark2"]
    monitor.state = monitor.state.replace(status=NodeStatus.REACHABLE)
    assert directory.memory("spark2") == (MEMORY if known else None)


class SpokenTo:
    """Stands for this box's runtime: tells what it was asked."""

    name = "podman"
    containerised = True

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def start(self, spec: Any) -> Any:
        self.asked.append(f"start {spec}")


async def test_one_box_is_asked_directly_and_all_boxes_from_the_second_one_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path))
    local: Any = SpokenTo()
    reader: Any = object()
    others = OtherNodes(local, reader, Settings(), lambda _: None)
    await others.runtime.start("a spec")  # type: ignore[arg-type]
    assert local.asked == ["start a spec"]
    assert (others.nodes.names, others.nodes.launch_on(("local",))) == (("local",), ())
    (tmp_path / "nodes.toml").write_text('[spark2]\nssh = "spark2.invalid"\nhost_key = "ssh-ed25519 AAAA"\n')
    others.reload()
    assert others.nodes.names == ("local", "spark2")
    assert others.runtime.start.__self__ is others._cluster  # type: ignore[attr-defined]
    (tmp_path / "nodes.toml").write_text("")
    others.reload()
    assert others.nodes.names == ("local",)
    assert others.runtime.start.__self__ is others._cluster, "engines of the removed box are still to be ended"  # type: ignore[attr-defined]

"""Boxes: which of them are one, who is found behind a port, and what the directory knows of them."""

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import refused

from sparkdash.daemon.other_nodes import OtherNodes
from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts, NodeStatus
from sparkdash.errors import AdmissionError, HostError
from sparkdash.nodes import directory, discover
from sparkdash.nodes.boxes import Box, refuse_known_box
from sparkdash.nodes.directory import NodeDirectory, NodeInputs
from sparkdash.nodes.discover import FoundBox
from sparkdash.settings import Settings
from sparkdash.telemetry.collector import ASLEEP_S
from sparkdash.units import GIB

FAST = Link(interface="enp1s0f0np0", address="192.168.100.1", prefix=24, hca="rocep1s0f0", hardware="4c:bb:47:00:00:01")
SLOW = Link(interface="enP7s7", address="10.0.0.1", prefix=24, rate_gbit_s=10.0, hardware="4c:bb:47:00:00:05")
BOX = NodeFacts(hostname="spark", arch="aarch64", home="/h", uid=0, boot="one image, one boot", links=(FAST, SLOW))
CLONE = BOX.replace(links=(FAST.replace(hardware="4c:bb:47:00:00:02"), SLOW.replace(hardware="4c:bb:47:00:00:06")))


@pytest.mark.parametrize("known", [CLONE, CLONE.replace(links=(FAST.replace(hardware=None),))])
def test_clones_of_one_image_are_two_boxes(known: NodeFacts) -> None:
    assert refuse_known_box(Box("spark2", facts=BOX), [Box(LOCAL, facts=known)]) is BOX


@pytest.mark.parametrize("new", [BOX, BOX.replace(boot="another", hostname="b", links=(SLOW, FAST))])
def test_the_same_ports_under_another_name_are_the_same_box(new: NodeFacts) -> None:
    with refused("node_known", "spark3 is the box spark2, which is known already"):
        refuse_known_box(Box("spark3", facts=new), [Box(LOCAL), Box("spark2", facts=BOX)])


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


NEIGHBOURS = [
    {"dst": "192.168.100.2", "lladdr": "4c:bb:47:00:00:02", "state": ["STALE"]},
    {"dst": "fe80::2", "lladdr": "4c:bb:47:00:00:02", "state": ["REACHABLE"]},
    {"dst": "fe80::3", "lladdr": "4c:bb:47:00:00:03", "state": ["DELAY"]},
    {"dst": "192.168.100.9", "state": ["FAILED"]},
    {"dst": "192.168.100.254", "lladdr": "4c:bb:47:00:00:fe", "state": ["STALE"]},
]
CHASSIS = {"name": [{"value": "Spark-B.lan"}], "mgmt-ip": [{"value": "10.0.0.2"}]}
LLDP = {"lldp": [{"interface": [{"name": name, "chassis": [CHASSIS]} for name in ("lo", "wlan9")]}]}
KEYS = {"10.0.0.2": "B", "192.168.100.2": "B", "fe80::2%lo": "B", "fe80::3%lo": "C"}


async def test_a_box_that_is_seen_in_several_ways_is_one_by_its_host_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, answer in (("ip", NEIGHBOURS), ("lldpctl", LLDP)):
        (tmp_path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    async def host_key(_: str, target: str, port: int) -> str:
        if target not in KEYS:
            raise HostError("no sshd", code="node_unreachable")
        return f"ssh-ed25519 {KEYS[target]}{port}"

    async def target_of(address: str) -> discover.SshTarget:
        return discover.SshTarget(address, 2222, "lab")

    monkeypatch.setattr(discover, "ask_host_key", host_key)
    monkeypatch.setattr(discover, "resolve", target_of)
    assert await discover.find_boxes(["lo"]) == [
        FoundBox("10.0.0.2", 2222, "ssh-ed25519 B2222", "Spark-B.lan", ("lo",)),
        FoundBox("fe80::3%lo", 2222, "ssh-ed25519 C2222", None, ("lo",)),
    ]


async def test_without_lldp_and_with_an_ip_that_fails_nobody_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await discover.find_boxes(["nothere0"]) == []


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

"""How boxes are connected: found from their addresses, and what it means for the ranks of an engine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkdash.domain.cluster import Cables, Topology, groups, topology_of
from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts, NodeStatus
from sparkdash.engines.nodes import link_environment, peer_hca_map
from sparkdash.errors import HostError, ProfileError
from sparkdash.nodes.directory import NodeDirectory, NodeInputs
from sparkdash.nodes.node_file import add_node, read_nodes, read_topology
from sparkdash.nodes.shared_links import find_cables

BOXES = (LOCAL, "b", "c", "d", "e", "f", "g", "h")
RAILS = ("rocep1s0f{}", "roceP2p1s0f{}")
SLOW = Link(interface="enP7s7", prefix=24, rate_gbit_s=10)


def ring(*names: str, is_open: bool = False) -> Cables:
    near = dict.fromkeys(names, frozenset[str]())
    for here, there in zip(names, (*names[1:], names[0]), strict=True):
        if not (is_open and here == names[-1]):
            near |= {here: near[here] | {there}, there: near[there] | {here}}
    return near


def ring_links(count: int, *, is_open: bool = False) -> dict[str, list[Link]]:
    """Links of `count` boxes in a ring: two halves of each cable, port 0 to the next box, and the slow port."""
    found: dict[str, list[Link]] = {}
    for place, name in enumerate(BOXES[:count]):
        links = [SLOW.replace(address=f"10.0.0.{place + 1}")]
        for port, cable in ((0, place), (1, (place - 1) % count)):
            if is_open and cable == count - 1:
                continue
            links += [
                Link(interface=f"e{rail}{port}", address=f"10.{cable + 1}.{rail}.{place + 1}", prefix=24, up=True,
                     rate_gbit_s=200, hca=hca.format(port), gid_index=3)
                for rail, hca in enumerate(RAILS)
            ]  # fmt: skip
        found[name] = links
    return found


def directory(links: dict[str, list[Link]]) -> NodeDirectory:
    nodes = [Node(name=name, ssh=name, host_key="ssh-ed25519 AAAA") for name in links if name != LOCAL]
    reader: Any = SimpleNamespace()
    made = NodeDirectory(NodeInputs(lambda: tuple(nodes), reader, "podman", "/hf", "/cache"))
    for name, own in links.items():
        facts = NodeFacts(hostname=name, arch="aarch64", home="/home/lab", uid=1000, links=tuple(own))
        if name == LOCAL:
            made._local = facts
        else:
            monitor = made._monitors[name]
            monitor.state = monitor.state.replace(status=NodeStatus.REACHABLE, facts=facts)
    made._changed()
    return made


@pytest.mark.parametrize(("count", "is_open"), [(3, False), (4, False), (8, False), (4, True)])
def test_cables_are_found_as_networks_of_two(count: int, is_open: bool) -> None:
    names = BOXES[:count]
    cables = find_cables(ring_links(count, is_open=is_open))
    assert cables == ring(*names, is_open=is_open)
    assert topology_of(names, cables) is (Topology.LINE if is_open else Topology.RING)
    assert topology_of((names[0], names[2], names[1]), cables) is (Topology.RING if count == 3 else None)


def test_behind_a_switch_and_over_slow_ports_no_cable_is_concluded() -> None:
    switch = {
        name: [Link(interface="e", address=f"10.9.0.{at}", prefix=24, hca="r")] for at, name in enumerate("abc", 1)
    }
    assert find_cables(switch) == {}
    slow = {name: [link for link in links if not link.hca] for name, links in ring_links(4).items()}
    assert find_cables(slow) == {}
    no_rdma = {name: [link.replace(hca=None, rate_gbit_s=10) for link in each] for name, each in ring_links(4).items()}
    assert find_cables(no_rdma) == {}
    assert find_cables(no_rdma, Topology.RING) == ring(*BOXES[:4])
    assert find_cables(ring_links(4), Topology.SWITCH) == {}


def test_an_engine_gets_neighbours_in_the_order_of_their_cables() -> None:
    four = ring(LOCAL, "d", "b", "c")
    assert {frozenset(each) for each in groups(BOXES[:4], 2, four)} == {
        frozenset(pair) for pair in ((LOCAL, "d"), ("d", "b"), ("b", "c"), ("c", LOCAL))
    }
    (whole,) = groups(BOXES[:4], 4, four)
    assert whole in ((LOCAL, "d", "b", "c"), (LOCAL, "c", "b", "d"))
    assert groups(BOXES[:4], 3, four) == [], "three of four make a line"
    lines = groups(BOXES[:4], 3, four, [Topology.LINE])
    assert len(lines) == 4
    assert all(topology_of(line, four) is Topology.LINE for line in lines)
    assert {frozenset(each) for each in groups([LOCAL, "b", "c"], 2, four)} == {
        frozenset("bc"),
        frozenset((LOCAL, "c")),
    }


def test_a_profile_says_where_it_runs() -> None:
    four = ring(*BOXES[:4])
    assert groups(BOXES[:4], 4, four, [Topology.SWITCH]) == []
    assert groups(BOXES[:4], 2, four, [Topology.SWITCH]) != [], "a cable between two is as good"
    assert groups(BOXES[:4], 4, {}, [Topology.SWITCH]) == [BOXES[:4]]
    assert groups(BOXES[:4], 4, {}, [Topology.RING]) == []


def test_ranks_of_a_ring_meet_over_the_slow_port_and_compute_over_all_devices() -> None:
    launch = directory(ring_links(4)).launch_on(BOXES[:4])
    assert [each.address for each in launch] == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]
    assert {name: [link.hca for link in ends] for name, ends in launch[0].cables.items()} == {
        "b": ["rocep1s0f0", "roceP2p1s0f0"],
        "d": ["rocep1s0f1", "roceP2p1s0f1"],
    }
    env = link_environment(launch, 2)
    assert env["NCCL_IB_HCA"] == "rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1"
    assert (env["NCCL_SOCKET_IFNAME"], env["NCCL_ALGO"], env["NCCL_SWITCHLESS_RING_ONLY"]) == ("enP7s7", "Ring", "1")
    assert (env["NCCL_IB_SUBNET_AWARE_ROUTING"], env["NCCL_IB_MERGE_NICS"]) == ("1", "0")
    assert "NCCL_IB_GID_INDEX" not in env
    assert "NCCL_ALGO" not in link_environment(directory(ring_links(3)).launch_on(BOXES[:3]), 0)


def test_two_neighbours_of_a_ring_are_a_pair_on_their_own_cable() -> None:
    launch = directory(ring_links(4)).launch_on(("b", "c"))
    assert [each.cables for each in launch] == [{}, {}]
    assert [link_environment(launch, rank)["NCCL_IB_HCA"] for rank in (0, 1)] == [
        "rocep1s0f0,roceP2p1s0f0",
        "rocep1s0f1,roceP2p1s0f1",
    ]


def test_a_ring_without_a_network_of_all_says_what_it_lacks() -> None:
    links = {name: [link for link in own if link.hca] for name, own in ring_links(4).items()}
    with pytest.raises(HostError, match="share no network") as refused:
        directory(links).launch_on(BOXES[:4])
    assert "10 GbE" in (refused.value.hint or "")


# SparkRing's four compose files: profiles/glm53-flash-nvfp4-spark-tp4 at 008ee5d and deepseek-v41-flash-tp4 at 0118224.
PUBLISHED = ("1=0/2,2=0/3,3=1/3", "0=1/3,2=0/2,3=0/3", "0=1/2,1=1/3,3=0/2", "0=0/2,1=1/2,2=1/3")


def test_the_peer_maps_of_a_ring_of_four_are_those_that_were_published() -> None:
    launch = directory(ring_links(4)).launch_on(BOXES[:4])
    assert tuple(peer_hca_map(launch, rank, launch[rank].devices) for rank in range(4)) == PUBLISHED
    eight = directory(ring_links(8)).launch_on(BOXES)
    assert peer_hca_map(eight, 0, eight[0].devices) is None, "nobody has published how ranks reach the far side"
    triangle = directory(ring_links(3)).launch_on(BOXES[:3])
    assert peer_hca_map(triangle, 0, triangle[0].devices) == "1=0/2,2=1/3"
    pair = directory(ring_links(4)).launch_on(("b", "c"))
    assert peer_hca_map(pair, 1, pair[1].devices) == "0=0/1"


def test_the_declared_topology_stays_when_nodes_are_added(tmp_path: Path) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text('topology = "ring"\n')
    add_node(file, Node(name="b", ssh="b", host_key="ssh-ed25519 AAAA"))
    assert (read_topology(file), [node.name for node in read_nodes(file)]) == (Topology.RING, ["b"])
    file.write_text('topology = "star"\n')
    with pytest.raises(ProfileError, match="write one of direct, ring, line, switch"):
        read_nodes(file)

"""The doctor's checks of two boxes: what each finds on a healthy pair, and each fault with its fix."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkdash.doctor.memory import WEDGED
from sparkdash.doctor.nodes import remote_readings as script
from sparkdash.doctor.nodes.examine import NodesProbe, examine_nodes, judge_pairs, node_checks_named
from sparkdash.doctor.nodes.pair import NODE_CHECKS, BoxReadings, ClusterReadings, PairReadings
from sparkdash.domain.cluster import Topology
from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts, NodeFinding, Status
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.errors import HostError
from sparkdash.nodes.boxes import Box
from sparkdash.nodes.programs import run_here
from sparkdash.settings import Settings
from sparkdash.units import GIB

RECORDED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data/links/spark.json").read_text())
NODE_SECTIONS = {*script.SECTIONS, *script.ASKED}
LINGERS = {"uid": 1000, "user": "lab", "logind": True, "lingers": True}
IMAGE = "nvcr.io/nvidia/vllm:26.04-py3"
NODE = Node(name="spark2", ssh="lab@spark2", host_key="ssh-ed25519 AAAA")
FAST = Link(
    interface="enp1s0f1np1",
    address="192.168.100.1",
    prefix=24,
    mtu=9000,
    rate_gbit_s=200.0,
    up=True,
    hca="rocep1s0f1",
    gid_index=3,
)
SLOW = Link(interface="enP7s7", address="10.0.0.21", prefix=24, mtu=1500, rate_gbit_s=10.0, up=True)


def facts(hostname: str, links: tuple[Link, ...], **changes: Any) -> NodeFacts:
    values: dict[str, Any] = {
        "hostname": hostname,
        "arch": "aarch64",
        "home": "/home/lab",
        "uid": 1000,
        "runtime_version": "4.9.3",
        "driver": "580.142",
        "cuda": "13.0",
        "kernel": "6.17.0-1014-nvidia",
        "clock_offset_s": 0.02,
        "disk_free": 900 * GIB,
        "links": links,
    }
    return NodeFacts(**{**values, **changes})


def ends(host: int, **changes: Any) -> tuple[Link, ...]:
    fast = FAST.replace(**{"address": f"192.168.100.{host}", **changes})
    return fast, SLOW.replace(address=f"10.0.0.{20 + host}")


def pair(**sections: Any) -> PairReadings:
    here, there = copy.deepcopy(RECORDED), copy.deepcopy(RECORDED)
    there["routes"] = {"192.168.100.1": {"dev": "enp1s0f1np1"}}
    here["linger"] = there["linger"] = LINGERS
    there |= sections
    return PairReadings(
        BoxReadings(LOCAL, None, facts("spark1", ends(1)), here),
        BoxReadings("spark2", NODE, facts("spark2", ends(2)), there),
        profiles=(Profile(name="qwen3-235b", engine=EngineKind.VLLM, image=IMAGE),),
    )


def with_facts(found: PairReadings, **changes: Any) -> PairReadings:
    known = found.there.facts
    assert known
    return replace(found, there=replace(found.there, facts=known.replace(**changes)))


def judged(found: PairReadings, *names: str) -> list[NodeFinding]:
    return list(judge_pairs([found], ClusterReadings(), node_checks_named(names)))


def worst(found: PairReadings, name: str) -> NodeFinding:
    bad = [each for each in judged(found, name) if each.status not in (Status.OK, Status.NOTE)]
    assert len(bad) == 1, judged(found, name)
    return bad[0]


def test_a_healthy_pair_has_nothing_to_fix() -> None:
    found = judged(pair())
    assert {each.status for each in found} == {Status.OK}, [each for each in found if each.status is not Status.OK]
    assert {each.name for each in found} == set(NODE_CHECKS) - {"topology"}


def port(**changes: Any) -> dict[str, Any]:
    """The RDMA ports of a Spark; the one with the cable as told."""
    ports = copy.deepcopy(RECORDED["hcas"])
    ports["ports"][1] |= changes
    return {"hcas": ports}


def pinged(whole: int, small: int = 40) -> dict[str, Any]:
    return {"here": {"paths": {"192.168.100.2": {"size": 9000, "sent": 40, "whole": whole, "small": small}}}}


TWIN = FAST.replace(interface="enP2p1s0f1np1", address="192.168.100.22")
KEPT = "MemTotal: 127600748 kB\nMemAvailable: 90000000 kB\nCmaTotal: 0 kB\nCmaFree: 9700000 kB\n"
FULL = "MemTotal: 127600748 kB\nMemAvailable: 900000 kB\n"

FAULTS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "another driver": ({"facts": {"driver": "575.51"}}, "driver", "was 2.4 times slower", "ssh -t lab@spark2 'sudo apt"),
    "no driver": ({"facts": {"driver": None}}, "driver", "spark2 tells no driver", "ssh -t lab@spark2 nvidia-smi"),
    "another kernel": (
        {"facts": {"kernel": "6.11.0-1016-nvidia"}}, "kernel", "6.11.0-1016-nvidia on spark2: the slower", "full-upgrade"
    ),
    "a kernel that hangs": (
        {"facts": {"kernel": WEDGED[0]}, "here_facts": {"kernel": WEDGED[0]}},
        "kernel", "failed 7 boots of 7", "ssh -t lab@spark2",
    ),
    "memory for kexec": ({"memory": {"meminfo": KEPT}}, "handover", "9.3 GiB are kept", "kho=off"),
    "a smaller MTU": (
        {"facts": {"links": ends(2, mtu=1500)}}, "mtu", "spark1 enp1s0f1np1 9000, spark2 enp1s0f1np1 1500",
        "ssh -t lab@spark2 'sudo ip link set enp1s0f1np1 mtu 9000'",
    ),
    "RoCE with small packets": (port(active_mtu=1024), "hca", "rocep1s0f1 of spark2 sends 1024 bytes a packet", "down;"),
    "a switch with a smaller MTU": (pinged(0), "path", "packets of 9000 bytes do not pass", "switch's ports"),
    "a lossy cable": (pinged(37, 39), "path", "4 of 80 packets were lost", "cable"),
    "the wrong interface": (
        {"routes": {"192.168.100.1": {"dev": "enP7s7"}}}, "route",
        "spark2 reaches 192.168.100.1 over enP7s7, and not over enp1s0f1np1.",
        "ip route replace 192.168.100.1 dev enp1s0f1np1 src 192.168.100.2",
    ),
    "no RDMA behind the link": (
        {"facts": {"links": ends(2, hca=None, gid_index=None)}}, "hca", "NCCL falls back to TCP sockets", "mlx5_ib"
    ),
    "a port without carrier": (port(state="1: DOWN"), "hca", "rocep1s0f1 of spark2 is 1: DOWN.", "ip link set"),
    "no GID": ({"facts": {"links": ends(2, gid_index=None)}}, "gid", "has no RoCEv2 GID", "ip address add"),
    "a GID that has moved": (
        {"facts": {"links": ends(2, gid_index=5)}, "env": {"NCCL_IB_GID_INDEX": "3"}}, "gid",
        "big sets NCCL_IB_GID_INDEX=3, and spark2 has index 5.", "Remove NCCL_IB_GID_INDEX",
    ),
    "a pinned interface that a box lacks": (
        {"facts": {"links": ends(2, interface="enp1s0f0np0")}, "env": {"NCCL_SOCKET_IFNAME": "enp1s0f1np1"}}, "gid",
        "and spark2 has enp1s0f0np0, enP7s7", "",
    ),
    "a clock ahead": ({"facts": {"clock_offset_s": 3.0}}, "clock", "order", "ssh -t lab@spark2 'sudo timedatectl"),
    "a clock behind": ({"facts": {"clock_offset_s": -3600.0}}, "clock", "1h00m behind", "set-ntp true"),
    "twins in one network": (
        {"facts": {"links": (*ends(2), TWIN)}}, "subnets",
        "enp1s0f1np1 and enP2p1s0f1np1 of spark2 are both in 192.168.100.0/24", "address flush",
    ),
    "another image": (
        {"images": {IMAGE: {"id": "9" * 64, "digest": "sha256:" + "b2" * 32}}}, "image",
        "on spark1 and 999999999999 (digest b2b2b2b2b2b2) on spark2", "sparkdash nodes copy",
    ),
    "no RDMA in containers": ({"devices": {"names": [], "usable": []}}, "infiniband", "no /dev/infiniband", "modprobe"),
    "RDMA for others only": (
        {"devices": {"names": ["uverbs0"], "usable": []}}, "infiniband", "may not use", "usermod"
    ),
    "no locked memory": (
        {"memlock": {"soft": 8 << 20, "hard": 8 << 20, "uid": 1000}}, "memlock", "NCCL fails or uses TCP", "unlimited"
    ),
    "full memory": ({"memory": {"meminfo": FULL}}, "memory", "no further engine is admitted", "ps -eo"),
    "engines end with ssh": (
        {"linger": {**LINGERS, "lingers": False}}, "linger", "engines end when", "ssh -t lab@spark2 'loginctl enable-linger'"
    ),
}  # fmt: skip
"""Faults that a box can tell, of those that owners of two to eight Sparks wrote down: what is so, check, finding, fix."""


SAME_IMAGE = {**RECORDED["images"][IMAGE], "digest": "sha256:" + "b2" * 32}


@pytest.mark.parametrize(("found", "check", "status"), [
    (lambda: with_facts(pair(), links=ends(2, gid_index=5)), "gid", Status.OK),
    (lambda: pair(memlock={"soft": 8 << 20, "hard": 8 << 20, "uid": 0}), "memlock", Status.OK),
    (lambda: pair(linger={**LINGERS, "lingers": False, "uid": 0}), "linger", Status.OK),
    (lambda: pair(linger={**LINGERS, "lingers": False, "logind": False}), "linger", Status.OK),
    (lambda: pair(images={IMAGE: SAME_IMAGE}), "image", Status.OK),
    (lambda: pair(images={IMAGE: None}), "image", Status.NOTE),
])  # fmt: skip
def test_a_difference_that_harms_nothing_is_no_fault(
    found: Callable[[], PairReadings], check: str, status: Status
) -> None:
    assert {each.status for each in judged(found(), check)} == {status}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_that_owners_had_and_a_box_can_tell_is_found_with_its_fix(fault: str) -> None:
    changes, check, words, fix = FAULTS[fault]
    found = pair(**{name: value for name, value in changes.items() if name in NODE_SECTIONS})
    here, there = found.here.known(), found.there.known()
    found = replace(
        found,
        here=replace(
            found.here,
            facts=here.replace(**changes.get("here_facts", {})),
            sections={**found.here.sections, **changes.get("here", {})},
        ),
        there=replace(found.there, facts=there.replace(**changes.get("facts", {}))),
        profiles=(Profile(name="big", engine=EngineKind.VLLM, image=IMAGE, env=changes.get("env", {})),),
    )
    bad = [each for each in judged(found, check) if each.status in (Status.WARN, Status.FAIL)]
    assert any(words in each.evidence and fix in (each.fix or "") for each in bad), judged(found, check)


def test_1500_on_both_ends_of_a_fast_link_is_slow_and_not_wrong() -> None:
    found = with_facts(pair(), links=ends(2, mtu=1500))
    known = found.here.facts
    assert known
    both = replace(found, here=replace(found.here, facts=known.replace(links=ends(1, mtu=1500))))
    assert [each.status for each in judged(both, "mtu")] == [Status.WARN, Status.OK]


def test_a_fast_link_that_is_down_is_named_although_the_slow_one_works() -> None:
    found = judged(with_facts(pair(), links=ends(2, up=False)), "link")
    assert [each.status for each in found] == [Status.FAIL, Status.WARN]
    assert found[0].evidence == "enp1s0f1np1 of spark2 (192.168.100.2) is down."
    assert found[1].evidence.endswith("10 Gb/s: the only link is a slow one.")


def test_boxes_without_a_common_network_get_one_finding_and_the_rest_is_unknown() -> None:
    found = with_facts(pair(), links=(FAST.replace(address="172.16.0.9"),))
    bad = worst(found, "link")
    assert bad.status is Status.FAIL
    assert "share no network" in bad.evidence
    assert worst(found, "route").status is Status.UNKNOWN


def test_half_of_a_port_without_an_address_is_pointed_out() -> None:
    interfaces = copy.deepcopy(RECORDED["addresses"])
    interfaces["interfaces"][4]["addr_info"] = []
    found = [each for each in judged(pair(addresses=interfaces), "link") if each.status is Status.NOTE]
    assert [each.evidence.split(" has ")[0] for each in found] == ["enP2p1s0f1np1 of spark2"]


def test_the_port_of_ssh_is_part_of_a_fix() -> None:
    box = BoxReadings("spark2", NODE.replace(port=2222))
    assert box.command("df -h") == "ssh -t -p 2222 lab@spark2 'df -h'"


def test_a_silent_node_is_one_finding_and_the_others_are_examined() -> None:
    silent = HostError("spark3 cannot be reached: no answer.", code="node_unreachable", hint="See whether it is on.")
    healthy = pair()
    dead = PairReadings(healthy.here, BoxReadings("spark3", NODE.replace(name="spark3"), problem=silent))
    found = list(judge_pairs([dead, healthy], ClusterReadings(), node_checks_named(())))
    assert [(each.name, each.status, each.fix) for each in found if "spark3" in each.nodes] == [
        ("reachable", Status.FAIL, "See whether it is on.")
    ]
    assert {each.name for each in found if "spark2" in each.nodes} == set(NODE_CHECKS) - {"topology"}


def test_a_reading_of_unforeseen_shape_hides_no_other_finding() -> None:
    found = judged(pair(hcas={"ports": [{"hca": 1}]}))
    assert any(each.status is Status.UNKNOWN and "check itself failed" in each.evidence for each in found)
    assert any(each.name == "driver" and each.status is Status.OK for each in found)


def test_the_script_reads_this_box_and_a_section_that_fails_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "printed", lambda *_: (_ for _ in ()).throw(OSError("no ip here")))
    said: list[str] = []
    monkeypatch.setattr("sys.stdout.write", said.append)
    request = {"sections": ["linger", "addresses", "routes", "memory"], "peers": ["192.0.2.1"]}
    script.run(json.dumps(request))
    found = json.loads(said[-1])
    assert found["addresses"] == {"problem": "OSError: no ip here"}
    assert found["routes"] == {"192.0.2.1": {"problem": "no ip here"}}
    assert "MemAvailable" in found["memory"]["meminfo"]
    assert set(found["linger"]) == set(LINGERS)


async def test_the_probe_asks_real_boxes_by_piped_scripts() -> None:
    """Both boxes are this one, at two addresses of its loopback."""
    here, there = (Link(interface="lo", address=f"127.0.0.{n}", prefix=8, rate_gbit_s=1.0) for n in (1, 2))
    node = NODE.replace(name="other")
    probe = NodesProbe(
        settings=Settings(runtime="process"),
        here=Box(LOCAL, run_here, facts("one", (here,))),
        nodes=[(node, Box("other", run_here, facts("two", (there,))))],
        profiles=list,
    )
    found = {(each.name, each.nodes): each for each in await examine_nodes(probe, ["memory"])}
    assert found["memory", ("other",)].status is Status.OK
    assert found["memory", (LOCAL,)].evidence.endswith("(/proc/meminfo).")


async def test_a_box_without_python_is_one_finding() -> None:
    async def no_python(argv: Any, **how: Any) -> Any:
        return await run_here(("/no/such/python3", *argv[1:]), **how)

    probe = NodesProbe(
        settings=Settings(),
        here=Box(LOCAL, run_here, facts("one", ends(1))),
        nodes=[(NODE, Box("spark2", no_python, facts("spark2", ends(2))))],
        profiles=list,
    )
    found = [each for each in await examine_nodes(probe, ["memory"]) if "spark2" in each.nodes]
    assert [(each.name, each.evidence) for each in found] == [
        ("reachable", "spark2 has no python3, by which sparkdash reads what is there.")
    ]


def in_a_ring(*names: str, cut: int | None = None, lan: bool = True) -> ClusterReadings:
    """Boxes in a ring; `cut`: the cable behind this box is out; `lan`: the slow ports have addresses."""
    found = []
    for place, name in enumerate(names):
        near = [cable for cable in (place, (place - 1) % len(names)) if cable != cut]
        links = [FAST.replace(interface=f"e{cable}", address=f"192.168.{cable}.{place + 1}") for cable in near]
        links += [SLOW.replace(address=f"10.0.0.{place + 1}")] if lan else []
        node = None if name == LOCAL else NODE.replace(name=name)
        found.append(BoxReadings(name, node, facts(f"host-{name}", tuple(links))))
    return ClusterReadings(found)


def test_the_topology_is_named_and_held_against_the_declared_one() -> None:
    names = (LOCAL, "spark2", "spark3", "spark4")

    def found(cluster: ClusterReadings) -> tuple[Status, str]:
        (one,) = judge_pairs([], cluster, node_checks_named(["topology"]))
        return one.status, one.evidence

    ring = in_a_ring(*names)
    assert found(ring) == (Status.OK, "host-local - spark2 - spark3 - spark4 make a ring.")
    assert [(one.name, other.name) for one, other in ring.cabled()] == [
        (LOCAL, "spark2"), (LOCAL, "spark4"), ("spark2", "spark3"), ("spark3", "spark4"),
    ]  # fmt: skip
    open_ring = in_a_ring(*names, cut=3)._replace(declared=Topology.RING)
    status, words = found(open_ring)
    assert status is Status.FAIL
    assert words == 'nodes.toml declares `topology = "ring"`, and host-local - spark2 - spark3 - spark4 make a line.'
    assert found(in_a_ring(*names, lan=False))[0] is Status.FAIL
    without_own = [in_a_ring(*names, cut=3).boxes[0], *in_a_ring(*names).boxes[1:]]
    without_own[0] = replace(without_own[0], facts=facts("host-local", without_own[0].known().links[-1:]))
    assert found(ClusterReadings(without_own)) == (
        Status.OK,
        "the cables (spark2 - spark3, spark3 - spark4) do not join all boxes.",
    )

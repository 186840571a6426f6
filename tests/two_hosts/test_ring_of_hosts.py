"""Four hosts in a ring: a cable from each to the next, no switch and, at first, no network that all of them share.

The cables tell the rate of a fast port, which this machine's have not. All hosts have one machine-id, as clones of an
image. The opposite host is reached over a neighbour, which forwards. The tests of this file run in their order.
"""

import json
from collections.abc import Iterator

import pytest
from two_hosts import HostDaemon, TwoHosts, answer, profile, registry, swapping_daemon, until_engine, until_gone, up

pytestmark = [pytest.mark.full, pytest.mark.podman, pytest.mark.timeout(300)]

NAMES = ("a", "b", "d", "e")
BOXES = ("local", "spark2", "spark3", "spark4")
"""In the order of their cables; the last one has a cable to the first."""


@pytest.fixture(scope="module")
def ring(hosts: TwoHosts) -> Iterator[TwoHosts]:
    with TwoHosts.running("ring", "7", NAMES, ring=True) as made:
        yield made


@pytest.fixture(scope="module")
def spark(ring: TwoHosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostDaemon]:
    """A daemon on host a that knows only the host behind the neighbour; one engine at a time on each host."""
    with swapping_daemon(tmp_path_factory.mktemp("daemon"), ring, stop_grace_s=3) as daemon:
        (daemon.root / "config" / "nodes.toml").write_text(registry(ring, {"spark3": "d"}))
        with (daemon.root / "config" / "config.toml").open("a") as config:
            config.write("[policy.other-left]\npinned = true\n")  # so that the last one takes the other half
        for name, nodes in (("left", 2), ("right", 2), ("other-left", 2), ("other-right", 2), ("all", 4)):
            daemon.write(name, json.dumps(profile(nodes, name)))
        yield daemon.start()


def know_all(spark: HostDaemon, ring: TwoHosts) -> str:
    text = registry(ring, dict(zip(BOXES[1:], NAMES[1:], strict=True)))
    (spark.root / "config" / "nodes.toml").write_text(text)
    spark.post("/api/reload", {})
    spark.until_state(lambda state: set(state["nodes"]) == set(BOXES[1:]) and all_reachable(state["nodes"]))
    return text


def all_reachable(nodes: dict[str, dict[str, str]]) -> bool:
    return {each["status"] for each in nodes.values()} == {"reachable"}


def test_the_neighbours_are_found_behind_the_fast_ports_and_all_together_make_a_ring(
    spark: HostDaemon, ring: TwoHosts
) -> None:
    ids = {ring.run(host, "cat", "/etc/machine-id").stdout for host in NAMES}
    assert len(ids) == 1
    found = spark.sparkdash("nodes", "--discover", "--yes")
    assert found.returncode == 0, found
    words = " ".join(found.stderr.split())
    assert "Added spark2." in words
    assert "Added spark4." in words
    assert "spark-a - spark2 - spark3 - spark4 make a ring" in words
    again = spark.sparkdash("nodes", "add", "twice", "--ssh", "root@192.168.102.1", "--yes")
    assert (again.returncode, "which is known already." in again.stderr) == (3, True), again


def test_two_models_run_on_two_pairs_of_neighbours_and_both_are_swapped(spark: HostDaemon, ring: TwoHosts) -> None:
    for names in (("left", "right"), ("other-left", "other-right")):
        for name in names:
            up(spark, name)
        ready = spark.ready_nodes()
        assert set(ready) == set(names)
        assert {box for nodes in ready.values() for box in nodes} == set(BOXES)
        for first, second in ready.values():
            assert (BOXES.index(first) - BOXES.index(second)) % 4 in (1, 3), "a pair has a cable"
        assert {answer(spark, name) for name in names} <= {"stop", "length"}
    assert {len(ring.containers(host)) for host in NAMES} == {1}


def test_a_dead_cable_ends_the_pair_on_it_alone(spark: HostDaemon, ring: TwoHosts) -> None:
    """Both of its boxes are still reached, the other way round."""
    ready = spark.ready_nodes()
    (far,) = (name for name, nodes in ready.items() if "local" not in nodes)
    (near,) = set(ready) - {far}
    host = NAMES[BOXES.index(ready[far][0])]
    peer = NAMES[BOXES.index(ready[far][1])]
    cable = "eth1" if NAMES[(NAMES.index(host) + 1) % 4] == peer else "eth2"
    spark.until_state(lambda state: state["at"] - state["engines"][far]["ready_at"] > 15.0)  # it has answered once
    rule = ("INPUT", "-i", cable, "-j", "DROP")
    ring.run(host, "iptables", "-A", *rule)
    try:
        failure = until_engine(spark, "failed", name=far)["failure"]
        assert failure["code"] == "link_down", failure
        assert answer(spark, near) in ("stop", "length")
    finally:
        ring.run(host, "iptables", "-D", *rule)


def test_one_model_over_the_ring_needs_a_network_of_all_and_comes_up_with_one(
    spark: HostDaemon, ring: TwoHosts
) -> None:
    know_all(spark, ring)
    refused = spark.sparkdash("use", "all")
    assert "share no network" in " ".join(refused.stderr.split()), refused
    ring.add_network("eth0", "10.0.0", NAMES)
    spark.post("/api/reload", {})
    while spark.sparkdash("use", "all", timeout=200).returncode:  # until the facts of all boxes have come
        assert "share no network" in spark.state()["engines"]["all"]["failure"]["message"]
    assert spark.ready_nodes() == {"all": list(BOXES)}
    assert answer(spark, "all") in ("stop", "length")
    (container,) = ring.containers("d")
    env = ring.run("d", "podman", "inspect", "--format", "{{.Config.Env}}", container).stdout
    assert {"VLLM_HOST_IP=10.0.0.3", "NCCL_SOCKET_IFNAME=eth0"} <= {*env.strip("[]\n").split()}, env
    ring.run("d", "podman", "kill", "--signal", "KILL", container)
    failure = until_engine(spark, "failed", name="all", limit_s=15)["failure"]
    assert "spark3" in failure["message"], failure
    until_gone(ring, *NAMES)

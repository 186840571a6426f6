"""Two hosts that share nothing but a switch, examined by the doctor, and their link measured."""

from __future__ import annotations

import json
from typing import Any

import pytest
from two_hosts import HostDaemon, TwoHosts

pytestmark = [pytest.mark.podman]


def test_each_host_has_its_own_containers_and_reaches_the_other_by_ssh(hosts: TwoHosts) -> None:
    hosts.run("b", "podman", "create", "--name", "only-b", hosts.image, "x")
    assert hosts.containers("b") == {"only-b": "Created"}
    assert hosts.containers("a") == {}
    assert hosts.run("a", "ssh", "spark-b", "hostname").stdout.strip() == "spark-b"
    hosts.clear_containers()


def findings(daemon: HostDaemon, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and findings of the doctor."""
    done = daemon.sparkdash("doctor", *words, "--json")
    return done.returncode, json.loads(done.stdout)["findings"]


@pytest.mark.full
def test_the_doctor_examines_both_hosts_for_the_command_and_for_the_daemon(daemon: HostDaemon, hosts: TwoHosts) -> None:
    code, told = findings(daemon, "podman", "memory", "clock", "mtu", "route")
    assert (code, {each["status"] for each in told}) == (0, {"ok"}), told
    both, there = ["local", "spark2"], ["spark2"]
    assert [(each["name"], each.get("nodes")) for each in told] == [
        ("podman", None), ("memory", None), ("podman", there), ("memory", there),
        ("clock", both), ("mtu", both), ("route", both), ("route", both),
    ]  # fmt: skip
    routes = [each["evidence"] for each in told if each["name"] == "route"]
    assert routes[0].endswith(f"reaches {hosts.address['b']} over eth0.")
    told = daemon.get("/api/doctor?check=memory")["findings"]
    assert [each["name"] for each in told] == ["memory", "spark2: memory"]


@pytest.mark.full
def test_an_mtu_that_differs_is_found(daemon: HostDaemon, hosts: TwoHosts) -> None:
    hosts.run("b", "ip", "link", "set", "eth0", "mtu", "1400")
    try:
        code, (each,) = findings(daemon, "mtu")
    finally:
        hosts.run("b", "ip", "link", "set", "eth0", "mtu", "1500")
    assert (code, each["status"]) == (5, "fail")
    assert each["fix"] == f"ssh -t root@{hosts.address['b']} 'sudo ip link set eth0 mtu 1500'"


@pytest.mark.full
def test_a_host_without_its_sshd_is_one_finding(daemon: HostDaemon, hosts: TwoHosts) -> None:
    hosts.sshd(up=False)
    try:
        code, told = findings(daemon, "podman")
    finally:
        hosts.sshd(up=True)
    assert code == 5
    assert [(each["name"], each.get("nodes")) for each in told] == [("podman", None), ("reachable", ["spark2"])]


@pytest.mark.full
def test_the_link_is_measured_by_what_both_hosts_have_and_the_run_kept(daemon: HostDaemon, hosts: TwoHosts) -> None:
    done = daemon.sparkdash("nodes", "bench", "--seconds", "1", "--json")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert told["missing"] == {"perftest": "The link has no RDMA device on both ends."}
    assert len(told["measurements"]) == 6
    assert all(each["gbit_s"] for each in told["measurements"])
    assert len(list((daemon.root / "state" / "links").glob("*-spark2.json"))) == 1
    assert not hosts.run("b", "pgrep", "-a", "iperf3", check=False).stdout

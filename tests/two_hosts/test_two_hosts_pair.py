"""`doctor --node` and `nodes bench` over two hosts with real ssh: findings, figures, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from two_hosts import TwoHosts

pytestmark = [pytest.mark.full, pytest.mark.podman]


class Command:
    """`sparkdash …` on host a, with a registry that knows host b."""

    def __init__(self, hosts: TwoHosts, root: Path) -> None:
        self.hosts = hosts
        self.env = {
            "HOME": "/root",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "CONTAINERS_CONF": str(hosts.folder / "containers.conf"),
            **{f"SPARKDASH_{name.upper()}_DIR": str(root / name) for name in ("config", "state", "runtime")},
        }
        key = (hosts.folder / "b" / "ssh_host.pub").read_text().split()
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / "nodes.toml").write_text(
            f'[spark2]\nssh = "root@{hosts.address["b"]}"\nhost_key = "{key[0]} {key[1]}"\n'
        )

    def words(self, *argv: str) -> list[str]:
        """Words that run the command on host a."""
        return self.hosts.words("a", sys.executable, "-m", "sparkdash", *argv, env=self.env)

    def __call__(self, *argv: str) -> tuple[int, Any]:
        """Exit code and JSON of the command."""
        done = subprocess.run(self.words(*argv, "--json"), capture_output=True, text=True, timeout=90, check=False)
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            return done.returncode, json.loads(done.stderr.splitlines()[-1])


@pytest.fixture
def nodes(hosts: TwoHosts, tmp_path: Path) -> Iterator[Command]:
    """The command; afterwards the cable is in and sshd runs."""
    yield Command(hosts, tmp_path)
    hosts.link(up=True)


def until_no_script(hosts: TwoHosts) -> None:
    """Wait until no piped script runs on either host."""
    deadline = time.monotonic() + 40
    while left := [
        line
        for host in "ab"
        for line in hosts.run(host, "pgrep", "-af", "python3 - {", check=False).stdout.splitlines()
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_both_hosts_are_examined_and_nothing_of_it_stays(nodes: Command, hosts: TwoHosts) -> None:
    code, told = nodes("doctor", "--node", "spark2")
    found = {(each["name"], tuple(each["nodes"])): each for each in told["findings"]}
    assert code in (0, 1), told  # this machine's disk may be small
    assert found["podman", ("spark2",)]["status"] == "ok"
    assert found["clock", ("local", "spark2")]["status"] == "ok"
    routes = [each["evidence"] for each in told["findings"] if each["name"] == "route"]
    assert routes[0].endswith(f"reaches {hosts.address['b']} over eth0.")
    until_no_script(hosts)


def test_an_mtu_that_differs_is_found(nodes: Command, hosts: TwoHosts) -> None:
    hosts.run("b", "ip", "link", "set", "eth0", "mtu", "1400")
    try:
        code, told = nodes("doctor", "--node", "spark2", "mtu")
    finally:
        hosts.run("b", "ip", "link", "set", "eth0", "mtu", "1500")
    (each,) = told["findings"]
    assert (code, each["status"]) == (5, "fail")
    assert each["fix"] == f"ssh -t root@{hosts.address['b']} 'sudo ip link set eth0 mtu 1500'"


def test_a_host_without_its_sshd_is_one_finding(nodes: Command, hosts: TwoHosts) -> None:
    hosts.sshd(up=False)
    try:
        code, told = nodes("doctor", "--node", "spark2", "podman")
    finally:
        hosts.sshd(up=True)
    assert code == 5
    assert [(each["name"], each["nodes"]) for each in told["findings"]] == [
        ("podman", ["local"]),
        ("reachable", ["spark2"]),
    ]


def test_the_link_is_measured_by_what_both_hosts_have_and_the_run_kept(
    nodes: Command, hosts: TwoHosts, tmp_path: Path
) -> None:
    code, told = nodes("nodes", "bench", "--seconds", "1")
    assert code == 0, told
    assert told["missing"] == {"perftest": "The link has no RDMA device on both ends."}
    assert len(told["measurements"]) == 6
    assert all(each["gbit_s"] for each in told["measurements"])
    assert len(list((tmp_path / "state" / "links").glob("*-spark2.json"))) == 1
    assert not hosts.run("b", "pgrep", "-a", "iperf3", check=False).stdout

"""The ground of these tests: two hosts that share no network, processes, containers or sshd with each other."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from two_hosts import HostDaemon, TwoHosts

pytestmark = [pytest.mark.podman]


def test_each_host_has_its_own_containers_and_reaches_the_other_by_ssh(hosts: TwoHosts) -> None:
    hosts.run("b", "podman", "create", "--name", "only-b", hosts.image, "x")
    assert hosts.containers("b") == {"only-b": "Created"}
    assert hosts.containers("a") == {}
    assert hosts.run("a", "ssh", "spark-b", "hostname").stdout.strip() == "spark-b"
    hosts.clear_containers()


@pytest.mark.full
def test_a_daemon_of_host_a_answers_through_the_relay_and_dies_of_sigkill(
    new_host_daemon: Callable[..., HostDaemon],
) -> None:
    daemon = new_host_daemon().start()
    assert daemon.state()["daemon"]["host"] == "spark-a"
    daemon.kill()
    daemon.start()
    assert daemon.sparkdash("status").returncode == 0


@pytest.mark.full
def test_the_doctor_examines_host_b_too_for_the_command_and_for_the_daemon(daemon: HostDaemon, hosts: TwoHosts) -> None:
    done = daemon.sparkdash("doctor", "memory", "mtu", "--json")
    found = {
        (each["name"], tuple(each.get("nodes", ()))): each["status"] for each in json.loads(done.stdout)["findings"]
    }
    assert found == {
        ("memory", ()): "ok",
        ("memory", ("spark2",)): "ok",
        ("mtu", ("local", "spark2")): "ok",
    }
    told = daemon.get("/api/doctor?check=memory")["findings"]
    assert [each["name"] for each in told] == ["memory", "spark2: memory"]

"""Breaks between two hosts while an engine is under way: named to the user, and cleaned up on both sides."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from two_hosts import (
    NAME,
    WORKER,
    HostDaemon,
    TwoHosts,
    begin,
    daemon_that_knows_b,
    failure_of,
    notices,
    plug_in,
    profile,
    shut,
    until_engine,
    until_gone,
    until_reachable,
    up,
)  # fmt: skip

pytestmark = [pytest.mark.full, pytest.mark.podman]


@pytest.fixture
def daemon(hosts: TwoHosts, new_host_daemon: Callable[..., HostDaemon]) -> HostDaemon:
    """A daemon that counts a silent node as lost soon."""
    return daemon_that_knows_b(hosts, new_host_daemon(node_silent_s=2, stop_grace_s=3))


@pytest.fixture
def fast_link(hosts: TwoHosts) -> Iterator[str]:
    """A second network between the hosts, which engines use; ssh stays on the first one."""
    yield hosts.add_fast_link()
    hosts.remove_fast_link()


def test_a_link_cut_while_an_engine_loads_fails_the_start_and_its_worker_is_ended_later(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    with shut(hosts, "load", "a"):
        begin(daemon)
        until_engine(daemon, "loading")
        hosts.link(up=False)
        failure = failure_of(daemon)
        assert failure["message"].startswith("pair did not start. spark2 has not answered for 2 s. spark2 (root@")
        assert "What still runs on spark2 is ended when it answers again." in failure["hint"]
        until_gone(hosts, "a")
    assert "pair may still run on spark2, which does not answer." in notices(daemon)
    assert daemon.state()["nodes"]["spark2"]["owed"] == [WORKER]
    hosts.link(up=True)
    until_gone(hosts, "b")
    daemon.until_state(lambda state: state["nodes"]["spark2"]["owed"] == [])


def test_a_link_cut_while_an_engine_stops_ends_the_side_that_answers_and_the_other_one_later(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    up(daemon)
    with shut(hosts, "stop", "a", "b"):
        stopping = threading.Thread(target=daemon.call, args=("POST", "/api/stop", {"profile": NAME}, 120))
        stopping.start()
        until_engine(daemon, "stopping")
        hosts.link(up=False)
        stopping.join(timeout=120)
    assert not stopping.is_alive()
    assert NAME not in daemon.state()["engines"]
    assert hosts.containers("a") == {}
    assert daemon.state()["nodes"]["spark2"]["owed"] == [WORKER]
    plug_in(hosts, daemon)
    until_gone(hosts, "b")


def test_an_sshd_that_is_gone_is_told_from_a_box_that_is_off(daemon: HostDaemon, hosts: TwoHosts) -> None:
    up(daemon)
    hosts.sshd(up=False)
    try:
        failure = failure_of(daemon)
        assert failure["message"].startswith("pair was ended. spark2 has not answered for 2 s. spark2 (root@")
        wanted = "It answers, and no sshd does on port 22: `sudo systemctl start ssh` on it."
        daemon.until_state(lambda state: wanted in state["nodes"]["spark2"]["reason"])
        until_gone(hosts, "a")
        assert list(hosts.containers("b")) == [WORKER]
    finally:
        hosts.sshd(up=True)
    until_gone(hosts, "b")


def test_a_box_that_was_started_anew_has_nothing_of_the_engine_and_is_used_again(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    up(daemon)
    hosts.sshd(up=False)
    hosts.clear_containers_of("b")
    with another_boot(hosts, "b"):
        hosts.sshd(up=True)
        failure = failure_of(daemon)
        # back within `node_silent_s`, or after it
        assert failure["code"] in ("node_restarted", "node_unreachable")
        if failure["code"] == "node_restarted":
            assert failure["message"] == "pair was ended. spark2 was restarted while the engine ran on it."
        until_gone(hosts, "a")
        daemon.post("/api/stop", {"profile": NAME})
        until_reachable(daemon)
        assert "spark2 was restarted and can be reached again." in notices(daemon)
        up(daemon)
        assert daemon.end() == 0


@contextmanager
def another_boot(hosts: TwoHosts, host: str) -> Iterator[None]:
    """Show another boot id on a host, as after a restart: namespaces have their kernel's."""
    shown, file = "/proc/sys/kernel/random/boot_id", "/root/boot_id"
    (hosts.folder / host / "home" / "boot_id").write_text("11111111-2222-4333-8444-555555555555\n")
    hosts.run(host, "mount", "--bind", file, shown)
    try:
        yield
    finally:
        hosts.run(host, "umount", shown)


def test_a_changed_host_key_ends_the_engine_and_refuses_the_next_start_with_both_fingerprints(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    up(daemon)
    key, public = hosts.folder / "b" / "ssh_host", hosts.folder / "b" / "ssh_host.pub"
    before = key.read_bytes(), public.read_bytes()
    hosts.new_host_key()
    try:
        failure = failure_of(daemon)
        assert "The host key of spark2 (root@" in failure["message"]
        assert "pinned is SHA256:" in failure["message"]
        assert "Another machine may answer in its place." in failure["hint"]
        until_gone(hosts, "a")
        refused = daemon.sparkdash("use", NAME)
        assert (refused.returncode, "The host key of spark2 (root@" in refused.stderr) == (5, True), refused.stderr
        assert list(hosts.containers("b")) == [WORKER]  # nothing is asked of a box that may be another one
    finally:
        key.write_bytes(before[0])
        public.write_bytes(before[1])
        hosts.sshd(up=False)
        hosts.sshd(up=True)
    daemon.sparkdash("doctor", "--node", "spark2", "clock")
    daemon.post("/api/reload", {})
    until_gone(hosts, "b")


def test_an_image_of_the_same_name_that_differs_is_replaced_before_the_start_and_told(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    def image(host: str) -> str:
        return hosts.run(host, "podman", "image", "inspect", hosts.image, "--format", "{{.Id}}").stdout

    context = hosts.folder / "b" / "home" / "another"
    context.mkdir()
    (context / "Containerfile").write_text("FROM scratch\nCOPY Containerfile /another\n")
    hosts.run("b", "podman", "build", "-q", "-t", hosts.image, "/root/another")
    assert image("a") != image("b")
    up(daemon)
    assert image("a") == image("b")
    assert f"spark2 had another image under the name {hosts.image}" in notices(daemon)


def test_a_podman_that_hangs_on_a_host_that_answers_fails_the_start_within_half_a_minute(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    with hosts.program("b", "podman", "#!/bin/sh\nexec sleep 300\n"):
        begin(daemon)
        failure = failure_of(daemon)
    assert failure["code"] == "runtime_timeout"
    assert failure["message"] == "podman on spark2 gave no answer for 20 s."
    assert "does on spark2" in failure["hint"]
    assert hosts.containers("a") == {}


def test_a_dead_fast_link_is_told_and_ends_the_engine_on_both_hosts_though_ssh_goes_another_way(
    hosts: TwoHosts, fast_link: str, new_host_daemon: Callable[..., HostDaemon]
) -> None:
    daemon = daemon_that_knows_b(hosts, new_host_daemon(node_silent_s=2), interface="eth1")
    up(daemon)
    hosts.run("c", "ip", "link", "set", "wb", "down")
    daemon.until_state(
        lambda state: any("which pair uses, is down: eth1 of spark2 has no" in n["text"] for n in state["notices"]), 30
    )
    failure = failure_of(daemon)
    assert failure["code"] == "link_down"
    assert failure["message"].startswith("pair was ended. The link between this box and spark2 has been down for 1")
    until_gone(hosts, "a", "b")
    assert daemon.state()["nodes"]["spark2"]["status"] == "reachable"


def test_a_link_that_loses_every_ninth_packet_is_named_by_the_doctor_and_told_of_the_engine_that_uses_it(
    hosts: TwoHosts, fast_link: str, new_host_daemon: Callable[..., HostDaemon]
) -> None:
    """The engine goes on: a lossy link is slow, and not dead."""
    daemon = daemon_that_knows_b(hosts, new_host_daemon(node_silent_s=2), interface="eth1")
    up(daemon)
    whole = daemon.sparkdash("doctor", "path")
    assert (whole.returncode, "40 of 40 packets of" in whole.stdout) == (0, True), whole
    with hosts.lossy_link("b", "eth1"):
        found = daemon.sparkdash("doctor", "path")
        assert found.returncode == 1, found
        assert re.search(r"eth1 to spark2 eth1: \d+ of 80 packets were lost", " ".join(found.stdout.split())), found
        told = daemon.until_state(lambda state: [n for n in state["notices"] if n["code"] == "link_lossy"], 120)
    (text,) = (each["text"] for each in told["notices"] if each["code"] == "link_lossy")
    assert "spark2, which pair uses, loses packets: of the last 30 probes from this box" in text
    assert daemon.ready_nodes() == {NAME: ["local", "spark2"]}


def test_a_node_with_an_engine_is_not_removed_and_by_force_the_engine_fails_with_that_reason(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    up(daemon)
    refused = daemon.sparkdash("nodes", "remove", "spark2")
    assert refused.returncode == 3
    assert "spark2 runs pair." in refused.stderr
    assert "sparkdash stop pair" in refused.stderr
    assert daemon.sparkdash("nodes", "remove", "spark2", "--force").returncode == 0
    failure = failure_of(daemon)
    assert failure["message"] == "pair was ended. spark2 was removed from the nodes while the engine ran on it."
    until_gone(hosts, "a")
    assert list(hosts.containers("b")) == [WORKER]
    daemon.add_node("spark2")
    until_gone(hosts, "b")


def test_a_daemon_of_the_other_host_keeps_its_engine_and_its_port(
    daemon: HostDaemon, hosts: TwoHosts, new_host_daemon: Callable[..., HostDaemon]
) -> None:
    """A start on a node passes over the ports that other programs have there."""
    theirs = new_host_daemon(host="b")
    (theirs.profiles / "theirs.yaml").write_text(json.dumps(profile(1, "theirs")))
    theirs.start()
    up(theirs, "theirs")
    port = theirs.state()["engines"]["theirs"]["url"].rpartition(":")[2]
    config = daemon.root / "config" / "config.toml"
    daemon.end()
    config.write_text(
        f"{config.read_text()}".replace("engine_ports = ", "#") + f"engine_ports = [{port}, {int(port) + 1}]\n"
    )
    (daemon.profiles / "ours.yaml").write_text(json.dumps(profile(1, "ours", node="spark2")))
    daemon.start()
    until_reachable(daemon)
    up(daemon, "ours")
    assert daemon.state()["engines"]["ours"]["url"].rpartition(":")[2] == str(int(port) + 1)
    assert sorted(hosts.containers("b")) == ["sparkdash-ours", "sparkdash-theirs"]
    daemon.end()
    assert list(hosts.containers("b")) == ["sparkdash-theirs"]
    assert theirs.state()["engines"]["theirs"]["state"] == "ready"

"""Nodes over a real sshd: the commands that change them, the doctor, and the link between two hosts."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_sshd import LocalSshd
from refusals import refused
from two_hosts import HostDaemon, TwoHosts

from sparkdash.domain.node import LOCAL, NodeStatus
from sparkdash.host.box import BoxReader
from sparkdash.nodes import directory as directory_module
from sparkdash.nodes import node_file
from sparkdash.nodes.directory import NodeDirectory, NodeInputs
from sparkdash.nodes.ssh.ssh_command import fingerprint

pytestmark = [pytest.mark.podman]

Run = Callable[..., subprocess.CompletedProcess[str]]


# All nodes of the registry


@pytest.mark.full
async def test_the_directory_follows_its_registry(
    sshd: LocalSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_module, "refuse_known_box", lambda new, _: new.facts)  # here it is this box itself
    registry = tmp_path / "nodes.toml"
    told: list[dict[str, NodeStatus]] = []
    problems: list[str] = []
    directory = NodeDirectory(
        NodeInputs(
            read=lambda: node_file.read_nodes(registry),
            reader=BoxReader(),
            program="true",
            hf_home="/srv/hf",
            cache_dir="/srv/cache",
            on_change=lambda states: told.append({name: state.status for name, state in states.items()}),
            on_problem=lambda error: problems.append(error.code),
        )
    )
    assert directory.names == (LOCAL,)
    task = asyncio.create_task(directory.run())
    try:
        node_file.add_node(registry, sshd.node)
        directory.reload()
        assert directory.names == (LOCAL, "spark2")
        await directory.first_tries(30)
        assert directory.reachable("spark2")
        assert told[-1] == {"spark2": NodeStatus.REACHABLE}
        (launch,) = directory.launch_on(("spark2",))
        home = str(Path.home())
        assert (launch.hf_home, launch.cache_dir) == (f"{home}/.cache/huggingface", f"{home}/.cache/sparkdash")
        (here,) = directory.launch_on((LOCAL,))
        assert (here.address, here.hf_home, here.cache_dir) == ("127.0.0.1", "/srv/hf", "/srv/cache")
        assert directory.memory("spark2") is None
        with refused("node_unknown"):
            directory.runtime("spark9")
        registry.write_text("spark2 = 1\n")
        directory.reload()
        assert (problems, directory.names) == (["nodes_invalid"], (LOCAL, "spark2"))
        registry.unlink()
        directory.reload()
        assert directory.names == (LOCAL,)
        assert told[-1] == {}
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# The commands


@pytest.fixture
def run(sshd: LocalSshd, tmp_path: Path) -> Run:
    """Runs a `sparkdash nodes` command as a process of its own, in folders of its own."""
    env = {**os.environ, **sshd.variables, "NO_COLOR": "1", "COLUMNS": "100", "SPARKDASH_URL": "http://127.0.0.1:1"}
    env |= {f"SPARKDASH_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "RUNTIME")}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "sparkdash", "nodes", *words]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)

    return call


def test_a_key_is_shown_before_a_box_is_added_and_it_is_listed_and_removed(
    run: Run, sshd: LocalSshd, tmp_path: Path
) -> None:
    address = ("--ssh", sshd.target, "--port", str(sshd.port))
    unconfirmed = run("add", "spark2", *address)
    print_of_key = fingerprint(sshd.host_key)
    assert unconfirmed.returncode == 5
    assert f"--fingerprint {print_of_key}" in unconfirmed.stderr
    assert not (tmp_path / "config" / "nodes.toml").exists()
    wrong = run("add", "spark2", *address, "--fingerprint", "SHA256:" + "A" * 43)
    assert (wrong.returncode, print_of_key in wrong.stderr) == (5, True)
    node_file.add_node(tmp_path / "config" / "nodes.toml", sshd.node)
    twice = run("add", "spark2", *address, "--yes")
    assert (twice.returncode, "There is a node 'spark2' already." in twice.stderr) == (3, True)
    listed = run()
    assert listed.stdout.splitlines()[1].split()[:3] == ["spark2", f"{sshd.target}:{sshd.port}", "-"]
    removed = run("remove", "spark2")
    assert (removed.returncode, removed.stdout) == (0, "Removed: spark2.\n")
    assert run("remove", "spark2").returncode == 3
    assert run().stdout.startswith("No other nodes.")


@pytest.mark.full
def test_a_box_that_refuses_the_login_is_not_added(run: Run, sshd: LocalSshd, tmp_path: Path) -> None:
    keys = (sshd.folder / "authorized_keys").read_text()
    (sshd.folder / "authorized_keys").write_text("")
    try:
        done = run("add", "spark2", "--ssh", sshd.target, "--port", str(sshd.port), "--yes")
    finally:
        (sshd.folder / "authorized_keys").write_text(keys)
    assert (done.returncode, "ssh-copy-id" in done.stderr) == (5, True)
    assert not (tmp_path / "config" / "nodes.toml").exists()


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

"""Nodes over a real sshd: the life of one, the directory of all, and the commands that change it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import local_sshd
import pytest
from local_sshd import LocalSshd

from sparkdash.domain.node import LOCAL, NodeFacts, NodeStatus
from sparkdash.errors import HostError
from sparkdash.host.box import BoxReader
from sparkdash.nodes import boxes, node_file
from sparkdash.nodes import directory as directory_module
from sparkdash.nodes.directory import NodeDirectory, NodeInputs
from sparkdash.nodes.ssh import node_monitor
from sparkdash.nodes.ssh.connection import NodeConnection
from sparkdash.nodes.ssh.node_monitor import MonitorInputs, NodeMonitor
from sparkdash.nodes.ssh.ssh_command import fingerprint

pytestmark = [pytest.mark.podman]

Run = Callable[..., subprocess.CompletedProcess[str]]


async def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    await asyncio.to_thread(local_sshd.until, holds, 30)


# The life of one node


async def read_facts(connection: NodeConnection) -> NodeFacts:
    """The facts of the node, whose podman is asked nothing."""
    return await boxes.read_facts(connection, "true")


async def test_a_node_is_reachable_silent_and_reachable_again_and_says_so(
    sshd: LocalSshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_monitor, "RETRY_S", (0.05, 0.1))
    seen: list[NodeStatus] = []
    returned: list[str] = []
    orders = MonitorInputs(read_facts, lambda: seen.append(link.state.status), returned.append)
    link = NodeMonitor(sshd.node, orders)
    task = asyncio.create_task(link.run())
    try:
        await until(lambda: link.reachable)
        assert link.state.facts is not None
        assert link.state.facts.hostname == os.uname().nodename
        assert link.settled.is_set()
        sshd.stop()
        await until(lambda: link.state.status is NodeStatus.UNREACHABLE)
        assert "spark2" in (link.state.reason or "")
        assert link.state.facts is not None
        sshd.start()
        await until(lambda: link.reachable)
        assert returned == ["spark2", "spark2"]
        assert link.reason is None
        assert [one for one, other in zip(seen, [None, *seen], strict=False) if one is not other] == [
            NodeStatus.REACHABLE,
            NodeStatus.UNREACHABLE,
            NodeStatus.REACHABLE,
        ]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert not link.connection.alive


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
        with pytest.raises(HostError) as refused:
            directory.runtime("spark9")
        assert refused.value.code == "node_unknown"
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

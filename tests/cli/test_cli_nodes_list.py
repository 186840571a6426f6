"""`sparkdash nodes list` and `nodes remove` beside a daemon that knows the states of the nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import BIRTH, FakeDaemon, engine

from sparkdash.domain.engine import EngineState
from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts, NodeState, NodeStatus
from sparkdash.nodes import node_file

Run = Callable[..., Any]

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJWeGxv0lUQU1ZFNbPh1QJryx/l3ynAdohlAkSqLfmaI"
LINK = Link(interface="enp1s0f1np1", address="192.168.100.2", prefix=24, rate_gbit_s=200.0)
FACTS = NodeFacts(
    hostname="s2", arch="aarch64", home="/h", uid=1000, runtime_version="4.9.3", driver="580.142", links=(LINK,)
)
STATE = NodeState(name="spark2", status=NodeStatus.REACHABLE, since=BIRTH, facts=FACTS, link="enp1s0f1np1")


@pytest.fixture
def registry(own_folders: Path) -> Path:
    node_file.add_node(node_file.nodes_file(), Node(name="spark2", ssh="lab@spark2", port=2222, host_key=KEY))
    return node_file.nodes_file()


def test_a_node_is_listed_with_its_link_and_versions(sparkdash: Run, daemon: FakeDaemon, registry: Path) -> None:
    daemon.set(nodes={"spark2": STATE})
    done = sparkdash("nodes")
    assert done.out.splitlines()[1].split() == [
        "spark2", "lab@spark2:2222", "reachable", "enp1s0f1np1", "192.168.100.2", "200", "Gb/s", "4.9.3",
    ]  # fmt: skip
    assert "Left out to fit 80 columns: host key, driver." in done.err
    (told,) = sparkdash("nodes", "--json").json()["nodes"]
    assert (told["fingerprint"][:11], told["state"]["facts"]["driver"]) == ("SHA256:atW8", "580.142")


def test_a_silent_node_tells_its_reason_and_what_it_owes(sparkdash: Run, daemon: FakeDaemon, registry: Path) -> None:
    reason = "spark2 cannot be reached: Connection timed out. See its cable."
    state = STATE.replace(status=NodeStatus.UNREACHABLE, reason=reason, owed=("sparkdash-big-worker1",))
    daemon.set(nodes={"spark2": state})
    done = sparkdash("nodes")
    assert "unreachable" in done.out
    assert reason in done.err
    assert "spark2 still has to end: sparkdash-big-worker1." in done.err


def test_without_a_daemon_the_states_are_unknown(sparkdash: Run, nobody: None, registry: Path) -> None:
    assert sparkdash("nodes").out.splitlines()[1].split()[:3] == ["spark2", "lab@spark2:2222", "-"]
    assert sparkdash("nodes", "--json").json()["nodes"][0]["state"] is None


def test_a_node_whose_engines_run_is_not_removed(sparkdash: Run, daemon: FakeDaemon, registry: Path) -> None:
    failed = engine("old", state=EngineState.FAILED, nodes=("spark2",))
    daemon.set(nodes={"spark2": STATE}, engines={"big": engine("big", nodes=(LOCAL, "spark2")), "old": failed})
    done = sparkdash("nodes", "remove", "spark2")
    assert (done.code, done.err.splitlines()[0]) == (3, "Error: spark2 runs big.")
    assert "sparkdash stop big" in done.err
    assert node_file.read_nodes(registry)
    assert sparkdash("nodes", "remove", "spark2", "--force").code == 0
    assert node_file.read_nodes(registry) == ()


def test_a_removed_node_is_named_with_those_that_are_left(sparkdash: Run, nobody: None, registry: Path) -> None:
    node_file.add_node(registry, Node(name="spark3", ssh="spark3", host_key=KEY))
    assert sparkdash("nodes", "remove", "spark2", "--json").json() == {"removed": "spark2", "left": ["spark3"]}


@pytest.mark.parametrize("words", [("add", "Spark_2", "--ssh", "x"), ("add", "spark2"), ("remove",)])
def test_a_command_that_lacks_something_is_a_mistake_of_its_use(sparkdash: Run, words: tuple[str, ...]) -> None:
    assert sparkdash("nodes", *words).code == 2


def test_a_name_that_is_taken_is_refused_before_any_box_is_asked(sparkdash: Run, registry: Path) -> None:
    done = sparkdash("nodes", "add", "spark2", "--ssh", "192.0.2.1", "--yes")
    assert (done.code, "sparkdash nodes remove spark2" in done.err) == (3, True)

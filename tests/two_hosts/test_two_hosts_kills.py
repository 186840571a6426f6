"""A daemon killed with SIGKILL in each phase of an engine on two hosts: its successor goes on or cleans up on both."""

import random
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from local_sshd import until
from two_hosts import (
    HEAD,
    NAME,
    WORKER,
    HostDaemon,
    TwoHosts,
    begin,
    daemon_that_knows_b,
    open_chat,
    shut,
    until_engine,
    until_gone,
    until_reachable,
    up,
)  # fmt: skip

pytestmark = [pytest.mark.full, pytest.mark.podman]

MIB = 1 << 20
MODEL = "/root/killed-model"


@pytest.fixture
def daemon(hosts: TwoHosts, new_host_daemon: Callable[..., HostDaemon]) -> HostDaemon:
    """A daemon that knows host b, with a short grace for stops."""
    return daemon_that_knows_b(hosts, new_host_daemon(stop_grace_s=3))


def successor_of(daemon: HostDaemon) -> None:
    """Kill the daemon and start another."""
    daemon.kill()
    daemon.start()


def assert_one_pair(daemon: HostDaemon, hosts: TwoHosts) -> None:
    """One engine out of two containers, and no swap told twice."""
    engine = until_engine(daemon, "ready")
    assert engine["nodes"] == ["local", "spark2"]
    assert list(hosts.containers("a")) == [HEAD]
    assert list(hosts.containers("b")) == [WORKER]
    state = daemon.state()
    assert [swap["outcome"] for swap in state["swaps"] if swap["target"] == NAME] in ([], ["done"])
    assert state["nodes"]["spark2"]["owed"] == []
    daemon.post("/api/stop", {"profile": NAME}, timeout=60)
    until_gone(hosts, "a", "b")


def test_killed_while_weights_are_copied_the_next_start_sends_the_rest(
    hosts: TwoHosts, new_host_daemon: Callable[..., HostDaemon]
) -> None:
    folder = hosts.folder / "a" / "home" / "killed-model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "m.safetensors").write_bytes(random.Random(3).randbytes(40 * MIB))
    daemon = daemon_that_knows_b(hosts, new_host_daemon(), profile_more={"models": {"target": {"path": MODEL}}})
    hosts.slow_link(4 * MIB)
    try:
        begin(daemon)
        daemon.until_state(lambda state: "to reach spark2: " in ((state["swap"] or {}).get("waits_for") or ""))
        until_part_has(hosts, 8 * MIB)
        successor_of(daemon)
    finally:
        hosts.slow_link(None)
    assert hosts.containers("a") == hosts.containers("b") == {}
    assert NAME not in daemon.state()["engines"]
    until_reachable(daemon)
    assert stock_there(daemon) == {"spark2": {"image": True, "weights": False}}
    up(daemon)
    assert stock_there(daemon) == {"spark2": {"image": True, "weights": True}}
    there = hosts.folder / "b" / "home" / "killed-model"
    assert sorted(path.name for path in there.iterdir()) == ["config.json", "m.safetensors"]
    assert_one_pair(daemon, hosts)


def stock_there(daemon: HostDaemon) -> dict[str, dict[str, bool]]:
    """Stock of the pair on the other node."""
    told: dict[str, dict[str, bool]] = daemon.get("/api/shelf")["stock"][NAME]["nodes"]
    return told


def until_part_has(hosts: TwoHosts, size: int) -> None:
    """Wait until so many bytes are on host b, in the hidden file into which rsync writes."""
    there = hosts.folder / "b" / "home" / "killed-model"
    until(lambda: sum(path.stat().st_size for path in there.glob(".m.safetensors.*")) >= size, 60)


@pytest.mark.parametrize(("gate", "state"), [("load", "loading"), ("warm", "warming")])
def test_killed_before_the_engine_is_ready_the_load_goes_on_under_the_next_daemon(
    daemon: HostDaemon, hosts: TwoHosts, gate: str, state: str
) -> None:
    with shut(hosts, gate, "a"):
        begin(daemon)
        until_engine(daemon, state)
        successor_of(daemon)
        assert list(hosts.containers("a")) == [HEAD]
        assert list(hosts.containers("b")) == [WORKER]
    assert_one_pair(daemon, hosts)


def test_killed_while_the_engine_drains_it_is_adopted_and_the_stop_forgotten(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    up(daemon)
    with suppress(OSError), open_chat(daemon, NAME, max_tokens=8000, stream=True) as stream:
        next(iter(stream))
        stopping = threading.Thread(target=stop_until_killed, args=(daemon,))
        stopping.start()
        until_engine(daemon, "draining")
        daemon.kill()
        stopping.join(timeout=60)
    daemon.start()
    assert_one_pair(daemon, hosts)


def test_killed_while_the_engine_stops_the_next_daemon_ends_both_sides(daemon: HostDaemon, hosts: TwoHosts) -> None:
    up(daemon)
    with shut(hosts, "stop", "a", "b"):
        stopping = threading.Thread(target=stop_until_killed, args=(daemon,))
        stopping.start()
        until_engine(daemon, "stopping")
        daemon.until_state(lambda state: state["nodes"]["spark2"]["owed"] == [WORKER])
        successor_of(daemon)
        stopping.join(timeout=60)
        until_gone(hosts, "a", "b")
    daemon.until_state(lambda state: state["nodes"]["spark2"]["owed"] == [])
    assert NAME not in daemon.state()["engines"]


def stop_until_killed(daemon: HostDaemon) -> None:
    """Stop the engine; the daemon is killed before it answers."""
    with suppress(OSError):
        daemon.call("POST", "/api/stop", {"profile": NAME}, 60)

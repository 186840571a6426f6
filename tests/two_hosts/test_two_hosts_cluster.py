"""One engine on two hosts, with real ssh and podman: brought up, watched, ended, and nothing of it left on either."""

import json

import pytest
from two_hosts import HEAD, NAME, WORKER, HostDaemon, TwoHosts, open_chat, plug_in, profile, shut, until_gone, up

pytestmark = [pytest.mark.podman]


def test_a_pair_comes_up_as_one_engine_and_its_stop_leaves_nothing_on_either_host(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    """A host counts once: under another name it is refused."""
    again = daemon.sparkdash("nodes", "add", "spark3", "--ssh", f"root@{hosts.address['b']}", "--yes")
    assert (again.returncode, "spark3 is the box spark2, which is known already." in again.stderr) == (3, True)
    up(daemon)
    assert daemon.state()["engines"][NAME]["nodes"] == ["local", "spark2"]
    assert list(hosts.containers("a")) == [HEAD]
    assert list(hosts.containers("b")) == [WORKER]
    daemon.post("/api/stop", {"profile": NAME}, timeout=60)
    assert hosts.containers("a") == hosts.containers("b") == {}


@pytest.mark.parametrize("head_s", [60.0, 0.1])
def test_a_rank_that_crashes_in_its_load_is_named_with_its_own_last_lines_also_where_the_head_ends_first(
    daemon: HostDaemon, hosts: TwoHosts, head_s: float
) -> None:
    with shut(hosts, "crash", "a", "b"):
        for host, seconds in (("a", head_s), ("b", 1.5)):
            (hosts.folder / host / "home/gates/crash").write_text(str(seconds))
        used = daemon.sparkdash("use", NAME)
    said = " ".join(used.stderr.split())
    assert used.returncode == 4
    assert "pair did not start. Rank 1 on spark2 died: RuntimeError: Worker_TP1 has no such expert." in said
    assert "last log lines: [spark2] (Worker_TP1 pid=1) INFO " in said
    assert "EngineCore" not in said
    failure = daemon.state()["engines"][NAME]["failure"]
    assert failure["log_tail"][-2:] == [
        "[spark2] (Worker_TP1 pid=1) RuntimeError: Worker_TP1 has no such expert",
        "sparkdash: rank 1 on spark2 ended the engine: its container ended with exit code 1.",
    ]
    assert hosts.containers("a") == hosts.containers("b") == {}


def test_a_cut_link_fails_the_engine_and_the_other_side_is_ended_when_the_link_is_back(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    up(daemon)
    hosts.link(up=False)
    state = daemon.until_state(lambda state: state["engines"].get(NAME, {}).get("state") == "failed", 90)
    assert "spark2 has not answered for 5 s. spark2 (root@" in state["engines"][NAME]["failure"]["message"]
    until_gone(hosts, "a")
    assert state["nodes"]["spark2"]["owed"] or daemon.until_state(lambda state: state["nodes"]["spark2"]["owed"])
    hosts.link(up=True)
    until_gone(hosts, "b")
    daemon.until_state(lambda state: not state["nodes"]["spark2"]["owed"])


@pytest.mark.full
def test_a_profile_pinned_to_the_other_host_answers_over_a_forwarded_port_beside_one_here_until_the_link_is_cut(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    (daemon.profiles / "there.yaml").write_text(json.dumps(profile(1, "there", node="spark2")))
    (daemon.profiles / "here.yaml").write_text(json.dumps(profile(1, "here", node="local")))
    daemon.post("/api/reload", {})
    up(daemon, "there")
    up(daemon, "here")
    assert list(hosts.containers("a")) == ["sparkdash-here"]
    assert list(hosts.containers("b")) == ["sparkdash-there"]
    with open_chat(daemon, "there", max_tokens=8000, stream=True) as stream:
        assert b"there" in next(line for line in stream if b'"content"' in line)
        hosts.link(up=False)
        said = b"".join(stream).decode()
    assert '"code":"node_unreachable"' in said
    # on a busy box the connection may end before the engine is given up
    assert "there was ended. spark2 has not answered for 5 s." in said or "there cannot be reached. spark2" in said
    assert said.endswith("data: [DONE]\n\n")
    state = daemon.until_state(lambda state: state["engines"]["there"]["state"] == "failed")
    assert state["engines"]["here"]["state"] == "ready"
    plug_in(hosts, daemon)
    until_gone(hosts, "b")


@pytest.mark.full
def test_an_engine_on_a_host_that_is_silent_at_the_start_is_adopted_when_it_returns(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    (daemon.profiles / "there.yaml").write_text(json.dumps(profile(1, "there", node="spark2")))
    daemon.post("/api/reload", {})
    up(daemon, "there")
    daemon.kill()
    hosts.link(up=False)
    daemon.start()
    daemon.until_state(lambda state: state["nodes"]["spark2"]["status"] == "unreachable")
    assert "there" not in daemon.state()["engines"]
    plug_in(hosts, daemon)
    daemon.until_state(lambda state: state["engines"].get("there", {}).get("state") == "ready")
    assert daemon.state()["engines"]["there"]["nodes"] == ["spark2"]

"""Nodes on the command line: their list and removal, `doctor --node` and `nodes bench`, and what `status` and `why` tell of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import BIRTH, GIB, FakeDaemon, engine, sample, summary

from sparkdash.cli import doctor, node_link
from sparkdash.cli.status_page import status_lines
from sparkdash.domain.engine import EngineState
from sparkdash.domain.metric import EngineSample, Gpu, LinkSample, Memory, Metric, NodeSample
from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts, NodeFinding, NodeState, NodeStatus, Status
from sparkdash.domain.swap import Plan, PlanNode
from sparkdash.nodes import node_file
from sparkdash.nodes.link_bench import LinkMeasurement, LinkRun, LinkTool

Run = Callable[..., Any]

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJWeGxv0lUQU1ZFNbPh1QJryx/l3ynAdohlAkSqLfmaI"
FACTS = NodeFacts(
    hostname="s2", arch="aarch64", home="/h", uid=1000, runtime_version="4.9.3", driver="580.142",
    links=(Link(interface="enp1s0f1np1", address="192.168.100.2", prefix=24, rate_gbit_s=200.0),),
)  # fmt: skip
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


LINK = Link(interface="enp1s0f1np1", address="192.168.100.1", prefix=24, mtu=9000, hca="rocep1s0f1")
RUN = LinkRun(
    at=1_700_000_000.0,
    node="spark2",
    here=LINK,
    there=LINK.replace(address="192.168.100.2"),
    facts={
        LOCAL: NodeFacts(hostname="spark1", arch="aarch64", home="/h", uid=0),
        "spark2": NodeFacts(hostname="s2", arch="aarch64", home="/h", uid=0),
    },
    measurements=(
        LinkMeasurement(
            tool=LinkTool.PERFTEST, what="ib_write_lat", source=LOCAL, target="spark2", size=2, latency_us=1.62,
            latency_p99_us=2.0,
        ),
        LinkMeasurement(
            tool=LinkTool.PERFTEST, what="ib_write_bw", source=LOCAL, target="spark2", streams=4, size=65536, gbit_s=108.4
        ),
    ),
    missing={LinkTool.IPERF3: "iperf3 is not installed on both boxes: `sudo apt install iperf3`."},
)  # fmt: skip


def add(own_folders: Path, *names: str) -> None:
    """Write a registry with these nodes, none of which answers."""
    tables = (f'[{name}]\nssh = "{name}.invalid"\nhost_key = "ssh-ed25519 AAAA"\n' for name in names)
    (own_folders / "config" / "nodes.toml").write_text("\n".join(tables))


@pytest.mark.parametrize(("nodes", "words", "told"), [
    ((), "doctor --node spark2", "There is no other node."),
    ((), "nodes bench", "sparkdash nodes add"),
    (("spark2", "spark3"), "doctor --node spark9", "There are spark2, spark3."),
    (("spark2", "spark3"), "nodes bench", "There are several nodes: spark2, spark3."),
    (("spark2",), "doctor --node spark2 mtuu", "Did you mean mtu?"),
])  # fmt: skip
def test_a_node_or_a_check_that_is_not_there_is_refused_with_what_there_is(
    sparkdash: Run, own_folders: Path, nodes: tuple[str, ...], words: str, told: str
) -> None:
    if nodes:
        add(own_folders, *nodes)
    done = sparkdash(*words.split())
    assert (done.code, told in done.err) == (3, True)


@pytest.mark.parametrize(("status", "code"), [(Status.OK, 0), (Status.NOTE, 0), (Status.WARN, 1), (Status.FAIL, 5)])
def test_the_exit_code_is_that_of_the_worst_finding(
    sparkdash: Run, own_folders: Path, monkeypatch: pytest.MonkeyPatch, status: Status, code: int
) -> None:
    add(own_folders, "spark2")

    async def found(*_: Any) -> tuple[NodeFinding, ...]:
        ok = NodeFinding(name="podman", status=Status.OK, evidence="podman 4.9.3.", nodes=(LOCAL,))
        bad = NodeFinding(name="mtu", status=status, evidence="x.", fix="fix it", nodes=(LOCAL, "spark2"))
        return ok, bad

    monkeypatch.setattr("sparkdash.doctor.nodes.examine.examine_registered", found)
    monkeypatch.setattr(doctor.platform, "node", lambda: "spark1")
    done = sparkdash("doctor", "--node", "spark2")
    assert done.code == code
    lines = done.out.splitlines()
    assert lines[0].split() == ["ok", "spark1:", "podman", "podman", "4.9.3."]
    assert "spark2 pair: mtu" in lines[1]
    assert "fix: fix it" in lines[2]
    told = sparkdash("doctor", "--node", "spark2", "--json").json()
    assert [each["nodes"] for each in told["findings"]] == [["local"], ["local", "spark2"]]


def test_a_node_that_cannot_be_reached_is_one_finding(sparkdash: Run, own_folders: Path) -> None:
    add(own_folders, "spark2")
    done = sparkdash("doctor", "--node", "spark2", "podman", "--json")
    assert done.code == 5
    found = [each for each in done.json()["findings"] if each["nodes"] == ["spark2"]]
    assert [(each["name"], each["status"]) for each in found] == [("reachable", "fail")]
    assert found[0]["fix"]


def test_the_page_of_a_measured_link_tells_both_ends_and_each_figure_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    slow = RUN.measurements[0].replace(what="all_reduce_perf, bus bandwidth", latency_p99_us=2058.3)
    node_link.print_run(RUN.replace(measurements=(slow, RUN.measurements[1])))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("spark1 enp1s0f1np1 rocep1s0f1 (192.168.100.1, MTU 9000) and spark2")
    assert max(map(len, lines[2:])) <= 80
    assert "1.6 us (p99 2058.3)" in lines[3]
    assert "108.4" in lines[4]


def test_a_tool_that_did_not_measure_is_a_row_of_dashes_and_the_way_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    node_link.print_run(RUN)
    lines = capsys.readouterr().out.splitlines()
    assert ["iperf3", *["-"] * 6] in [line.split() for line in lines]
    assert "iperf3: iperf3 is not installed on both boxes: `sudo apt install iperf3`." in lines


NOW = BIRTH + 3700
MEMORY = Memory(
    total=int(121.7 * GIB), available=int(20.9 * GIB), free=GIB, reserve=10 * GIB, engines={"big": 98 * GIB}
)
RDMA = LinkSample(name="rocep1s0f1", rdma=True, received_bytes_s=380e6, sent_bytes_s=375e6, up=True, rate_gbit_s=200)


def text(fake: FakeDaemon, state: NodeState, at: float = NOW) -> list[str]:
    there = NodeSample(at=at, memory=MEMORY, gpu=Gpu(utilization=0.91, power_w=58, temperature_c=69))
    nodes = {"spark2": there, LOCAL: NodeSample(at=NOW, links=(RDMA,))}
    told: dict[str, Any] = {
        "at": NOW,
        "engines": {"big": engine("big", nodes=(LOCAL, "spark2")), "small": engine("small", nodes=("spark2",))},
        "sample": sample(at=NOW, memory=MEMORY, nodes=nodes),
        "nodes": {"spark2": state},
    }
    fake.set(**told)
    return list(status_lines(fake.bus.snapshot))


def test_both_boxes_and_their_link_in_words(daemon: FakeDaemon) -> None:
    state = NodeState(name="spark2", status=NodeStatus.REACHABLE, since=BIRTH, link="enp1s0f1np1", guarded=True)
    lines = text(daemon, state)
    assert [line for line in lines if line.startswith("engine")] == [
        "engine    big  vllm -  ready  1h01m  on spark-1 + spark2",
        "engine    small  vllm -  ready  1h01m  on spark2",
    ]
    start = lines.index("node      spark-1  this box")
    assert lines[start : start + 6] == [
        "node      spark-1  this box",
        "memory    20.9 GiB available of 121.7 GiB  engines 98.0 GiB  reserve 10.0 GiB",
        "node      spark2  reachable 1h01m  link enp1s0f1np1  memory guard runs",
        "memory    20.9 GiB available of 121.7 GiB  engines 98.0 GiB  reserve 10.0 GiB",
        "gpu       91 %  58 W  69 °C  -",
        "link      rocep1s0f1  RDMA 3.0 Gb/s in, 3.0 Gb/s out, 1.5 % of 200 Gb/s",
    ]


@pytest.mark.parametrize(
    ("share", "told"), [(0.0152, "step      link ≥ 1.5 % of a step"), (None, "step      link - of a step")]
)
def test_the_share_of_a_step_that_the_link_takes_is_told_of_an_engine_on_both(
    daemon: FakeDaemon, share: float | None, told: str
) -> None:
    values = {Metric.RUNNING: 1.0} | ({} if share is None else {Metric.LINK_SHARE: share})
    figures = EngineSample(at=NOW, values=values)
    nodes = {"spark2": NodeState(name="spark2", status=NodeStatus.REACHABLE, since=BIRTH)}
    engines = {"big": engine("big", nodes=(LOCAL, "spark2")), "small": engine("small", nodes=("spark2",))}
    daemon.set(at=NOW, engines=engines, sample=sample(at=NOW, engines={"big": figures, "small": figures}), nodes=nodes)
    assert [line for line in status_lines(daemon.bus.snapshot) if line.startswith("step")] == [told]


def test_a_silent_box_has_a_reason_and_no_figure_of_now(daemon: FakeDaemon) -> None:
    why = "ssh to spark2 timed out after 9 s. Check the cable and the power of spark2; sparkdash tries again."
    state = NodeState(
        name="spark2", status=NodeStatus.UNREACHABLE, since=NOW - 62, reason=why, owed=("sparkdash-small",)
    )
    lines = text(daemon, state, at=NOW - 65)
    start = lines.index("node      spark2  unreachable 1m02s")
    assert lines[start + 1 : start + 5] == [
        "          ssh to spark2 timed out after 9 s. Check the cable and the power of",
        "          spark2; sparkdash tries again.",
        "          sparkdash-small ends there as soon as the node answers.",
        "memory    -  1m05s ago: 20.9 GiB available of 121.7 GiB",
    ]
    assert not lines[start + 5].startswith("gpu")


def test_an_engine_without_a_lost_box_is_degraded_and_a_box_that_is_back_says_what_differs(daemon: FakeDaemon) -> None:
    either = engine("either", nodes=(LOCAL, "spark2"))
    wide = engine("wide", EngineState.FAILED, nodes=(LOCAL, "spark2", "spark3"))
    nodes = {
        "spark2": NodeState(name="spark2", status=NodeStatus.REACHABLE, since=BIRTH),
        "spark3": NodeState(name="spark3", status=NodeStatus.UNREACHABLE, since=BIRTH),
    }
    profiles = (summary("either", nodes=4, fewer={2: "1" * 12}), summary("wide", nodes=3, fallbacks=("small",)))

    def told(beginning: str) -> list[str]:
        engines = {"either": either, "wide": wide}
        daemon.set(at=NOW, engines=engines, profiles=profiles, nodes=nodes, sample=sample(at=NOW))
        return [line for line in status_lines(daemon.bus.snapshot) if line.startswith(beginning)]

    first, second = told("engine")
    assert first.endswith("on spark-1 + spark2  degraded: 2 of 4 boxes, without spark3")
    assert second.endswith("degraded: spark3 is gone; small answers for it")
    nodes["spark3"] = nodes["spark3"].replace(status=NodeStatus.REACHABLE, differs="en1 is down")
    assert "          It is back with en1 is down; no engine over several boxes uses it." in told("   ")
    nodes["spark3"] = nodes["spark3"].replace(differs=None)
    assert not any("degraded" in line for line in told("engine"))


def test_old_figures_of_a_node_have_their_age(daemon: FakeDaemon) -> None:
    lines = text(daemon, NodeState(name="spark2", status=NodeStatus.REACHABLE, since=BIRTH), at=NOW - 12)
    assert any(line.endswith("reserve 10.0 GiB  (12s ago)") for line in lines)


BOTH = Plan(
    profile="big", nodes=(LOCAL, "spark2"), evict=("old",), reasons={"old": "idle for 12m34s; it frees 80.0 GiB"},
    on_nodes=(
        PlanNode(node=LOCAL, now_bytes=20 * GIB, available_bytes=90 * GIB, fits=True),
        PlanNode(node="spark2", now_bytes=110 * GIB, available_bytes=100 * GIB, fits=True),
    ),
    needs_bytes=74 * GIB, now_bytes=20 * GIB, reserve_bytes=10 * GIB, available_bytes=90 * GIB, fits=True,
    verdict="It fits once old has left.",
)  # fmt: skip
REACHABLE = NodeState(name="spark2", status=NodeStatus.REACHABLE, since=BIRTH)


def test_why_tells_the_figures_of_each_node(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(nodes={"spark2": REACHABLE})
    daemon.plans["big"] = BOTH
    told = sparkdash("why", "big").out.splitlines()
    assert "  runs on         spark-1 + spark2, the need on each" in told
    assert "  available now   20.0 GiB on spark-1, 110.0 GiB on spark2" in told
    assert "  reserve         10.0 GiB, kept free on each (`reserve_gib` in config.toml)" in told
    assert "  available then  90.0 GiB on spark-1, 100.0 GiB on spark2, without the reserve" in told
    words = "It needs 74.0 GiB on each of spark-1 + spark2; 90.0 GiB on spark-1, 100.0 GiB on spark2 will be available."
    assert words in sparkdash("use", "big", "--yes", "--no-wait").err


def test_why_names_the_box_of_a_profile_for_one(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(nodes={"spark2": REACHABLE})
    daemon.plans["big"] = BOTH.replace(nodes=("spark2",), on_nodes=BOTH.on_nodes[1:], now_bytes=110 * GIB, evict=())
    told = sparkdash("why", "big").out.splitlines()
    assert "  runs on         spark2" in told
    assert "  available now   110.0 GiB" in told
    assert "It needs 74.0 GiB on spark2; 90.0 GiB will be available." in sparkdash("use", "big", "--no-wait").err

"""`sparkdash status` and `why` with another node: figures of both boxes, the link, and a node that is silent."""

from collections.abc import Callable
from typing import Any

import pytest
from fake_daemon import BIRTH, GIB, FakeDaemon, engine, sample, summary

from sparkdash.cli.status_page import status_lines
from sparkdash.domain.engine import EngineState
from sparkdash.domain.metric import EngineSample, Gpu, LinkSample, Memory, Metric, NodeSample
from sparkdash.domain.node import LOCAL, NodeState, NodeStatus
from sparkdash.domain.swap import Plan, PlanNode

Run = Callable[..., Any]

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


def test_one_box_has_no_word_of_nodes(daemon: FakeDaemon) -> None:
    daemon.set(at=NOW, engines={"small": engine("small")}, sample=sample(at=NOW, memory=MEMORY))
    told = "\n".join(status_lines(daemon.bus.snapshot))
    assert "node" not in told
    assert "link" not in told
    assert " on spark-1\nu" not in told


BOTH = Plan(
    profile="big",
    nodes=(LOCAL, "spark2"),
    on_nodes=(
        PlanNode(node=LOCAL, now_bytes=20 * GIB, available_bytes=90 * GIB, fits=True),
        PlanNode(node="spark2", now_bytes=110 * GIB, available_bytes=100 * GIB, fits=True),
    ),
    evict=("old",),
    reasons={"old": "idle for 12m34s; it frees 80.0 GiB"},
    needs_bytes=74 * GIB,
    now_bytes=20 * GIB,
    reserve_bytes=10 * GIB,
    available_bytes=90 * GIB,
    fits=True,
    verdict="It fits once old has left.",
)
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

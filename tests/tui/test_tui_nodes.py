"""Two boxes on the screen: both well, one silent, the link busy, an engine over both, an engine on each."""

from typing import Any

import pytest
from states_trouble import node, node_silent, of_both

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import NodesChanged, SampleTaken
from sparkdash.domain.memory import Floors, Guard
from sparkdash.domain.metric import LinkSample, Metric, NodeSample
from sparkdash.domain.node import LOCAL, NodeState, NodeStatus
from sparkdash.domain.swap import Plan, PlanNode
from sparkdash.units import GIB

TWO = "qwen3-235b"
SPARK2 = "spark2"


def figures(box: Any, at: float | None = None, **held: int) -> NodeSample:
    return of_both(box, at or box.now, **held)[SPARK2]


def link(received: float = 0.0, sent: float = 0.0, **changes: Any) -> NodeSample:
    """Our end of the cable: an RDMA port, and the network interface over it."""
    values: dict[str, Any] = {
        "name": "rocep1s0f1", "rdma": True, "received_bytes_s": received, "sent_bytes_s": sent, "errors": 0,
        "up": True, "rate_gbit_s": 200.0,
    }  # fmt: skip
    tcp = LinkSample(name="enp1s0f1np1", received_bytes_s=4000.0, sent_bytes_s=9000.0, up=True, rate_gbit_s=200.0)
    return NodeSample(at=1.0, links=(LinkSample(**(values | changes)), tcp))


def two(box: Any, state: NodeState | None = None, sample: Any = None, **changes: Any) -> Any:
    nodes = {SPARK2: state or node(box)}
    told = sample or box.sample().replace(nodes={SPARK2: figures(box), LOCAL: link()})
    return box.snapshot(nodes=nodes, sample=told, **changes)


def over_both(box: Any, state: EngineState = EngineState.READY, **changes: Any) -> Any:
    held = 98 * GIB
    sample = box.sample(profile=TWO, engines={TWO: held}, available=int(16.2 * GIB), free=2 * GIB, page_cache=4 * GIB)
    busy = link(380e6, 375e6) if state is EngineState.READY else link(2e9, 4e6)
    sample = sample.replace(nodes={SPARK2: figures(box, **{TWO: held}), LOCAL: busy})
    engine = box.engine(TWO, state, nodes=(LOCAL, SPARK2))
    profiles = (*box.snapshot().profiles, box.profile(TWO, nodes=2, needs_bytes=98 * GIB))
    return two(box, sample=sample, engines={TWO: engine}, profiles=profiles, **changes)


async def test_eight_boxes_have_a_row_each(stage: Any, box: Any) -> None:
    names = [f"spark{number}" for number in range(2, 9)]
    states = {name: node(box, name=name) for name in names}
    states["spark5"] = node(box, NodeStatus.UNREACHABLE, name="spark5", reason="ssh timed out")
    sample = box.sample().replace(nodes={LOCAL: link(), **{name: figures(box) for name in names}})
    async with stage(box.snapshot(nodes=states, sample=sample)) as on:
        rows = [line for line in on.lines if any(name in line[:12] for name in names)]
        assert len(rows) == 7
        assert sum("21.0 GiB of 121.7 GiB" in row for row in rows) == 7
        assert ["unreachable 1m02s" in row for row in rows] == [name == "spark5" for name in names]
        assert any("link rocep1s0f1" in line for line in on.lines)
        assert any("codex" in line for line in on.lines)


@pytest.mark.parametrize(("running", "share", "told"), [
    (2, 0.0152, "link ≥ 1.5 % of a step"), (2, 0.31, "link ≥ 31 % of a step"), (2, None, "link - of a step"),
    (0, None, ""),
])  # fmt: skip
async def test_the_share_of_a_step_that_the_link_takes_is_told_while_requests_run(
    stage: Any, box: Any, running: int, share: float | None, told: str
) -> None:
    world = over_both(box)
    sample = world.sample.engines[TWO]
    values = {**sample.values, Metric.RUNNING: running}
    values |= {Metric.LINK_SHARE: share} if share is not None else {}
    engines = {TWO: sample.replace(values=values)}
    async with stage(world.replace(sample=world.sample.replace(engines=engines))) as on:
        foot = on.card_foot
        assert foot.startswith("╰")
        assert told in foot
        assert ("of a step" in foot) == bool(told)
        assert on.card_foot.endswith("/v1 ─╯")


async def test_the_history_of_swaps_names_the_boxes_of_each(stage: Any, box: Any) -> None:
    swaps = (box.ended("s1", target=TWO, nodes=(LOCAL, SPARK2)), box.ended("s2", nodes=(SPARK2,)))
    async with stage(two(box, swaps=swaps), size=(120, 40)) as on:
        await on.press("6", "v")
        assert any("qwen3-235b on spark-1 + spark2" in line for line in on.lines if " ✓ " in line)


ETHERNET = LinkSample(name="enp1s0f1np1", received_bytes_s=60e6, sent_bytes_s=58e6, up=True)


@pytest.mark.parametrize(("ports", "told"), [
    (link().links, "link rocep1s0f1 200 Gb/s, idle ─"),
    ((ETHERNET,), "link enp1s0f1np1 TCP 0.5 Gb/s in, 0.5 Gb/s out"),
    (link(up=False, errors=3).links[:1], "link rocep1s0f1 ✗ down  ⚠ 3 errors"),
], ids=["idle", "not RDMA", "down"])  # fmt: skip
async def test_the_edge_below_both_boxes_tells_how_their_link_is(
    stage: Any, box: Any, ports: tuple[LinkSample, ...], told: str
) -> None:
    """Two boxes whose engines fell back to TCP are slow, and the screen tells why."""
    sample = box.sample().replace(nodes={SPARK2: figures(box), LOCAL: link().replace(links=ports)})
    async with stage(two(box, sample=sample)) as on:
        assert told in on.below_card[6]


async def test_a_load_over_both_boxes_names_them(stage: Any, box: Any) -> None:
    swap = box.swap(target=TWO, evict=())
    async with stage(over_both(box, EngineState.LOADING, swap=swap)) as on:
        assert "swap to qwen3-235b on spark-1 + spark2" in on.lines[1]
        assert "RDMA 16.0 Gb/s in" in on.below_card[6]


async def test_an_engine_on_each_box_says_where_it_runs(stage: Any, box: Any) -> None:
    """Figures of a box that stay away are left out, and their age is told."""
    sample = box.sample().replace(nodes={SPARK2: figures(box, box.now - 7, gemma=60 * GIB), LOCAL: link()})
    engines = {box.gpt: box.engine(), "gemma": box.engine("gemma", nodes=(SPARK2,), ready_at=box.now - 9000)}
    async with stage(two(box, sample=sample, engines=engines)) as on:
        assert "· on spark-1 ─" in on.lines[1]
        assert on.below_card[0].startswith(" gemma")
        assert on.below_card[0].rstrip().endswith("on spark2")
        assert "gemma" not in on.below_card[3]
        assert on.below_card[4].startswith("├ spark2 ── 7s old ─")
        assert "gpu" not in on.below_card[4]
        assert "█ gemma 60.0" in on.below_card[6]


async def test_a_silent_box_is_drawn_dim(stage: Any, box: Any) -> None:
    async with stage(node_silent(box)) as on:
        (panel,) = on.app.screen.query("MemoryBar")
        bars = [line for line in panel._lines if any("▓" in span.text for span in line)]
        live, past = bars[0], bars[-1]
        assert any(span.style == "fill" for span in live)
        assert {span.style for span in past} <= {"dim", "faint", "plain"}
        assert not any(span.style == "plain" and span.text.strip() for span in past)


async def test_a_box_goes_silent_and_comes_back_before_ones_eyes(stage: Any, box: Any) -> None:
    async with stage(two(box)) as on:
        await on.happen(NodesChanged(nodes={SPARK2: node(box, NodeStatus.UNREACHABLE, since=box.now)}))
        assert on.below_card[3].startswith("├ spark2 ── ✗ unreachable 0s ─")
        assert "client" in on.below_card[7]
        await on.later(20)
        assert "21.0 GiB available 20s ago" in on.below_card[3]
        sample = box.sample(box.now + 20).replace(nodes={SPARK2: figures(box, box.now + 20), LOCAL: link()})
        back = NodesChanged(nodes={SPARK2: node(box, since=box.now + 20)})
        await on.happen(back, SampleTaken(sample=sample), at=box.now + 20)
        assert "available 21.0 GiB of 121.7 GiB" in on.below_card[3]
        await on.happen(NodesChanged(nodes={}), at=box.now + 20)
        assert on.below_card[0].startswith("╭ unified memory ─")
        assert "client" in on.below_card[5]


async def test_a_node_without_a_guard_is_marked_where_this_box_has_one(stage: Any, box: Any) -> None:
    guard = Guard(mode="act", floors=Floors(warn=12 << 30, hold=8 << 30, kill=5 << 30))
    async with stage(over_both(box, guard=guard), size=(120, 40)) as on:
        assert "├ spark2 ── ! no memory guard ─" in on.text
        await on.happen(NodesChanged(nodes={SPARK2: node(box, guarded=True)}))
        assert "no memory guard" not in on.text
        await on.happen(NodesChanged(nodes={SPARK2: node(box, guarded=True, differs="en1 is down")}))
        assert "├ spark2 ── ! en1 is down ─" in on.text


async def test_another_box_of_the_demo_is_marked_simulated(stage: Any, box: Any) -> None:
    world = two(box)
    daemon = world.daemon.replace(simulated=True)
    async with stage(world.replace(daemon=daemon)) as on:
        assert on.below_card[3].startswith("├ spark2 SIM ── gpu  91 %  69 °C   58 W ─")


async def test_the_list_of_profiles_says_who_needs_two_nodes(stage: Any, box: Any) -> None:
    """Beside the name where no column tells it; a profile for one box has no such word."""
    async with stage(over_both(box), size=(80, 24)) as on:
        await on.press("2")
        (row,) = (line for line in on.rows if TWO in line and "GiB" in line and "2 nodes" in line)
        assert row.startswith(f"{TWO} 2 nodes")
        assert on.text.count("2 nodes") == 1
    async with stage(over_both(box), size=(120, 40)) as on:
        await on.press("2")
        assert "boxes" in on.text
        assert "2 nodes" not in on.text


async def test_the_plan_of_a_profile_names_its_boxes(stage: Any, box: Any, daemon: Any) -> None:
    """Under the list, in the question before a switch, and in what it needs: figures of each box."""
    on_nodes = (
        PlanNode(node=LOCAL, now_bytes=20 * GIB, available_bytes=90 * GIB, fits=True),
        PlanNode(node=SPARK2, now_bytes=110 * GIB, available_bytes=100 * GIB, fits=True),
    )
    daemon.plans[box.coder] = Plan(
        profile=box.coder, nodes=(LOCAL, SPARK2), on_nodes=on_nodes, evict=(box.gpt,), needs_bytes=74 * GIB,
        now_bytes=20 * GIB, available_bytes=90 * GIB, fits=True,
    )  # fmt: skip
    async with stage(two(box), size=(100, 40)) as on:
        await on.press("2", "j")
        assert "fits: yes · needs 74 GiB of 90 GiB on each · on spark-1 + spark2" in on.text
        await on.press("enter")
        told = " ".join(" ".join(on.rows).split())
        assert "runs on spark-1 + spark2, the need on each" in told
        assert "available now 20.0 GiB on spark-1, 110.0 GiB on spark2" in told
        await on.press("escape", "s")
        told = " ".join(" ".join(on.rows).split())
        assert "on spark-1 + spark2" in told
        assert "needs 74 GiB on each, 90.0 GiB on spark-1, 100.0 GiB on spark2 available then" in told

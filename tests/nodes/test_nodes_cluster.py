"""One engine on two nodes behind one Runtime: both sides start, and what is said of it."""

from __future__ import annotations

import asyncio

import pytest
from cluster_in_memory import HEAD, LIMIT_S, WORKER, Cluster, lines, until
from fake_cluster import OWNER, engine_spec

from sparkdash.domain.container import ENV_MARK, LABEL_HEAD, LABEL_NODES, ContainerInfo, ContainerSpec
from sparkdash.errors import HostError


async def test_the_worker_starts_before_the_head_and_both_are_marked_as_one_engine(cluster: Cluster) -> None:
    started: list[str] = []
    for node in (cluster.local, cluster.b):
        node.calls = started  # type: ignore[assignment]
    info = await cluster.runtime.start(engine_spec())
    assert started == [("start", WORKER), ("start", HEAD)]
    assert (info.name, info.node) == (HEAD, "local")
    worker = cluster.b.here[WORKER].spec
    assert worker.labels[LABEL_HEAD] == HEAD
    assert LABEL_HEAD not in cluster.local.here[HEAD].spec.labels
    assert worker.labels[LABEL_NODES] == cluster.local.here[HEAD].spec.labels[LABEL_NODES] == "local,spark2"
    assert worker.env[ENV_MARK] == f"{OWNER}/{WORKER}"
    assert cluster.runtime.engine_nodes(HEAD) == ("local", "spark2")


async def test_an_engine_of_another_node_is_reached_by_a_forwarded_port_while_it_is_there(cluster: Cluster) -> None:
    info = await cluster.runtime.start(engine_spec(nodes=("spark2",)))
    assert (info.node, info.pid) == ("spark2", None)
    assert cluster.nodes.forwarded == {("spark2", 18001)}
    assert await cluster.runtime.pids(HEAD) == set()
    await cluster.runtime.stop(HEAD, 1.0)
    assert not cluster.nodes.forwarded
    assert not cluster.b.here


@pytest.mark.parametrize("broken", ["local", "spark2"])
async def test_if_one_side_does_not_start_nothing_stays_of_the_other(cluster: Cluster, broken: str) -> None:
    side = cluster.local if broken == "local" else cluster.b
    side.refuses = HostError("The disk is full.", code="disk_full", hint="Free some.")
    with pytest.raises(HostError) as failed:
        await cluster.runtime.start(engine_spec())
    named = "On spark2: The disk is full." if broken == "spark2" else "The disk is full."
    assert (failed.value.message, failed.value.code) == (named, "disk_full")
    assert not cluster.local.here
    assert not cluster.b.here
    assert not cluster.pending.nodes


async def test_a_port_that_cannot_be_forwarded_starts_nothing(cluster: Cluster) -> None:
    cluster.nodes.no_forward = HostError("The port is taken.", code="port_in_use")
    with pytest.raises(HostError, match="On spark2: The port is taken"):
        await cluster.runtime.start(engine_spec(nodes=("spark2",)))
    assert not cluster.b.here


async def test_what_a_start_made_on_a_node_that_then_falls_silent_is_ended_when_it_returns(cluster: Cluster) -> None:
    cluster.local.refuses = HostError("No GPU.", code="no_gpu_device")
    began = cluster.local.start

    async def cut_then_start(spec: object) -> object:
        cluster.nodes.cut("spark2")
        return await began(spec)  # type: ignore[arg-type]

    cluster.local.start = cut_then_start  # type: ignore[method-assign,assignment]
    with pytest.raises(HostError, match="No GPU"):
        await cluster.runtime.start(engine_spec())
    assert cluster.pending.containers("spark2") == (WORKER,)
    async with cluster.kept_up():
        cluster.nodes.fix("spark2")
        await until(lambda: not cluster.b.here and not cluster.pending.nodes)


async def test_nothing_starts_on_a_silent_node_and_the_other_side_is_not_begun(cluster: Cluster) -> None:
    cluster.nodes.cut("spark2")
    with pytest.raises(HostError, match="spark2 does not answer") as failed:
        await cluster.runtime.start(engine_spec())
    assert failed.value.code == "node_unreachable"
    assert not cluster.local.calls


async def test_the_end_of_the_log_has_the_last_words_of_both_sides(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    for number in range(40):
        cluster.local.here[HEAD].say(f"h{number}")
        cluster.b.here[WORKER].say(f"w{number}")
    tail = (await lines(cluster.runtime, HEAD))[-20:]
    assert "[spark2] w39" in tail
    assert tail[-1] == "h39"
    assert len(await lines(cluster.runtime, HEAD)) == 80


async def test_a_silent_node_s_lines_cannot_be_read_and_those_of_the_others_are(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    heard: list[str] = []

    async def follow() -> None:
        async for line in cluster.runtime.logs(HEAD, follow=True):
            heard.append(line)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    cluster.b.here[WORKER].say("loading")
    cluster.local.here[HEAD].say("serving")
    await until(lambda: len(heard) == 2)
    cluster.nodes.cut("spark2")
    read = await lines(cluster.runtime, HEAD)
    assert read[0].startswith("[spark2] sparkdash: the last lines of this log cannot be read")
    assert read[1] == "serving"
    cluster.local.here[HEAD].end(0)
    async with asyncio.timeout(LIMIT_S):
        await following
    assert set(heard) == {"[spark2] loading", "serving"}


async def test_a_log_of_one_other_node_has_no_prefix(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec(nodes=("spark2",)))
    cluster.b.here[HEAD].say("a line")
    assert await lines(cluster.runtime, HEAD) == ["a line"]


async def test_what_an_earlier_daemon_left_is_not_looked_for_where_a_start_is_under_way(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on that node, podman's slow `run` could be a killed daemon's, and would be ended."""
    begun, go_on, start = asyncio.Event(), asyncio.Event(), cluster.b.start

    async def slow(spec: ContainerSpec) -> ContainerInfo:
        begun.set()
        await go_on.wait()
        return await start(spec)

    monkeypatch.setattr(cluster.b, "start", slow)
    starting = asyncio.create_task(cluster.runtime.start(engine_spec()))
    await begun.wait()
    await cluster.runtime.settle(OWNER)
    assert ("settle", OWNER) in cluster.local.calls
    assert ("settle", OWNER) not in cluster.b.calls
    go_on.set()
    await starting
    await cluster.runtime.settle(OWNER)
    assert ("settle", OWNER) in cluster.b.calls

"""One engine on two nodes behind one Runtime: what a daemon finds that comes after another, and nodes that return."""

from __future__ import annotations

import asyncio

from cluster_in_memory import HEAD, LIMIT_S, OURS, WORKER, Cluster, lines, until
from fake_cluster import OWNER, engine_spec, silent

from sparkdash.domain.container import LABEL_HEAD, ContainerState
from sparkdash.errors import HostError


async def test_a_successor_finds_the_head_alone_and_forwards_its_port_again(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    await cluster.runtime.start(engine_spec("sparkdash-small", nodes=("spark2",), port=18002))
    cluster.nodes.forwarded.clear()
    later = cluster.restarted()
    found = {each.name: each.node for each in await later.runtime.containers(OURS)}
    assert found == {HEAD: "local", "sparkdash-small": "spark2"}
    assert later.nodes.forwarded == {("spark2", 18002)}
    assert later.runtime.engine_nodes(HEAD) == ("local", "spark2")


async def test_a_worker_without_a_head_is_listed_so_that_adoption_removes_it(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.local.here.clear()  # killed between the worker's start and the head's
    later = cluster.restarted()
    (orphan,) = await later.runtime.containers(OURS)
    assert (orphan.name, orphan.node, orphan.labels[LABEL_HEAD]) == (WORKER, "spark2", HEAD)
    await later.runtime.stop(WORKER, 0.0)
    assert not later.b.here


async def test_a_head_whose_worker_is_gone_reads_as_ended_and_its_stop_leaves_nothing(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.b.here[WORKER].end(0)
    later = cluster.restarted()
    (found,) = await later.runtime.containers(OURS)
    assert found.state is ContainerState.EXITED
    await later.runtime.stop(HEAD, 0.0)
    assert not later.local.here
    assert not later.b.here


async def test_a_head_whose_workers_node_is_silent_still_runs_and_its_worker_is_found_later(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.nodes.cut("spark2")
    later = cluster.restarted()
    (found,) = await later.runtime.containers(OURS)
    assert found.state is ContainerState.RUNNING
    waiting = asyncio.create_task(later.runtime.wait(HEAD))
    await asyncio.sleep(0.02)
    later.nodes.fix("spark2")
    await asyncio.sleep(0.05)
    assert not waiting.done()
    later.b.here[WORKER].end(0)
    async with asyncio.timeout(LIMIT_S):
        assert await waiting == 0


async def test_a_worker_that_was_never_seen_is_ended_with_its_engine(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.nodes.cut("spark2")
    later = cluster.restarted()
    await later.runtime.containers(OURS)
    later.nodes.fix("spark2")
    assert not (await later.runtime.stop(HEAD, 0.0)).pending
    assert not later.b.here


async def test_the_engine_of_a_node_that_returns_is_there_to_be_adopted_and_its_orphans_are_gone(
    cluster: Cluster,
) -> None:
    await cluster.runtime.start(engine_spec(nodes=("spark2",)))
    await cluster.runtime.start(engine_spec("sparkdash-lost"))
    cluster.nodes.cut("spark2")
    cluster.local.here.clear()
    later = cluster.restarted()
    async with later.kept_up():
        assert await later.runtime.containers(OURS) == []
        later.nodes.fix("spark2")
        await until(lambda: later.swept == ["spark2"])
        assert list(later.b.here) == [HEAD]
        (found,) = await later.runtime.containers(OURS)
    assert (found.name, found.node) == (HEAD, "spark2")


async def test_an_engine_that_runs_here_now_is_ended_on_the_node_where_it_ran_before(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec(nodes=("spark2",)))
    cluster.nodes.cut("spark2")
    later = cluster.restarted()
    await later.runtime.containers(OURS)
    await later.runtime.start(engine_spec(nodes=("local",)))
    async with later.kept_up():
        later.nodes.fix("spark2")
        await until(lambda: later.swept == ["spark2"])
    assert not later.b.here
    assert list(later.local.here) == [HEAD]


async def test_ports_are_forwarded_again_when_a_node_returns(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec(nodes=("spark2",)))
    cluster.nodes.cut("spark2")
    cluster.nodes.forwarded.clear()
    async with cluster.kept_up():
        cluster.nodes.fix("spark2")
        await until(lambda: cluster.nodes.forwarded == {("spark2", 18001)})


async def test_strangers_are_looked_for_on_this_box_alone(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec(nodes=("spark2",)))
    assert await cluster.runtime.containers({}) == []


async def test_a_node_whose_runtime_fails_keeps_nobody_from_adopting_the_rest(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec(nodes=("local",)))

    async def fails(_: object) -> list[object]:
        raise HostError("podman hangs.", code="runtime_timeout")

    real = cluster.b.containers
    cluster.b.containers = fails  # type: ignore[method-assign,assignment]
    later = cluster.restarted()
    async with later.kept_up():
        assert [each.name for each in await later.runtime.containers(OURS)] == [HEAD]
        cluster.b.containers = real  # type: ignore[method-assign]
        await until(lambda: later.swept == ["spark2"])


async def test_settling_asks_each_node_that_answers(cluster: Cluster) -> None:
    cluster.nodes.cut("spark3")
    await cluster.runtime.settle(OWNER)
    assert ("settle", OWNER) in cluster.b.calls
    assert not cluster.nodes.on["spark3"].calls


async def test_what_is_of_this_box_goes_to_its_runtime(cluster: Cluster) -> None:
    runtime, spec = cluster.runtime, engine_spec(nodes=("local",))
    assert (await runtime.version(), await runtime.command(spec)) == ("5.0", ["h"])
    assert await runtime.image_id("i") == "i"
    assert await runtime.images(["i"]) == {"i": 1}
    assert [step.done async for step in runtime.pull("i")] == [True]
    await runtime.start(spec)
    assert (await runtime.inspect(HEAD)) is not None
    assert await runtime.pids(HEAD)
    cluster.local.here[HEAD].end(4)
    assert await runtime.wait(HEAD) == 4
    assert await lines(runtime, HEAD) == []
    assert await runtime.stop(HEAD, 0.0)
    assert not any(node.calls for node in cluster.nodes.on.values())


def test_an_error_that_names_its_node_is_not_named_twice() -> None:
    assert silent("spark2").message == "spark2 does not answer."

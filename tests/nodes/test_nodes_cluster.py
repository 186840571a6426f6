"""One engine on two nodes behind one Runtime: its start, and what the next daemon finds of it."""

import asyncio

import pytest
from fake_cluster import HEAD, LIMIT_S, OURS, OWNER, WORKER, Cluster, engine_spec, lines, until
from refusals import refused

from sparkdash.domain.container import ENV_MARK, LABEL_HEAD, LABEL_NODES, ContainerInfo, ContainerSpec, ContainerState
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
    with refused("node_unreachable", "spark2 does not answer"):
        await cluster.runtime.start(engine_spec())
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

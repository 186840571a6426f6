"""One engine on two nodes behind one Runtime: both sides start, end and die together, whatever breaks in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_cluster import OWNER, Made, NodeInMemory, NodesInMemory, engine_spec, silent

from sparkdash.domain.container import ENV_MARK, LABEL_HEAD, LABEL_NODES, LABEL_OWNER, ContainerState
from sparkdash.errors import HostError
from sparkdash.nodes import group_end, group_logs, upkeep
from sparkdash.nodes.cluster_runtime import ClusterRuntime
from sparkdash.nodes.owed import OwedRemovals

HEAD, WORKER = "sparkdash-big", "sparkdash-big-worker"
LIMIT_S = 20.0
OURS = {LABEL_OWNER: OWNER}


@dataclass
class Cluster:
    """This box and two others."""

    folder: Path
    local: NodeInMemory
    nodes: NodesInMemory
    runtime: ClusterRuntime
    owed: OwedRemovals
    swept: list[str]

    def restarted(self) -> Cluster:
        """A daemon that comes after this one, with nothing but the files and the containers."""
        return cluster_in(self.folder, self.local, self.nodes)

    @property
    def b(self) -> NodeInMemory:
        """The other node that engines use."""
        return self.nodes.on["spark2"]

    @contextlib.asynccontextmanager
    async def kept_up(self) -> AsyncIterator[None]:
        """Nodes are cleared as they return."""
        task = asyncio.create_task(self.runtime.upkeep.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def cluster_in(folder: Path, local: NodeInMemory, nodes: NodesInMemory) -> Cluster:
    owed = OwedRemovals(folder / "owed.json")
    runtime = ClusterRuntime(local, nodes, owner=OWNER, owed=owed, silent_s=lambda: 0.2)
    swept: list[str] = []
    runtime.upkeep.on_swept = swept.append
    return Cluster(folder, local, nodes, runtime, owed, swept)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for module, name in ((group_end, "AGAIN_S"), (group_end, "LOOK_EVERY_S"), (group_logs, "AGAIN_S")):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(upkeep, "AGAIN_S", 0.05)
    return cluster_in(tmp_path, NodeInMemory("local"), NodesInMemory("spark2", "spark3"))


async def until(holds: object) -> None:
    assert callable(holds)
    async with asyncio.timeout(LIMIT_S):
        while not holds():  # noqa: ASYNC110 - what a test waits for tells nobody
            await asyncio.sleep(0.005)


async def lines(runtime: ClusterRuntime, name: str, **how: object) -> list[str]:
    return [line async for line in runtime.logs(name, follow=False, tail=how.get("tail"))]  # type: ignore[arg-type]


# start


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
    assert not cluster.owed.nodes


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
    assert cluster.owed.containers("spark2") == (WORKER,)
    async with cluster.kept_up():
        cluster.nodes.mend("spark2")
        await until(lambda: not cluster.b.here and not cluster.owed.nodes)


async def test_nothing_starts_on_a_silent_node_and_the_other_side_is_not_begun(cluster: Cluster) -> None:
    cluster.nodes.cut("spark2")
    with pytest.raises(HostError, match="spark2 does not answer") as failed:
        await cluster.runtime.start(engine_spec())
    assert failed.value.code == "node_unreachable"
    assert not cluster.local.calls


# stop


async def test_a_stop_ends_both_sides_and_reads_the_last_words_of_both_before(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.local.here[HEAD].say("head's word")
    cluster.b.here[WORKER].say("worker's word")
    said: list[str] = []

    async def last_words() -> None:
        said.extend(await lines(cluster.runtime, HEAD))

    left = await cluster.runtime.stop(HEAD, 1.0, last_words())
    assert said == ["[spark2] worker's word", "head's word"]
    assert not left.owed
    assert not cluster.local.here
    assert not cluster.b.here
    assert not cluster.owed.nodes


@pytest.mark.parametrize("seen", [True, False])
async def test_a_silent_node_owes_its_part_and_the_rest_is_ended(cluster: Cluster, seen: bool) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.nodes.cut("spark2", seen=seen)
    left = await cluster.runtime.stop(HEAD, 1.0)
    assert left.owed == ("spark2",)
    assert not cluster.local.here
    assert cluster.owed.containers("spark2") == (WORKER,)


async def test_what_is_owed_is_ended_before_anything_starts_on_the_node_again(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.nodes.cut("spark2")
    await cluster.runtime.stop(HEAD, 1.0)
    cluster.nodes.mend("spark2")
    cluster.b.calls.clear()
    await cluster.runtime.start(engine_spec("sparkdash-small", nodes=("spark2",)))
    assert cluster.b.calls == [("stop", WORKER), ("start", "sparkdash-small")]


async def test_a_daemon_killed_in_a_stop_leaves_a_successor_that_ends_both_sides(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())

    class Killed(BaseException):
        """SIGKILL in the middle."""

    def die() -> None:
        raise Killed

    cluster.local.on_stop = cluster.b.on_stop = die
    with pytest.raises(Killed):
        await cluster.runtime.stop(HEAD, 1.0)
    cluster.local.on_stop = cluster.b.on_stop = lambda: None
    later = cluster.restarted()
    await later.runtime.settle(OWNER)
    (found,) = await later.runtime.containers(OURS)
    assert (found.name, found.state) == (HEAD, ContainerState.EXITED)
    await later.runtime.stop(HEAD, 1.0)
    assert not later.local.here
    assert not later.b.here


async def test_a_stop_that_was_ordered_holds_for_an_engine_whose_node_was_silent(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec(nodes=("spark2",)))
    cluster.nodes.cut("spark2")
    await cluster.runtime.stop(HEAD, 1.0)
    later = cluster.restarted()
    async with later.kept_up():
        assert await later.runtime.containers(OURS) == []
        later.nodes.mend("spark2")
        await until(lambda: later.swept == ["spark2"])
    assert not later.b.here
    assert not later.owed.nodes


async def test_a_container_that_would_not_stop_on_a_node_that_answers_is_an_error_and_stays_owed(
    cluster: Cluster,
) -> None:
    await cluster.runtime.start(engine_spec())

    def stuck() -> None:
        raise HostError("It does not end.", code="unkillable")

    cluster.b.on_stop = stuck
    with pytest.raises(HostError, match="It does not end"):
        await cluster.runtime.stop(HEAD, 1.0)
    assert not cluster.local.here
    assert cluster.owed.nodes == {"spark2"}


async def test_upkeep_leaves_containers_alone_that_are_being_stopped_with_their_grace(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    going, go = asyncio.Event(), asyncio.Event()
    real = cluster.b.stop
    calls: list[float] = []

    async def slow(name: str, grace_s: float, before: object = None) -> object:
        calls.append(grace_s)
        going.set()
        await go.wait()
        return await real(name, grace_s)

    cluster.b.stop = slow  # type: ignore[method-assign,assignment]
    async with cluster.kept_up():
        stopping = asyncio.create_task(cluster.runtime.stop(HEAD, 30.0))
        await going.wait()
        await cluster.runtime.upkeep.clear("spark2")
        go.set()
        await stopping
    assert calls == [30.0]


# end


@pytest.mark.parametrize(("side", "code"), [("local", 0), ("spark2", 0), ("spark2", 137)])
async def test_the_first_end_of_any_side_is_the_engines_whatever_its_exit_code(
    cluster: Cluster, side: str, code: int
) -> None:
    await cluster.runtime.start(engine_spec())
    waiting = asyncio.create_task(cluster.runtime.wait(HEAD))
    await asyncio.sleep(0)
    made: Made = cluster.local.here[HEAD] if side == "local" else cluster.b.here[WORKER]
    made.end(code)
    async with asyncio.timeout(LIMIT_S):
        assert await waiting == code
    where = "this box" if side == "local" else side
    last = (await lines(cluster.runtime, HEAD))[-1]
    assert (
        last
        == f"sparkdash: of this engine's containers the one on {where} was the first to end: it ended with exit code {code}."
    )


async def test_a_wait_that_a_broken_connection_cuts_short_is_no_end(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    waiting = asyncio.create_task(cluster.runtime.wait(HEAD))
    await asyncio.sleep(0.01)
    cluster.b.silent = True
    cluster.b.here[WORKER].changed.set()
    await asyncio.sleep(0.05)
    cluster.b.silent = False
    await asyncio.sleep(0.05)
    assert not waiting.done()
    cluster.b.here[WORKER].end(3)
    async with asyncio.timeout(LIMIT_S):
        assert await waiting == 3


async def test_a_node_that_is_silent_beyond_the_limit_ends_the_wait_with_that_reason(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    waiting = asyncio.create_task(cluster.runtime.wait(HEAD))
    await asyncio.sleep(0.01)
    cluster.nodes.cut("spark2")
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(HostError, match="The link to spark2 is down") as lost:
            await waiting
    assert lost.value.code == "node_unreachable"


async def test_a_short_silence_costs_nothing_and_the_limit_begins_anew(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    waiting = asyncio.create_task(cluster.runtime.wait(HEAD))
    for _ in range(3):
        cluster.nodes.cut("spark2")
        await asyncio.sleep(0.1)
        cluster.nodes.mend("spark2")
        await asyncio.sleep(0.05)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_worker_that_was_removed_meanwhile_has_ended(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.b.here.clear()
    async with asyncio.timeout(LIMIT_S):
        assert await cluster.runtime.wait(HEAD) == group_end.GONE
    assert (await lines(cluster.runtime, HEAD))[-1].endswith("it is gone.")


# log


async def test_the_end_of_the_log_has_the_last_words_of_both_sides(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    for number in range(40):
        cluster.local.here[HEAD].say(f"h{number}")
        cluster.b.here[WORKER].say(f"w{number}")
    tail = (await lines(cluster.runtime, HEAD))[-20:]
    assert "[spark2] w39" in tail
    assert tail[-1] == "h39"
    assert len(await lines(cluster.runtime, HEAD)) == 80


async def test_a_silent_nodes_lines_are_those_that_were_heard_before(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    heard: list[str] = []

    async def follow() -> None:
        heard.extend([line async for line in cluster.runtime.logs(HEAD, follow=True)])

    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    cluster.b.here[WORKER].say("loading")
    cluster.local.here[HEAD].say("serving")
    await until(lambda: cluster.runtime._logs._heard.get((HEAD, "spark2")))
    cluster.nodes.cut("spark2")
    read = await lines(cluster.runtime, HEAD)
    assert read[0] == "[spark2] loading"
    assert read[1].startswith("[spark2] sparkdash: the last lines of this log cannot be read")
    cluster.local.here[HEAD].end(0)
    async with asyncio.timeout(LIMIT_S):
        await following
    assert set(heard) == {"[spark2] loading", "serving"}


async def test_a_log_of_one_other_node_has_no_prefix(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec(nodes=("spark2",)))
    cluster.b.here[HEAD].say("a line")
    assert await lines(cluster.runtime, HEAD) == ["a line"]


# adoption


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
    later.nodes.mend("spark2")
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
    later.nodes.mend("spark2")
    assert not (await later.runtime.stop(HEAD, 0.0)).owed
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
        later.nodes.mend("spark2")
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
        later.nodes.mend("spark2")
        await until(lambda: later.swept == ["spark2"])
    assert not later.b.here
    assert list(later.local.here) == [HEAD]


async def test_ports_are_forwarded_again_when_a_node_returns(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec(nodes=("spark2",)))
    cluster.nodes.cut("spark2")
    cluster.nodes.forwarded.clear()
    async with cluster.kept_up():
        cluster.nodes.mend("spark2")
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
    assert (await runtime.version(), runtime.command(spec)) == ("5.0", ["h"])
    assert await runtime.image_id("i") == "i"
    assert await runtime.images(["i"]) == {"i": 1}
    assert [step.done async for step in runtime.pull("i")] == [True]
    assert await runtime.output(spec, deadline_s=1.0) == f"{HEAD} 1.0"
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

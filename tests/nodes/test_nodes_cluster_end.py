"""One engine on two nodes behind one Runtime: both sides stop and die together, and what is owed is kept."""

import asyncio
from pathlib import Path

import pytest
from fake_cluster import (
    HEAD,
    LIMIT_S,
    OURS,
    OWNER,
    WORKER,
    Cluster,
    Made,
    code_of,
    engine_spec,
    lines,
    loss_of,
    running,
    until,
)
from refusals import refused

from sparkdash.domain.container import ContainerInfo, ContainerState, Leftovers
from sparkdash.errors import HostError
from sparkdash.nodes.agent.engine_processes import is_held
from sparkdash.nodes.cluster import group_end
from sparkdash.nodes.cluster import removal as owed_file
from sparkdash.nodes.cluster.group_end import GONE
from sparkdash.nodes.cluster.removal import PendingRemoval, PendingRemovals


async def test_a_stop_ends_both_sides_and_reads_the_last_words_of_both_before(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.local.here[HEAD].say("head's word")
    cluster.b.here[WORKER].say("worker's word")
    said: list[str] = []

    async def last_words() -> None:
        said.extend(await lines(cluster.runtime, HEAD))

    left = await cluster.runtime.stop(HEAD, 1.0, last_words())
    assert said == ["[spark2] worker's word", "head's word"]
    assert not left.pending
    assert not cluster.local.here
    assert not cluster.b.here
    assert not cluster.pending.nodes


@pytest.mark.parametrize("seen", [True, False])
async def test_a_silent_node_owes_its_part_and_the_rest_is_ended(cluster: Cluster, seen: bool) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.nodes.cut("spark2", seen=seen)
    left = await cluster.runtime.stop(HEAD, 1.0)
    assert left.pending == ("spark2",)
    assert not cluster.local.here
    assert cluster.pending.containers("spark2") == (WORKER,)


async def test_what_is_owed_is_ended_before_anything_starts_on_the_node_again(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.nodes.cut("spark2")
    await cluster.runtime.stop(HEAD, 1.0)
    cluster.nodes.fix("spark2")
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
        later.nodes.fix("spark2")
        await until(lambda: later.swept == ["spark2"])
    assert not later.b.here
    assert not later.pending.nodes


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
    assert cluster.pending.nodes == {"spark2"}


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


@pytest.mark.parametrize(("side", "code"), [("local", 0), ("spark2", 0), ("spark2", 137)])
async def test_the_first_end_of_any_side_is_the_engines_whatever_its_exit_code(
    cluster: Cluster, side: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_end, "TOGETHER_S", 0.01)
    async with running(cluster) as waiting:
        made: Made = cluster.local.here[HEAD] if side == "local" else cluster.b.here[WORKER]
        made.end(code)
        assert await code_of(waiting) == code
    rank = "0 on this box" if side == "local" else f"1 on {side}"
    last = (await lines(cluster.runtime, HEAD))[-1]
    assert last == f"sparkdash: rank {rank} ended the engine: its container ended with exit code {code}."


@pytest.mark.parametrize("first", ["the rank", "the head"])
async def test_the_rank_that_crashed_is_the_reason_and_has_the_last_lines_whichever_end_is_seen_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """vLLM's head often ends before the container of the rank whose crash it ends for."""
    monkeypatch.setattr(group_end, "TOGETHER_S", LIMIT_S)
    async with running(cluster) as waiting:
        head, worker = cluster.local.here[HEAD], cluster.b.here[WORKER]
        for number in range(30):
            worker.say(f"w{number}")
            head.say(f"h{number}")
        if first == "the head":
            head.end(1)
            await asyncio.sleep(0.01)
            assert not waiting.done()
        worker.end(3)
        assert await code_of(waiting) == 3
    said = await lines(cluster.runtime, HEAD)
    assert said[-11:-1] == [f"[spark2] w{number}" for number in range(20, 30)]
    assert said[-1] == "sparkdash: rank 1 on spark2 ended the engine: its container ended with exit code 3."
    assert {f"h{number}" for number in range(30)} < {*said[:-11]}


async def test_a_wait_that_a_broken_connection_cuts_short_is_no_end(cluster: Cluster) -> None:
    async with running(cluster) as waiting:
        cluster.b.silent = True
        cluster.b.here[WORKER].changed.set()
        await asyncio.sleep(0.05)
        cluster.b.silent = False
        await asyncio.sleep(0.05)
        assert not waiting.done()
        cluster.b.here[WORKER].end(3)
        assert await code_of(waiting) == 3


async def test_a_node_that_is_silent_beyond_the_limit_ends_the_wait_with_that_reason(cluster: Cluster) -> None:
    async with running(cluster) as waiting:
        cluster.nodes.cut("spark2")
        lost = await loss_of(waiting)
    assert (lost.code, lost.message) == (
        "node_unreachable", "spark2 has not answered for 0 s. spark2 does not answer."
    )  # fmt: skip


@pytest.mark.parametrize("seen", ["the end of its container", "the other boot"])
async def test_a_node_that_was_restarted_is_told_as_such(cluster: Cluster, seen: str) -> None:
    """By either sign: the containers have ended, and their exit codes are not why."""
    async with running(cluster) as waiting:
        cluster.nodes.boots["spark2"] = "boot-2"
        if seen == "the end of its container":
            cluster.b.here[WORKER].end(0)
        lost = await loss_of(waiting)
    assert (lost.code, lost.message) == ("node_restarted", "spark2 was restarted while the engine ran on it.")


async def test_a_short_silence_costs_nothing_and_the_limit_begins_anew(cluster: Cluster) -> None:
    async with running(cluster) as waiting:
        for _ in range(3):
            cluster.nodes.cut("spark2")
            await asyncio.sleep(0.1)
            cluster.nodes.fix("spark2")
            await asyncio.sleep(0.05)
        assert not waiting.done()


async def test_a_worker_that_was_removed_meanwhile_has_ended(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    cluster.b.here.clear()
    async with asyncio.timeout(LIMIT_S):
        assert await cluster.runtime.wait(HEAD) == GONE
    assert (await lines(cluster.runtime, HEAD))[-1].endswith(
        "rank 1 on spark2 ended the engine: its container is gone."
    )


async def test_an_engine_whose_node_is_removed_from_the_registry_is_lost_at_once_and_the_reason_says_so(
    cluster: Cluster,
) -> None:
    async with running(cluster) as waiting:
        del cluster.nodes.status["spark2"]
        cluster.nodes.on.pop("spark2")
        lost = await loss_of(waiting)
    assert lost.message == "spark2 was removed from the nodes while the engine ran on it."
    assert "Add spark2 again" in (lost.hint or "")


async def test_a_container_that_has_ended_and_is_still_listed_on_a_node_stays_owed(cluster: Cluster) -> None:
    await cluster.runtime.start(engine_spec())
    real = cluster.b.stop

    async def ended_only(name: str, grace_s: float, before: object = None) -> Leftovers:
        cluster.b.here[name].end(137)
        return Leftovers(unremoved="`podman rm` gave no answer for 60 s.")

    cluster.b.stop = ended_only  # type: ignore[method-assign,assignment]
    assert (await cluster.runtime.stop(HEAD, 1.0)).unremoved
    assert cluster.pending.containers("spark2") == (WORKER,)
    cluster.b.stop = real  # type: ignore[method-assign]
    async with cluster.kept_up():
        await until(lambda: not cluster.b.here and not cluster.pending.nodes)


async def test_nothing_starts_on_a_node_whose_runtime_gives_no_answer(cluster: Cluster) -> None:
    async def hanging(labels: object) -> list[ContainerInfo]:
        raise HostError("`podman ps` gave no answer for 20 s.", code="runtime_timeout")

    cluster.b.containers = hanging  # type: ignore[method-assign,assignment]
    with refused("runtime_timeout", "On spark2: `podman ps` gave no answer for 20 s"):
        await cluster.runtime.start(engine_spec())
    assert not cluster.local.here
    assert not cluster.b.here


async def test_a_rank_that_is_paused_ends_the_engine_with_its_number_and_box(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single look may meet a process that is continued at once: only the second in a row counts."""
    monkeypatch.setattr(group_end, "RANKS_EVERY_S", 0.01)
    looks: list[int] = []

    def held(node: str) -> list[str]:
        looks.append(len(looks))
        return [WORKER] if node == "spark2" and looks[-1] != 1 else []

    cluster.runtime.held = held
    async with running(cluster) as waiting:
        lost = await loss_of(waiting)
    assert lost.message.startswith(f"Rank 1 on spark2 ({WORKER}) does not move")
    assert lost.code == "rank_held"
    assert len(looks) == 4


def test_a_stopped_process_and_a_frozen_group_are_held(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"

    def process(pid: int, state: str, group: str) -> None:
        (proc / str(pid)).mkdir(parents=True)
        (proc / f"{pid}/stat").write_text(f"{pid} (vllm) {state} " + "0 " * 49)
        (proc / f"{pid}/cgroup").write_text(group)

    for name, file, text in (
        ("v2/a", "cgroup.events", "populated 1\nfrozen 1\n"),
        ("v2/b", "cgroup.events", "populated 1\nfrozen 0\n"),
        ("freezer/v1", "freezer.state", "FROZEN\n"),
    ):
        (groups / name).mkdir(parents=True)
        (groups / name / file).write_text(text)
    for pid, (state, group) in enumerate(
        [("T", "0::/v2/b\n"), ("S", "0::/v2/a\n"), ("S", "0::/v2/b\n"), ("S", "7:freezer:/v1\n1:cpu:/v1\n")], start=1
    ):
        process(pid, state, group)
    assert [is_held(pid, str(proc), str(groups)) for pid in range(1, 6)] == [True, True, False, True, False]


ONE = PendingRemoval(node="spark2", head="a", container="a-worker")
TWO = PendingRemoval(node="spark3", head="a", container="a-worker")


async def test_what_is_owed_is_known_to_the_next_daemon_until_it_is_settled(tmp_path: Path) -> None:
    file = tmp_path / "state" / "owed.json"
    changes: list[frozenset[str]] = []
    first = PendingRemovals(file)
    first.on_change = lambda: changes.append(first.nodes)
    await first.add(ONE, TWO)
    again = PendingRemovals(file)
    assert again.on("spark2") == (ONE,)
    assert again.containers("spark3") == ("a-worker",)
    await again.settle(ONE)
    assert PendingRemovals(file).nodes == {"spark3"}
    assert changes == [{"spark2", "spark3"}]


async def test_the_same_removal_is_owed_once_and_nothing_is_written_without_a_change(tmp_path: Path) -> None:
    pending = PendingRemovals(tmp_path / "owed.json")
    await pending.settle(ONE)
    assert not (tmp_path / "owed.json").exists()
    await pending.add(ONE)
    await pending.add(ONE.replace(container="other"))
    assert pending.containers("spark2") == ("other",)


async def test_a_file_that_cannot_be_read_is_no_end_of_the_daemon(tmp_path: Path) -> None:
    file = tmp_path / "owed.json"
    file.write_text("{half")
    pending = PendingRemovals(file)
    assert pending.nodes == frozenset()
    await pending.add(ONE)
    assert PendingRemovals(file).nodes == {"spark2"}


async def test_a_full_disk_keeps_nothing_from_being_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owed_file, "_write", full)
    pending = PendingRemovals(tmp_path / "owed.json")
    await pending.add(ONE)
    assert pending.nodes == {"spark2"}

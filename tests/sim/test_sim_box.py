"""The simulated box and its nodes."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.container import LABEL_OWNER, ContainerSpec
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import EngineKind, Profile, SimSpec
from sparkdash.engines import registry
from sparkdash.engines.containers import LaunchContext
from sparkdash.errors import HostError
from sparkdash.host.box import HostReader
from sparkdash.host.runtime import Nodes
from sparkdash.nodes.cluster.node_runtimes import NodeRuntimes
from sparkdash.sim.box import OTHER, TOTAL, SimBox, SimulatedBoxes, SimulatedNodes, several_boxes
from sparkdash.sim.process import ClaimFile, read_claims
from sparkdash.units import GIB
from tests.sim.conftest import poll


@pytest.fixture
def hand() -> list[float]:
    """The time, moved by hand."""
    return [100.0]


@pytest.fixture
def box(claims_folder: Path, hand: list[float]) -> SimBox:
    return SimBox(claims_folder, clock=lambda: hand[0])


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def claim(claims_folder: Path) -> Callable[[int], ClaimFile]:
    return lambda pid: ClaimFile("rehearsal", claims_folder, pid)


def test_an_empty_box_is_a_spark_with_little_on_it(box: SimBox) -> None:
    reader: HostReader = box
    memory = reader.memory()
    assert memory.total / GIB == pytest.approx(121.69, abs=0.01)
    assert memory.available / GIB == pytest.approx((TOTAL - OTHER) / GIB, abs=1)
    assert memory.page_cache is not None
    assert memory.free + memory.page_cache <= TOTAL - OTHER + GIB
    assert (memory.pressure, memory.swap_used, memory.engines, memory.reserve) == (0, 0, {}, 0)


def test_memory_follows_the_claims(box: SimBox, claim: Callable[[int], ClaimFile]) -> None:
    empty = box.memory()
    claim(os.getpid()).write(60 * GIB)
    full = box.memory()
    assert (empty.available - full.available) / GIB == pytest.approx(60, abs=0.1)
    assert (full.page_cache or 0) > (empty.page_cache or 0)


async def test_every_byte_has_a_holder(box: SimBox, claim: Callable[[int], ClaimFile]) -> None:
    claim(os.getpid()).write(60 * GIB)
    for _ in range(2):  # claimed, and coming back
        account = await box.account()
        assert sum(one.bytes for one in account.holdings) == account.total
        claim(os.getpid()).remove()
    assert [one.name for one in account.holdings] == ["ended engines", "other programs", "page cache", "free"]


def test_memory_comes_back_with_a_lag(box: SimBox, hand: list[float], claim: Callable[[int], ClaimFile]) -> None:
    """A gone engine's memory is held for two seconds, half back after three, and all of it after four."""
    empty = box.memory().available
    file = claim(os.getpid())
    file.write(40 * GIB)
    box.memory()
    file.remove()
    missing = []
    for _ in range(5):
        missing.append((empty - box.memory().available) / GIB)
        hand[0] += 1
    assert missing == pytest.approx([40, 40, 40, 20, 0], abs=0.2)


async def test_engine_bytes_are_the_claims_of_its_processes(
    box: SimBox, claim: Callable[[int], ClaimFile], sleeper: subprocess.Popen[bytes]
) -> None:
    claim(os.getpid()).write(3 * GIB)
    claim(sleeper.pid).write(4 * GIB)
    reading = await box.gpu()
    assert box.engine_bytes({os.getpid(), sleeper.pid, 1}, reading) == 7 * GIB
    assert box.engine_bytes({1}, reading) is None
    assert await box.others_bytes({sleeper.pid}, reading) == 3 * GIB


def test_files_of_the_dead_and_of_others_do_not_count(
    box: SimBox, claims_folder: Path, claim: Callable[[int], ClaimFile], sleeper: subprocess.Popen[bytes]
) -> None:
    """A dead process's claim, one of an earlier process with the same pid, and a broken file are not counted."""
    empty = box.memory().available
    claim(sleeper.pid).write(50 * GIB)
    sleeper.kill()
    sleeper.wait()
    mine = claims_folder / f"{os.getpid()}.json"
    claim(os.getpid()).write(50 * GIB)
    mine.write_text(mine.read_text().replace('"started": ', '"started": 1'))
    (claims_folder / "7.json").write_text("{")
    assert (empty - box.memory().available) / GIB == pytest.approx(0, abs=0.2)


def test_unchanged_claims_are_not_written_again(claims_folder: Path, claim: Callable[[int], ClaimFile]) -> None:
    file = claim(os.getpid())
    file.write(GIB, busy=0.501)
    path = claims_folder / f"{os.getpid()}.json"
    path.unlink()
    file.write(GIB, busy=0.499)
    assert not path.exists()


OWNER = "test"
SPARK2 = "spark2"


def profile_of(name: str = "both", nodes: int = 2) -> Profile:
    """A simulated profile that loads in no time and takes 64 GiB on each of its boxes."""
    return Profile(name=name, engine=EngineKind.SIM, nodes=nodes, sim=SimSpec(load_s=0.1, memory_gib=64))


def spec_of(boxes: SimulatedBoxes, profile: Profile, port: int, *nodes: str) -> ContainerSpec:
    assert boxes.nodes is not None
    launch = LaunchContext(
        port=port, containerised=False, hf_home="/hf", cache_dir="/cache", labels={LABEL_OWNER: OWNER},
        nodes=boxes.nodes.launch_on(nodes),
    )  # fmt: skip
    return registry.adapter(EngineKind.SIM).container(profile, launch)


@asynccontextmanager
async def boxes_in(folder: Path) -> AsyncIterator[SimulatedBoxes]:
    """Two boxes; what runs on them ends with the block."""
    boxes = several_boxes(folder, 2, owner=OWNER, reserve=10 * GIB)
    try:
        yield boxes
    finally:
        for runtime in boxes.processes:
            for left in await runtime.containers({}):
                await runtime.stop(left.name, 1.0)


def claimed(folder: Path, name: str) -> dict[str, int]:
    return {claim.profile: round(claim.memory / GIB) for claim in read_claims(folder / name)}


async def test_an_engine_over_both_boxes_takes_memory_on_both_and_its_stop_gives_both_back(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    async with boxes_in(tmp_path) as boxes:
        spec = spec_of(boxes, profile_of(), unused_tcp_port, LOCAL, SPARK2)
        assert [worker.node for worker in spec.workers] == [SPARK2]
        await boxes.runtime.start(spec)
        await poll(lambda: claimed(tmp_path, "sim") == {"both": 64})
        await poll(lambda: claimed(tmp_path, "sim-spark2") == {"both": 64})
        (listed,) = await boxes.runtime.containers({LABEL_OWNER: OWNER})
        assert (listed.name, listed.node) == (spec.name, LOCAL)
        await boxes.runtime.stop(spec.name, 3.0)
        assert claimed(tmp_path, "sim") == claimed(tmp_path, "sim-spark2") == {}


async def test_a_worker_says_that_it_is_simulated_and_computes_while_its_head_does(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    async with boxes_in(tmp_path) as boxes:
        spec = spec_of(boxes, profile_of(), unused_tcp_port, LOCAL, SPARK2)
        (worker,) = spec.workers
        head = ClaimFile("both", tmp_path / "sim")
        head.write(64 * GIB, 0.8)
        await boxes.processes[1].start(worker)
        busy = lambda: [claim.busy for claim in read_claims(tmp_path / "sim-spark2")]  # noqa: E731
        await poll(lambda: busy() == [0.8])
        head.write(64 * GIB)
        await poll(lambda: busy() == [0.0])
        log = [line async for line in boxes.processes[1].logs(worker.name, follow=False)]
        assert any("SIMULATED" in line for line in log)


async def test_an_engine_on_the_other_box_leaves_this_ones_memory_alone(tmp_path: Path, unused_tcp_port: int) -> None:
    async with boxes_in(tmp_path) as boxes:
        await boxes.runtime.start(spec_of(boxes, profile_of("beside", nodes=1), unused_tcp_port, SPARK2))
        assert boxes.nodes is not None
        nodes = boxes.nodes
        await poll(lambda: claimed(tmp_path, "sim-spark2") == {"beside": 64})
        memory = await nodes.fresh_memory(SPARK2)
        here = nodes.memory(LOCAL)
        assert here is not None
        assert here.available - memory.available > 60 * GIB
        assert memory.reserve == 10 * GIB
        assert claimed(tmp_path, "sim") == {}


@pytest.fixture
def nodes(tmp_path: Path) -> SimulatedNodes:
    boxes = several_boxes(tmp_path, 2, owner=OWNER, reserve=0)
    assert boxes.nodes is not None
    return boxes.nodes


def test_they_are_what_the_daemon_takes_for_nodes(nodes: SimulatedNodes) -> None:
    known: Nodes = nodes
    runtimes: NodeRuntimes = nodes
    assert known.names == (LOCAL, SPARK2)
    assert list(runtimes.states) == [SPARK2]
    facts = nodes.states[SPARK2].facts
    assert facts is not None
    assert (facts.hostname, facts.driver) == ("spark2 (simulated)", "simulated")


def test_a_launch_over_both_has_addresses_on_one_network_and_one_alone_has_loopback(nodes: SimulatedNodes) -> None:
    here, there = nodes.launch_on((LOCAL, SPARK2))
    assert (here.address, there.address) == ("192.168.100.10", "192.168.100.11")
    assert here.link is not None
    assert here.link.hca == "rocep1s0f1"
    assert nodes.launch_on((LOCAL,)) == ()
    assert [(one.name, one.address, one.link) for one in nodes.launch_on((SPARK2,))] == [(SPARK2, "127.0.0.1", None)]
    with pytest.raises(HostError, match="no node spark9"):
        nodes.launch_on(("spark9",))


def test_the_link_is_busy_while_an_engine_on_both_boxes_computes(tmp_path: Path) -> None:
    now = [100.0]
    local, other = SimBox(tmp_path / "a"), SimBox(tmp_path / "b")
    nodes = SimulatedNodes(local, {SPARK2: other}, {}, folder=tmp_path, clock=lambda: now[0])

    def rate() -> Any:
        now[0] += 1
        local.memory()
        return next(link for link in nodes.samples[LOCAL].links if link.rdma).received_bytes_s

    ClaimFile("both", tmp_path / "a").write(GIB, 0.9)
    assert rate() == 0
    ClaimFile("both", tmp_path / "b", pid=os.getppid()).write(GIB, 0.9)
    assert rate() > 300e6

"""The all-reduce between two boxes: its containers, its figures, and their end however it goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any

import pytest

from sparkdash.domain.container import LABEL_OWNER, LABEL_PROFILE, ContainerInfo, ContainerSpec, ContainerState
from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts, NodeLaunch
from sparkdash.domain.profile import EngineKind, Mount, Profile
from sparkdash.errors import AdmissionError, EngineError, HostError, ProfileError
from sparkdash.host.command import CommandResult
from sparkdash.nodes.all_reduce import pair, run
from sparkdash.nodes.all_reduce.bus_bandwidth import all_reduce_bus_gbit_s
from sparkdash.nodes.all_reduce.ranks import LABEL_MEASURE, MARK, interpreter, parse_answer, rank_containers
from sparkdash.nodes.all_reduce.run import AllReduceInputs, run_all_reduce
from sparkdash.nodes.link.box import Box
from sparkdash.nodes.link.open_boxes import OpenBoxes
from sparkdash.settings import Settings

LINKS = tuple(
    Link(interface="enp1s0f1np1", address=f"192.168.100.{n}", prefix=24, hca="rocep1s0f1", gid_index=2 + n)
    for n in (1, 2)
)
NODES = (
    NodeLaunch(name=LOCAL, address="192.168.100.1", hf_home="/", cache_dir="/", link=LINKS[0]),
    NodeLaunch(name="spark2", address="192.168.100.2", hf_home="/", cache_dir="/", link=LINKS[1]),
)
FACTS = {
    name: NodeFacts(hostname=name, arch="aarch64", home="/h", uid=0, links=(link,))
    for name, link in zip((LOCAL, "spark2"), LINKS, strict=True)
}
PROFILE = Profile(
    name="big",
    engine=EngineKind.VLLM,
    image="img:1",
    nodes=2,
    args={"tensor-parallel-size": 2},
    env={"NCCL_DEBUG": "WARN"},
    mounts=(Mount(source="/opt", target="/opt"),),
)
GOOD = [
    "banner of the image",
    MARK + json.dumps({"backend": "nccl", "torch": "2.9", "nccl": "2.28.3"}),
    MARK + json.dumps({"size": 1 << 20, "seconds": 0.001, "rounds": 10, "right": True}),
    MARK + json.dumps({"done": True}),
]


class Runtimes:
    """Runtime of one box whose container prints these lines, and then ends or goes on."""

    name = "podman"
    containerised = True

    def __init__(self, lines: list[str] | None = None, *, image: bool = True, ends: bool = False) -> None:
        self.lines = lines or []
        self.image, self.ends = image, ends
        self.left: list[str] = []
        self.started: list[ContainerSpec] = []
        self.stopped: list[str] = []
        self.refuses: HostError | None = None
        self.runs = asyncio.Event()

    async def image_id(self, image: str) -> str | None:
        return "abc" if self.image else None

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        assert labels == {LABEL_MEASURE: ""}
        return [ContainerInfo(id="1", name=name, state=ContainerState.EXITED) for name in self.left]

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        self.started.append(spec)
        self.runs.set()
        return ContainerInfo(id="2", name=spec.name, state=ContainerState.RUNNING)

    async def stop(self, name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> None:
        if self.refuses:
            raise self.refuses
        self.stopped.append(name)

    async def logs(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        for line in self.lines:
            yield line
        if follow and not self.ends:
            await asyncio.Event().wait()

    async def wait(self, name: str) -> int:
        if not self.ends:
            await asyncio.Event().wait()
        return 1


def inputs(here: Runtimes, there: Runtimes, profile: Profile = PROFILE) -> AllReduceInputs:
    runtimes: Any = {LOCAL: here, "spark2": there}
    return AllReduceInputs(profile, NODES, runtimes, FACTS)


def quiet(_: str) -> None:
    """Progress that nobody reads."""


def test_bus_bandwidth_is_the_formula_of_nccl_tests() -> None:
    assert all_reduce_bus_gbit_s(10**9, 1.0, 2) == pytest.approx(8.0)
    assert all_reduce_bus_gbit_s(10**9, 1.0, 4) == pytest.approx(12.0)
    assert all_reduce_bus_gbit_s(10**9, 0.0, 2) is None


def test_each_rank_gets_its_own_link_and_no_label_of_an_engine() -> None:
    head, worker = rank_containers(PROFILE, NODES, "pass", containerised=True, port=29500, tag="t")
    assert (head.node, worker.node) == (LOCAL, "spark2")
    assert (head.env["NCCL_IB_GID_INDEX"], worker.env["NCCL_IB_GID_INDEX"]) == ("3", "4")
    assert head.env["NCCL_DEBUG"] == "WARN"
    assert "/dev/infiniband" in head.devices
    assert head.mounts == PROFILE.mounts
    assert head.labels == {LABEL_MEASURE: "big"}
    assert not {LABEL_OWNER, LABEL_PROFILE} & worker.labels.keys()
    assert head.argv[:3] == ("python3", "-c", "pass")
    requests = [json.loads(spec.argv[3]) for spec in (head, worker)]
    assert [each["rank"] for each in requests] == [0, 1]
    assert {each["address"] for each in requests} == {"192.168.100.1"}


def test_the_interpreter_is_the_one_beside_the_profiles_program() -> None:
    assert interpreter(PROFILE) == "python3"
    assert interpreter(PROFILE.replace(command=("/venv/bin/vllm", "serve"))) == "/venv/bin/python3"
    assert interpreter(PROFILE.replace(command=("vllm", "serve"))) == "python3"


def test_other_lines_of_a_log_are_no_answers() -> None:
    assert parse_answer("2026 " + MARK + '{"size": 1}') == {"size": 1}
    assert parse_answer("NCCL INFO x") is None
    assert parse_answer(MARK + "{torn") is None
    assert parse_answer(MARK + "[1]") is None


async def test_a_run_records_backend_versions_and_bus_bandwidth_and_leaves_nothing() -> None:
    here, there = Runtimes(GOOD), Runtimes()
    there.left = ["sparkdash-all-reduce-old-1"]
    found = await run_all_reduce(inputs(here, there), quiet)
    assert (found.version, found.why, found.profile) == ("torch 2.9, NCCL 2.28.3", None, "big")
    (each,) = found.measurements
    assert each.gbit_s == pytest.approx(8.388608)
    assert each.what == "all-reduce (nccl)"
    assert here.stopped == [here.started[0].name]
    assert there.stopped == ["sparkdash-all-reduce-old-1", there.started[0].name]


async def test_gloo_is_said_when_the_image_sees_no_gpu() -> None:
    lines = [line.replace('"nccl", "torch"', '"gloo", "torch"').replace('"2.28.3"', "null") for line in GOOD]
    found = await run_all_reduce(inputs(Runtimes(lines), Runtimes()), quiet)
    assert found.why == "The image sees no GPU, so Gloo over TCP was measured and not NCCL."
    assert found.version == "torch 2.9"


async def test_a_rank_that_ends_early_fails_the_run_with_the_words_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "GRACE_S", 0.01)
    here, there = Runtimes(["head waits"]), Runtimes(["worker: no device"], ends=True)
    with pytest.raises(EngineError, match="between local and spark2 failed") as failed:
        await run_all_reduce(inputs(here, there), quiet)
    assert failed.value.log_tail == ("local: head waits", "spark2: worker: no device")
    assert len(here.stopped) == len(there.stopped) == 1


async def test_wrong_sums_are_an_error() -> None:
    lines = [line.replace('"right": true', '"right": false') for line in GOOD]
    with pytest.raises(EngineError, match="gave wrong sums"):
        await run_all_reduce(inputs(Runtimes(lines), Runtimes()), quiet)


async def test_a_missing_image_is_named_before_anything_starts() -> None:
    here, there = Runtimes(GOOD), Runtimes(image=False)
    with pytest.raises(HostError, match="spark2 does not have the image img:1"):
        await run_all_reduce(inputs(here, there), quiet)
    assert here.started == there.started == []


async def test_a_cancelled_run_ends_both_containers() -> None:
    here, there = Runtimes(["loading"]), Runtimes()
    running = asyncio.ensure_future(run_all_reduce(inputs(here, there), quiet))
    async with asyncio.timeout(10):
        await asyncio.gather(here.runs.wait(), there.runs.wait())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(here.stopped) == len(there.stopped) == 1


async def test_a_container_on_a_box_that_fell_silent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "GRACE_S", 0.01)
    here, there = Runtimes(GOOD), Runtimes()
    there.refuses = HostError("spark2 cannot be reached.", code="node_unreachable")
    said: list[str] = []
    await run_all_reduce(inputs(here, there), said.append)
    assert "could not be removed from spark2: it ends by itself within 240 s" in said[-1]


class Meminfo:
    """Box with so many KiB of available memory."""

    def __init__(self, kib: int) -> None:
        self.kib = kib

    async def run(self, argv: Any, **how: Any) -> CommandResult:
        return CommandResult(0, f"MemTotal: 1 kB\nMemAvailable: {self.kib} kB\n", "")


def boxes(kib: int) -> OpenBoxes:
    node = Node(name="spark2", ssh="x", host_key="k")
    here = Box(LOCAL, Meminfo(100 << 20), FACTS[LOCAL])
    return OpenBoxes(here, ((node, Box("spark2", Meminfo(kib), FACTS["spark2"])),), {})


async def test_it_does_not_start_beside_engines_that_leave_too_little_memory() -> None:
    found = boxes(12 << 20)
    with pytest.raises(
        AdmissionError, match=r"needs 4\.0 GiB on each box; 2\.0 GiB are available on spark2"
    ) as refused:
        await pair.all_reduce_with(found, found.nodes[0][0], PROFILE, Settings(), quiet)
    assert refused.value.code == "does_not_fit"


async def test_a_profile_without_an_image_is_refused() -> None:
    found = boxes(100 << 20)
    with pytest.raises(ProfileError, match="runs without an image"):
        await pair.all_reduce_with(found, found.nodes[0][0], PROFILE.replace(image=None), Settings(), quiet)

"""The link between two boxes: which networks they share, and its measurement by perftest, iperf3 and nccl-tests."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.nodes import link_bench
from sparkdash.nodes.boxes import Box, ask_box
from sparkdash.nodes.link_bench import LinkTool, measure_link
from sparkdash.nodes.programs import NOT_FOUND, run_here
from sparkdash.nodes.shared_links import common_links, crowded_networks, network_of, shared_links, twin_devices

DATA = Path(__file__).parents[1] / "data/links"
NODE = Node(name="spark2", ssh="lab@spark2", host_key="ssh-ed25519 AAAA")
RDMA = Link(interface="enp1s0f1np1", address="192.168.100.1", prefix=24, rate_gbit_s=200, hca="rocep1s0f1", gid_index=3)
TWIN = RDMA.replace(interface="enP2p1s0f1np1", address="192.168.101.1", hca="roceP2p1s0f1")
SLOW = Link(interface="enP7s7", address="10.0.0.1", prefix=24, rate_gbit_s=10)


def recorded(name: str) -> str:
    """A recorded output."""
    return (DATA / name).read_text()


def facts(*links: Link, hostname: str = "spark1") -> NodeFacts:
    return NodeFacts(hostname=hostname, arch="aarch64", home="/home/lab", uid=1000, links=links)


def other(link: Link, **changes: Any) -> Link:
    """The far end of a link."""
    return link.replace(**{"address": f"{link.address}"[:-1] + "2", **changes})


def third(link: Link, **changes: Any) -> Link:
    return other(link, address=f"{link.address}"[:-1] + "3", **changes)


class Scripted:
    """Box that answers commands from a table of patterns, and keeps what it was asked."""

    def __init__(self, *answers: tuple[str, CommandResult | HostError]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def __call__(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes | None = None) -> CommandResult:
        words = " ".join(argv)
        self.asked.append(words)
        await asyncio.sleep(0)  # as a real command, it lets others begin
        for pattern, answer in self.answers:
            if re.search(pattern, words):
                if isinstance(answer, HostError):
                    raise answer
                return answer
        return CommandResult(NOT_FOUND, "", f"{argv[0]}: not found")


VERSION = ("--version", CommandResult(0, "Version: 6.06\n", ""))
BANDWIDTH = ("_bw ", CommandResult(0, recorded("ib_write_bw.txt"), ""))
LATENCY = ("_lat ", CommandResult(0, recorded("ib_write_lat.txt"), ""))
RECEIVED = '{"end": {"sum_received": {"bits_per_second": 95.5e9}}}'
IPERF3 = (r"iperf3 -[sc]", CommandResult(0, RECEIVED, ""))
NCCL = ("all_reduce_perf", CommandResult(0, recorded("all_reduce_perf.txt"), ""))
TOOLS = (VERSION, BANDWIDTH, LATENCY, IPERF3, NCCL)


def two_boxes(*here: Any) -> tuple[Box, Box]:
    """Two boxes with both halves of a port and all tools; `here` goes before this box's answers."""
    far = facts(other(RDMA, gid_index=5), other(TWIN), other(SLOW), hostname="s2")
    return Box(LOCAL, Scripted(*here, *TOOLS), facts(RDMA, TWIN, SLOW)), Box("spark2", Scripted(*TOOLS), far)


def quiet(_: str) -> None:
    """Progress that nobody reads."""


def test_the_fastest_shared_network_comes_first_and_one_that_is_down_last() -> None:
    found = shared_links(facts(SLOW, RDMA), facts(other(RDMA), other(SLOW)))
    assert [each.here.interface for each in found] == ["enp1s0f1np1", "enP7s7"]
    assert [each.fast for each in found] == [True, False]
    down = shared_links(facts(SLOW, RDMA), facts(other(RDMA, up=False), other(SLOW)))
    assert [each.here.interface for each in down] == ["enP7s7", "enp1s0f1np1"]


def test_an_address_that_the_owner_chose_leaves_other_links_out() -> None:
    found = shared_links(facts(SLOW, RDMA), facts(other(RDMA), other(SLOW)), address="10.0.0.2")
    assert [each.there.address for each in found] == ["10.0.0.2"]


def test_both_halves_of_a_port_carry_tensors_where_every_box_has_both() -> None:
    three = [[RDMA, TWIN, SLOW], [other(RDMA), other(TWIN), other(SLOW)], [third(TWIN), third(RDMA)]]
    chosen = common_links(three)
    assert [link.hca for link in chosen] == ["rocep1s0f1"] * 3
    assert twin_devices(chosen, three) == [("roceP2p1s0f1",)] * 3
    assert twin_devices(chosen, [*three[:2], [third(RDMA)]]) == [()] * 3
    assert twin_devices(chosen, [*three[:2], [third(RDMA), third(TWIN, gid_index=5)]]) == [()] * 3


def test_networks_are_compared_by_prefix_and_nonsense_is_no_network() -> None:
    assert network_of(RDMA) == "192.168.100.0/24"
    assert network_of(RDMA.replace(address="not one")) is None
    assert network_of(RDMA.replace(prefix=None)) is None
    twins = facts(RDMA, TWIN.replace(address="192.168.100.7"))
    assert list(crowded_networks(twins)) == [("192.168.100.0/24", ("enp1s0f1np1", "enP2p1s0f1np1"))]


async def test_perftest_measures_each_end_with_its_own_device_and_gid_index() -> None:
    here, there = two_boxes()
    run = await measure_link(here, there, NODE, quiet)
    assert run.missing == {}
    rdma = [each for each in run.measurements if each.tool is LinkTool.PERFTEST]
    assert rdma[-1].devices == ("rocep1s0f1", "roceP2p1s0f1")
    assert rdma[-1].gbit_s == pytest.approx(216.84)
    assert [each.streams for each in rdma if each.what == "ib_write_bw"] == [1, 4, 8, 1, 4]
    assert [each.each_gbit_s for each in rdma[-3:]] == [(), (108.42, 108.42), (108.42, 108.42)]
    assert rdma[0].latency_us == 1.62
    call = next(words for words in here.run.asked if "ib_write_bw" in words and "-q 4" in words)
    assert "timeout -k 1 17 ib_write_bw -d rocep1s0f1 -x 3 -F" in call
    assert call.endswith("192.168.100.2")
    assert any("-d rocep1s0f1 -x 5" in words for words in there.run.asked)


async def test_iperf3_measures_both_ways_over_the_addresses_of_the_best_link() -> None:
    here, there = two_boxes()
    run = await measure_link(here, there, NODE, quiet)
    tcp = [each for each in run.measurements if each.tool is LinkTool.IPERF3]
    assert [(each.source, each.streams) for each in tcp] == [
        (source, streams) for streams in (1, 4, 8) for source in (LOCAL, "spark2")
    ]
    assert {each.gbit_s for each in tcp} == {95.5}
    assert any(re.search(r"iperf3 -s -1 -B 192\.168\.100\.2", words) for words in there.run.asked)
    assert any(words.endswith("-R") for words in here.run.asked)


async def test_nccl_tests_run_only_when_asked_for_over_the_link_of_both_boxes() -> None:
    here, there = two_boxes()
    run = await measure_link(here, there, NODE, quiet, nccl=True)
    sums = [each for each in run.measurements if each.tool is LinkTool.NCCL_TESTS]
    assert [(each.size, each.time_us) for each in sums] == [(16384, 25.31), (268435456, 24560.0)]
    assert here.run.asked[-1].endswith("192.168.100.1 192.168.100.2 enp1s0f1np1")
    assert not any("all_reduce_perf" in words for words in there.run.asked)


@pytest.mark.parametrize(
    ("tool", "answer", "why"),
    [
        (LinkTool.PERFTEST, ("ib_write_bw --version", CommandResult(NOT_FOUND, "", "")), "sudo apt install perftest"),
        (LinkTool.IPERF3, ("iperf3 --version", CommandResult(NOT_FOUND, "", "")), "sudo apt install iperf3"),
        (LinkTool.NCCL_TESTS, ("all_reduce_perf", CommandResult(NOT_FOUND, "", "")), "nccl-tests with MPI=1"),
        (LinkTool.PERFTEST, ("_lat -d", CommandResult(1, recorded("no_device.txt"), "")), "Unable to find the Inf"),
        (LinkTool.PERFTEST, ("_bw -d", CommandResult(1, recorded("retry.txt"), "")), "Failed status 12"),
        (LinkTool.IPERF3, ("iperf3 -c", CommandResult(1, '{"error": "no route"}', "")), "iperf3: no route."),
        (LinkTool.NCCL_TESTS, ("all_reduce_perf", CommandResult(1, "", "ORTE was unable")), "ORTE was unable"),
    ],
)
async def test_a_tool_that_is_missing_or_fails_is_told_and_the_others_measure(
    tool: LinkTool, answer: tuple[str, CommandResult], why: str
) -> None:
    run = await measure_link(*two_boxes(answer), NODE, quiet, nccl=True)
    assert why in run.missing.pop(tool)
    assert run.missing == {}
    assert {each.tool for each in run.measurements} == set(LinkTool) - {tool}


async def test_a_link_without_rdma_is_measured_by_iperf3_alone() -> None:
    boxes = Box(LOCAL, Scripted(*TOOLS), facts(SLOW)), Box("spark2", Scripted(*TOOLS), facts(other(SLOW)))
    run = await measure_link(*boxes, NODE, quiet)
    assert run.missing == {LinkTool.PERFTEST: "The link has no RDMA device on both ends."}
    assert {each.tool for each in run.measurements} == {LinkTool.IPERF3}


async def test_a_client_that_comes_before_its_server_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_bench, "APART_S", 0.0)
    early = iter([CommandResult(1, "", "Couldn't connect to 192.168.100.2:20001")])

    class Early(Scripted):
        async def __call__(self, argv: Sequence[str], **how: Any) -> CommandResult:
            if "--version" not in argv and (first := next(early, None)):
                return first
            return await super().__call__(argv, **how)

    class Waiting(Scripted):
        async def __call__(self, argv: Sequence[str], **how: Any) -> CommandResult:
            if "--version" in argv:
                return await super().__call__(argv, **how)
            return await asyncio.Event().wait() or CommandResult(0, "", "")

    here, there = two_boxes()
    run = await measure_link(
        Box(LOCAL, Early(*TOOLS), here.facts), Box("spark2", Waiting(VERSION), there.facts), NODE, quiet
    )
    assert run.missing == {}
    assert len(run.measurements) == 13


async def test_a_script_that_fails_is_told_with_its_last_words() -> None:
    far = Box("spark2", Scripted(("python3", CommandResult(1, "", "Traceback\nValueError: no\n"))))
    with refused("script_failed", "A script failed on spark2: ValueError: no"):
        await ask_box(far, ("sparkdash.units",), {}, deadline_s=1)


async def test_a_silent_box_raises_the_reason_of_its_silence() -> None:
    silent = HostError("spark2 cannot be reached: no answer.", code="node_unreachable")
    with pytest.raises(HostError, match="no answer"):
        await measure_link(two_boxes()[0], Box("spark2", silent=silent), NODE, quiet)


async def test_a_command_of_this_box_that_hangs_is_ended() -> None:
    with pytest.raises(HostError, match=r"did not end within 0\.2 s"):
        await run_here(("sleep", "60"), deadline_s=0.2)

"""The link between two boxes: which networks they share, and its measurement by TCP and by perftest."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.nodes.link import measure_rdma, perftest, remote_tcp
from sparkdash.nodes.link.box import NOT_FOUND, Box, LocalPrograms
from sparkdash.nodes.link.common import crowded_networks, network_of, shared_links
from sparkdash.nodes.link.history import keep_run, kept_runs
from sparkdash.nodes.link.measure import measure_link
from sparkdash.nodes.link.measure_tcp import LinkEnd, measure_tcp
from sparkdash.nodes.link.piped import ask
from sparkdash.nodes.link.record import LinkMeasurement, LinkRun, LinkTool

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


class Scripted:
    """Box that answers commands from a table of patterns, and keeps what it was asked."""

    def __init__(self, *answers: tuple[str, CommandResult | HostError]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def run(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes | None = None) -> CommandResult:
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


def rdma_boxes(*here: Any) -> tuple[Box, Box]:
    """Two boxes with both halves of a port and perftest; `here` goes before this box's answers."""
    mine = Scripted(*here, VERSION, BANDWIDTH, LATENCY)
    return (
        Box(LOCAL, mine, facts(RDMA, TWIN, SLOW)),
        Box(
            "spark2",
            Scripted(VERSION, BANDWIDTH, LATENCY),
            facts(other(RDMA, gid_index=5), other(TWIN), other(SLOW), hostname="s2"),
        ),
    )


def asked(box: Box) -> list[str]:
    """Commands that a scripted box was asked."""
    assert isinstance(box.commands, Scripted)
    return box.commands.asked


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


def test_networks_are_compared_by_prefix_and_nonsense_is_no_network() -> None:
    assert network_of(RDMA) == "192.168.100.0/24"
    assert network_of(RDMA.replace(address="not one")) is None
    assert network_of(RDMA.replace(prefix=None)) is None
    twins = facts(RDMA, TWIN.replace(address="192.168.100.7"))
    assert list(crowded_networks(twins)) == [("192.168.100.0/24", ("enp1s0f1np1", "enP2p1s0f1np1"))]


def test_perftests_tables_are_read_by_their_last_row() -> None:
    assert perftest.parse_bandwidth(recorded("ib_write_bw.txt")) == (65536, 108.42, None, None)
    assert perftest.parse_latency(recorded("ib_write_lat.txt")) == (2, None, 1.62, 2.04)
    assert perftest.parse_version("Version: 6.06\n") == "6.06"
    for text in (recorded("no_device.txt"), recorded("retry.txt"), ""):
        assert perftest.parse_bandwidth(text) is None
        assert perftest.parse_latency(text) is None
    assert perftest.complaint([recorded("no_device.txt")]) == "Unable to find the Infiniband/RoCE device"


async def test_perftest_measures_each_end_with_its_own_device_and_gid_index() -> None:
    here, there = rdma_boxes()
    run = await measure_link(here, there, NODE, quiet)
    assert (run.tool, run.version, run.why) == (LinkTool.PERFTEST, "6.06", None)
    both = run.measurements[-1]
    assert both.devices == ("rocep1s0f1", "roceP2p1s0f1")
    assert both.gbit_s == pytest.approx(216.84)
    assert [each.streams for each in run.measurements if each.what == "ib_write_bw"] == [1, 4, 8, 4]
    assert run.measurements[0].latency_us == 1.62
    call = next(words for words in asked(here) if "ib_write_bw" in words and "-q 4" in words)
    assert "timeout -k 1 15 ib_write_bw -d rocep1s0f1 -x 3 -F" in call
    assert call.endswith("192.168.100.2")
    assert any("-d rocep1s0f1 -x 5" in words for words in asked(there))


async def test_a_client_that_comes_before_its_server_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_rdma, "APART_S", 0.0)
    here, there = rdma_boxes()
    early = iter([CommandResult(1, "", "Couldn't connect to 192.168.100.2:20001")])

    class Early(Scripted):
        async def run(self, argv: Sequence[str], **how: Any) -> CommandResult:
            if "--version" not in argv and (first := next(early, None)):
                return first
            return await super().run(argv, **how)

    class Waiting(Scripted):
        async def run(self, argv: Sequence[str], **how: Any) -> CommandResult:
            if "--version" in argv:
                return await super().run(argv, **how)
            return await asyncio.Event().wait() or CommandResult(0, "", "")

    assert isinstance(here.commands, Scripted)
    boxes = (
        Box(LOCAL, Early(*here.commands.answers), here.facts),
        Box("spark2", Waiting(VERSION), there.facts),
    )
    run = await measure_link(*boxes, NODE, quiet)
    assert len(run.measurements) == 6


async def test_a_link_that_breaks_under_perftest_is_named_as_lost() -> None:
    here, there = rdma_boxes(("ib_write_bw -d", CommandResult(1, recorded("retry.txt"), "")))
    with pytest.raises(HostError, match="broke during ib_write_bw") as lost:
        await measure_link(here, there, NODE, quiet)
    assert lost.value.code == "link_lost"


async def test_perftests_own_words_are_shown_when_it_fails() -> None:
    here, there = rdma_boxes(("ib_write_lat -d", CommandResult(1, recorded("no_device.txt"), "")))
    with pytest.raises(HostError, match="Unable to find the Infiniband/RoCE device") as failed:
        await measure_link(here, there, NODE, quiet)
    assert failed.value.code == "perftest_failed"
    assert "--tcp" in str(failed.value.hint)


LOOP = (
    Link(interface="lo", address="127.0.0.1", prefix=8, rate_gbit_s=1.0),
    Link(interface="lo", address="127.0.0.2", prefix=8, rate_gbit_s=1.0),
)


def loop_boxes() -> tuple[Box, Box]:
    """Two boxes that are this one, at two addresses of its loopback."""
    return (
        Box(LOCAL, LocalPrograms(), facts(LOOP[0])),
        Box("spark2", LocalPrograms(), facts(LOOP[1], hostname="s2")),
    )


async def test_tcp_is_measured_both_ways_with_one_and_several_streams_and_said_why() -> None:
    run = await measure_link(*loop_boxes(), NODE, quiet, seconds=0.2)
    assert run.tool is LinkTool.TCP
    assert run.why == "The link has no RDMA device on both ends, so plain TCP was measured."
    first, *rest = run.measurements
    assert first.latency_us
    assert first.latency_p99_us
    assert 0 < first.latency_us <= first.latency_p99_us
    assert [(each.source, each.streams) for each in rest] == [
        (source, streams) for streams in (1, 4, 8) for source in (LOCAL, "spark2")
    ]
    assert all(each.gbit_s and each.gbit_s > 0 for each in rest)


async def test_without_perftest_on_both_boxes_tcp_is_measured_and_how_to_install_it_is_said() -> None:
    class Bare(LocalPrograms):
        async def run(self, argv: Sequence[str], **how: Any) -> CommandResult:
            return CommandResult(NOT_FOUND, "", "") if argv[0] == "ib_write_bw" else await super().run(argv, **how)

    here, there = (link.replace(hca="rocep1s0f1") for link in LOOP)
    boxes = Box(LOCAL, Bare(), facts(here)), Box("spark2", Bare(), facts(there))
    run = await measure_link(*boxes, NODE, quiet, seconds=0.1)
    assert run.tool is LinkTool.TCP
    assert "sudo apt install perftest" in str(run.why)


async def test_a_peer_that_never_comes_ends_with_an_error_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    source = inspect.getsource(remote_tcp).replace("BEGIN_S = 8.0", "BEGIN_S = 0.5")
    monkeypatch.setattr("sparkdash.nodes.link.piped.inspect.getsource", lambda _: source)

    class Deaf(LocalPrograms):
        async def run(self, argv: Any, **how: Any) -> CommandResult:
            return CommandResult(0, json.dumps({"streams": []}), "")

    here, _ = loop_boxes()
    ends = LinkEnd(here, "127.0.0.1"), LinkEnd(Box("spark2", Deaf(), facts(LOOP[1])), "127.0.0.2")
    with pytest.raises(HostError, match="No TCP connection between spark1") as closed:
        await measure_tcp(*ends, quiet, seconds=0.2)
    assert closed.value.code == "link_closed"


async def test_a_box_that_falls_silent_in_a_step_means_a_broken_link() -> None:
    silent = HostError("spark2 cannot be reached: ssh said nothing.", code="node_unreachable")
    far = Box("spark2", Scripted(("python3", silent)), facts(LOOP[1]))
    with pytest.raises(HostError, match="broke during the measurement: spark2 cannot be reached") as lost:
        await measure_tcp(LinkEnd(far, "127.0.0.2"), LinkEnd(far, "127.0.0.2"), quiet, seconds=0.1)
    assert lost.value.code == "link_lost"


async def test_a_stranger_without_the_token_is_not_measured() -> None:
    """The port is open for seconds: whoever connects there first must not take the place of the peer."""
    import socket

    probe = socket.create_server(("127.0.0.2", 0))
    port = probe.getsockname()[1]
    probe.close()
    common = {"port": port, "token": "secret", "streams": 1, "seconds": 0.2, "pings": 0}
    here, there = loop_boxes()
    receive = {**common, "role": "receive", "address": "127.0.0.2", "peer": "127.0.0.1"}
    receiving = asyncio.ensure_future(ask(there, remote_tcp, receive, deadline_s=20))
    deadline = time.monotonic() + 10
    while True:
        try:
            stranger = socket.create_connection(("127.0.0.2", port), 1, ("127.0.0.1", 0))
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
    stranger.sendall(b"wrong!")
    assert await asyncio.get_running_loop().run_in_executor(None, stranger.recv, 1) == b""
    stranger.close()
    send = {**common, "role": "send", "address": "127.0.0.1", "peer": "127.0.0.2"}
    sent, received = await asyncio.gather(ask(here, remote_tcp, send, deadline_s=20), receiving)
    assert received["streams"][0]["bytes"] == sent["streams"][0]["bytes"]


async def test_a_script_that_fails_is_told_with_its_last_words() -> None:
    box = Box("spark2", Scripted(("python3", CommandResult(1, "", "Traceback\nValueError: no\n"))))
    with pytest.raises(HostError, match="exit code 1: Traceback ValueError: no") as failed:
        await ask(box, remote_tcp, {}, deadline_s=1)
    assert failed.value.code == "script_failed"


async def test_a_silent_box_raises_the_reason_of_its_silence() -> None:
    silent = HostError("spark2 cannot be reached: no answer.", code="node_unreachable")
    with pytest.raises(HostError, match="no answer"):
        await measure_link(loop_boxes()[0], Box("spark2", silent=silent), NODE, quiet)


async def test_a_command_of_this_box_that_hangs_is_ended() -> None:
    with pytest.raises(HostError, match=r"did not end within 0\.2 s"):
        await LocalPrograms().run(("sleep", "60"), deadline_s=0.2)


def test_runs_are_kept_in_their_order_and_foreign_files_left_out(tmp_path: Path) -> None:
    one = LinkRun(at=1000.0, node="spark2", tool=LinkTool.TCP, facts={LOCAL: facts(RDMA)})
    two = one.replace(at=2000.0, measurements=(LinkMeasurement(what="tcp stream", source=LOCAL, target="spark2"),))
    for run in (two, one, one.replace(at=3000.0, node="spark3")):
        keep_run(run, tmp_path)
    (tmp_path / "notes.json").write_text("{}")
    assert kept_runs("spark2", tmp_path) == (one, two)
    assert len(kept_runs(folder=tmp_path)) == 3
    assert kept_runs(folder=tmp_path / "none") == ()

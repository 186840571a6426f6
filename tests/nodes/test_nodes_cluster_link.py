"""The link between the nodes of one engine: told when it is down for seconds, the engine's end when it stays down."""

import errno
import socket
import struct
from collections.abc import Sequence

import pytest
from fake_cluster import HEAD, Cluster, loss_of, running, until

from sparkdash.domain.metric import LinkSample, NodeSample
from sparkdash.domain.node import LOCAL, Link, NodeLaunch
from sparkdash.nodes.agent import remote_figures
from sparkdash.nodes.agent.remote_figures import PROBE_S, SEEN, Probes
from sparkdash.nodes.cluster import group_end
from sparkdash.nodes.link_liveness import LOSSY, LinkTrouble, LookAtLink, look_at_link

FAULT = LinkTrouble("eth1 of spark2 has no carrier")
LOSS = LinkTrouble("some were sent again", is_down=False)
Told = list[tuple[str, LinkTrouble | None]]


class Cable:
    """A link that tests cut and fix."""

    def __init__(self) -> None:
        self.fault: LinkTrouble | None = None

    def watch(self, nodes: tuple[str, ...]) -> LookAtLink:
        assert nodes == ("local", "spark2")

        return lambda: self.fault


@pytest.fixture
def cable(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cable:
    made = Cable()
    cluster.runtime.watch_link = made.watch
    for name, value in (("LINK_EVERY_S", 0.01), ("TOLD_S", 0.05), ("LEAST_S", 0.3)):
        monkeypatch.setattr(group_end, name, value)
    return made


@pytest.fixture
def told(cluster: Cluster) -> Told:
    heard: Told = []
    cluster.runtime.on_link = lambda head, fault, _left_s: heard.append((head, fault))
    return heard


async def test_a_dead_link_between_nodes_that_answer_is_told_and_then_costs_the_engine(
    cluster: Cluster, cable: Cable, told: Told
) -> None:
    async with running(cluster) as waiting:
        cable.fault = FAULT
        lost = await loss_of(waiting)
    assert lost.message.startswith("The link between this box and spark2 has been down ")
    assert (lost.code, FAULT.text in lost.message, told) == ("link_down", True, [(HEAD, FAULT)])


async def test_a_link_that_comes_back_costs_nothing_and_its_return_is_told(
    cluster: Cluster, cable: Cable, told: Told
) -> None:
    async with running(cluster) as waiting:
        cable.fault = FAULT
        await until(lambda: told)
        cable.fault = None
        await until(lambda: len(told) == 2)
        assert told == [(HEAD, FAULT), (HEAD, None)]
        assert not waiting.done()


async def test_a_link_that_loses_packets_is_told_until_it_is_well_and_the_engine_goes_on(
    cluster: Cluster, cable: Cable, told: Told
) -> None:
    async with running(cluster) as waiting:
        for fault, heard in ((LOSS, [LOSS]), (FAULT, [FAULT]), (LOSS, [None, LOSS]), (None, [None])):
            cable.fault = fault
            await until(lambda heard=heard: len(told) == len(heard))  # type: ignore[misc]
            assert [each for _, each in told] == heard
            told.clear()
        assert not waiting.done()


async def test_the_silence_of_a_node_is_not_called_a_dead_link(cluster: Cluster, cable: Cable, told: Told) -> None:
    async with running(cluster) as waiting:
        cable.fault = FAULT
        cluster.nodes.cut("spark2")
        lost = await loss_of(waiting)
    assert (lost.code, told) == ("node_unreachable", [])


def launches(there: str = "127.0.0.1", **more: str) -> tuple[NodeLaunch, ...]:
    here = NodeLaunch(
        name=LOCAL, address="127.0.0.1", hf_home="", cache_dir="", link=Link(interface="eth1", address="127.0.0.1")
    )
    other = Link(interface="eth1", address=there, **more)
    return here, NodeLaunch(name="spark2", address=there, hf_home="", cache_dir="", link=other)


@pytest.mark.parametrize(("node", "port", "words"), [
    ("spark2", LinkSample(name="eth1", up=False), "eth1 of spark2 has no carrier"),
    (LOCAL, LinkSample(name="eth1", up=False), "eth1 of this box has no carrier"),
    ("spark2", LinkSample(name="roce1", rdma=True, up=False), "eth1 of spark2 has no carrier"),
    ("spark2", LinkSample(name="eth0", up=False), None), ("spark2", LinkSample(name="eth1", up=None), None),
])  # fmt: skip
def test_an_end_without_a_carrier_is_a_fault_of_the_link(node: str, port: LinkSample, words: str | None) -> None:
    samples = {node: NodeSample(at=0.0, links=(port,))}
    assert look_at_link(launches(hca="roce1"), lambda: samples)() == (LinkTrouble(words) if words else None)


def test_an_end_that_answered_and_falls_silent_is_a_fault_and_one_behind_a_firewall_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        there.listen()
        monkeypatch.setattr(remote_figures, "DISCARD", there.getsockname()[1])
        answering, silent = look_at_link(launches(), dict), look_at_link(launches("127.0.0.2"), dict)
        for _ in range(2):
            assert answering() is None  # a program listens there
    for _ in range(2):
        assert answering() is None  # refused, which is an answer too
    monkeypatch.setattr(socket.socket, "connect_ex", lambda *_: errno.EHOSTUNREACH)
    assert answering() == LinkTrouble("127.0.0.1 (eth1 of spark2) does not answer on it")
    assert silent() is None


def test_a_peer_to_which_packets_are_sent_again_is_named_until_its_last_answers_came_at_once() -> None:
    lost = {"10.2.0.3": LOSSY - 1}
    look = look_at_link(workers_of_a_ring(), dict, lambda *_: lost)
    assert look() is None
    lost["10.2.0.3"] = LOSSY
    text = f"of the last {SEEN} probes from b to 10.2.0.3 (eth2 of c) {LOSSY} were sent again"
    assert look() == LinkTrouble(text, is_down=False)
    lost["10.2.0.3"] = 1
    assert look() is not None
    lost["10.2.0.3"] = 0
    assert look() is None


def test_a_probe_counts_the_packets_that_were_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells it of each connection, in its struct tcp_info."""
    probes, again = Probes(every_s=0.0), iter((0, 1, 0))
    monkeypatch.setattr(socket.socket, "connect_ex", lambda *_: errno.ECONNREFUSED)
    monkeypatch.setattr(socket.socket, "getsockopt", lambda *_: bytes(100) + struct.pack("I", next(again)))
    probes.wanted = [("127.0.0.1", "127.0.0.1")]
    assert [dict(probes.look(float(at))) for at in range(3)] == [{"127.0.0.1": count} for count in (0, 1, 1)]


def workers_of_a_ring() -> list[NodeLaunch]:
    """Three boxes in a ring, of which this one has no way to see the cable of the others."""

    def end(cable: int, place: int) -> Link:
        return Link(interface=f"eth{cable}", address=f"10.{cable}.0.{place}", prefix=24)

    places = {LOCAL: 1, "b": 2, "c": 3}
    cables = {LOCAL: {"b": 1, "c": 3}, "b": {LOCAL: 1, "c": 2}, "c": {"b": 2, LOCAL: 3}}
    return [
        NodeLaunch(
            name=name, address="", hf_home="", cache_dir="",
            cables={near: (end(cable, places[name]),) for near, cable in cables[name].items()},
        )
        for name in places
    ]  # fmt: skip


def test_a_cable_between_two_workers_is_tried_by_one_of_them_and_its_cut_names_both() -> None:
    """The node tells what its own script has tried."""
    asked: list[tuple[str, list[tuple[str, str]]]] = []
    answers: dict[str, int | None] = {"10.2.0.3": 0}

    def reached(node: str, pairs: Sequence[tuple[str, str]]) -> dict[str, int | None]:
        asked.append((node, list(pairs)))
        return answers

    look = look_at_link(workers_of_a_ring(), dict, reached)
    assert look() is None
    assert asked == [("b", [("10.2.0.2", "10.2.0.3")])]
    answers["10.2.0.3"] = None
    assert look() == LinkTrouble("10.2.0.3 (eth2 of c) does not answer to b on it")


def test_a_nodes_script_tells_which_peers_answer() -> None:
    """A refusal is an answer; an address without a box is none, once its time is over."""
    probes = Probes()
    probes.wanted = [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "192.0.2.1"), ("192.0.2.7", "127.0.0.2")]
    probes.look(0.0)
    assert probes.look(PROBE_S) == {"127.0.0.1": 0, "192.0.2.1": None, "127.0.0.2": None}
    probes.wanted = [("127.0.0.1", "127.0.0.1")]
    assert probes.look(10.0) == {"127.0.0.1": 0}
    probes.wanted = []
    assert probes.look(20.0) == {}

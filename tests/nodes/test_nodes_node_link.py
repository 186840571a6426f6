"""Life of one node's connection, with a connection in memory: which try follows which end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.domain.node import Link, Node, NodeFacts, NodeStatus
from sparkdash.errors import HostError
from sparkdash.nodes.shared_links import differences
from sparkdash.nodes.ssh import node_monitor
from sparkdash.nodes.ssh.node_monitor import MonitorInputs, NodeMonitor

NODE = Node(name="spark2", ssh="spark2", host_key="ssh-ed25519 AAAA")
FACTS = NodeFacts(hostname="s2", arch="aarch64", home="/h", uid=1000, boot="boot-1")
SILENT = HostError("spark2 cannot be reached: no route.", code="node_unreachable", hint="See its cable.")
REFUSED = HostError("spark2 refuses the login.", code="node_login_refused")
NO_PYTHON = HostError("spark2 has no python3.", code="node_python_missing")


class ConnectionInMemory:
    """A connection whose tries end as a test has written; without a word they succeed."""

    def __init__(self, ends: list[HostError]) -> None:
        self.ends = ends
        self.tries = 0
        self.closed = False
        self.tried = asyncio.Event()

    def __call__(self, node: Node, *, on_lost: Callable[[HostError], None]) -> "ConnectionInMemory":
        self.node, self.lose = node, on_lost
        return self

    async def open(self) -> None:
        self.tries += 1
        self.tried.set()
        if self.ends:
            raise self.ends.pop(0)

    async def close(self) -> None:
        self.closed = True


class FiguresInMemory:
    """A stream that goes on until it is cancelled."""

    def __init__(self, _: Any) -> None:
        self.running = asyncio.Event()
        self.cancelled = False
        self.asked: Callable[[], object] = lambda: None

    sample: NodeSample | None = None

    async def fresh_memory(self) -> Memory:
        self.asked()
        raise SILENT

    async def run(self) -> None:
        self.running.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled = True


class Lived:
    """A node in memory that runs."""

    def __init__(self, *ends: HostError, facts: tuple[HostError, ...] = ()) -> None:
        self.connection = ConnectionInMemory(list(ends))
        self.facts = list(facts)
        self.changes: list[NodeStatus] = []
        self.returned: list[str] = []
        self.restarted: list[str] = []
        self.boot: str | None = "boot-1"
        self.facts_now = FACTS
        self.changed = asyncio.Event()
        told = (self._changed, self.returned.append, self.restarted.append)
        orders = MonitorInputs(self._read_facts, *told, self._differences, clock=lambda: 1000.0)
        connect: Any = self.connection
        self.link = NodeMonitor(NODE, orders, FiguresInMemory, connect)

    async def _read_facts(self, _: Any) -> NodeFacts:
        if self.facts:
            raise self.facts.pop(0)
        return self.facts_now.replace(boot=self.boot)

    def _differences(self, before: NodeFacts, now: NodeFacts) -> Iterator[str]:
        return differences(before, now, FACTS, cabled=False)

    def _changed(self) -> None:
        self.changes.append(self.link.state.status)
        self.changed.set()

    async def until(self, status: NodeStatus) -> None:
        async with asyncio.timeout(20):
            while self.link.state.status is not status:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def live(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Lived]]:
    """Makes running nodes whose pauses after silence take no time."""
    monkeypatch.setattr(node_monitor, "RETRY_S", (0.0, 0.001))
    tasks: list[tuple[Lived, asyncio.Task[None]]] = []

    def make(*ends: HostError, **how: Any) -> Lived:
        made = Lived(*ends, **how)
        tasks.append((made, asyncio.create_task(made.link.run())))
        return made

    yield make
    for made, task in tasks:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert made.connection.closed


async def test_a_silent_node_is_tried_until_it_answers(live: Callable[..., Lived]) -> None:
    lived = live(SILENT, SILENT, SILENT)
    await lived.until(NodeStatus.REACHABLE)
    assert lived.connection.tries == 4
    assert lived.changes == [NodeStatus.UNREACHABLE, NodeStatus.REACHABLE]
    assert (lived.link.state.facts, lived.link.state.reason, lived.returned) == (FACTS, None, ["spark2"])


@pytest.mark.parametrize("error", [REFUSED, NO_PYTHON])
async def test_a_node_that_refuses_waits_for_its_long_pause_or_an_order(
    live: Callable[..., Lived], error: HostError
) -> None:
    lived = live(error)
    await lived.until(NodeStatus.REFUSED)
    assert lived.link.reason is error
    assert lived.link.settled.is_set()
    await asyncio.sleep(0.05)
    assert lived.connection.tries == 1
    lived.link.try_again()
    await lived.until(NodeStatus.REACHABLE)


async def test_a_connection_without_facts_is_no_reachable_node(live: Callable[..., Lived]) -> None:
    lived = live(facts=(HostError("no facts", code="node_facts_failed"),))
    await lived.until(NodeStatus.UNREACHABLE)
    assert lived.returned == []
    await lived.until(NodeStatus.REACHABLE)


async def test_a_loss_is_told_at_once_and_keeps_what_was_known(live: Callable[..., Lived]) -> None:
    lived = live()
    await lived.until(NodeStatus.REACHABLE)
    lived.connection.ends = [SILENT]
    lived.connection.lose(SILENT)
    assert lived.link.state.status is NodeStatus.UNREACHABLE
    assert "See its cable." in (lived.link.state.reason or "")
    assert lived.link.state.facts == FACTS
    await lived.until(NodeStatus.REACHABLE)
    assert lived.returned == ["spark2", "spark2"]


@pytest.mark.parametrize(("boot", "told"), [("boot-1", []), ("boot-2", ["spark2"]), (None, [])])
async def test_a_node_that_is_back_with_another_boot_was_restarted(
    live: Callable[..., Lived], boot: str | None, told: list[str]
) -> None:
    """A link that was cut is none, nor a kernel that does not tell."""
    lived = live()
    await lived.until(NodeStatus.REACHABLE)
    lived.boot = boot
    lived.connection.lose(SILENT)
    await lived.until(NodeStatus.REACHABLE)
    assert lived.restarted == told


async def test_a_box_that_is_lost_while_its_first_memory_is_asked_for_was_never_reachable(
    live: Callable[..., Lived],
) -> None:
    lived = live()
    figures = lived.link.figures

    def lose_once() -> None:
        figures.asked = lambda: None
        lived.connection.lose(SILENT)

    figures.asked = lose_once
    await lived.until(NodeStatus.REACHABLE)
    assert lived.connection.tries == 2
    assert lived.changes == [NodeStatus.UNREACHABLE, NodeStatus.REACHABLE]
    assert lived.returned == ["spark2"]


HALF = Link(
    interface="enp1s0f1np1", address="192.168.100.2", prefix=24, mtu=9000, rate_gbit_s=200.0, up=True,
    hca="rocep1s0f1", gid_index=3,
)  # fmt: skip
TWIN = HALF.replace(interface="enP2p1s0f1np1", address="192.168.101.2", hca="roceP2p1s0f1")
SLOW = Link(interface="enP7s7", address="10.0.0.2", prefix=24, mtu=1500, rate_gbit_s=10.0, up=True)
WHOLE = FACTS.replace(driver="580.95", kernel="6.17", links=(HALF, TWIN, SLOW))


@pytest.mark.parametrize(("now", "own", "told"), [
    (WHOLE.replace(driver="590.1"), "580.95", ["driver 590.1 instead of 580.95"]),
    (WHOLE.replace(driver="590.1"), "590.1", []),
    (WHOLE.replace(kernel="7.0"), None, ["kernel 7.0 instead of 6.17"]),
    (WHOLE.replace(links=(TWIN, SLOW)), None, ["enp1s0f1np1 has no address instead of 192.168.100.2"]),
    (WHOLE.replace(links=(HALF.replace(mtu=1500), TWIN.replace(up=False))), None,
     ["enp1s0f1np1 has MTU 1500 instead of 9000", "enP2p1s0f1np1 is down"]),
    (WHOLE.replace(links=(HALF.replace(rate_gbit_s=100.0), TWIN.replace(address="192.168.9.2"))), None,
     ["enp1s0f1np1 has Gb/s 100 instead of 200", "enP2p1s0f1np1 is in 192.168.9.0/24 instead of 192.168.101.0/24"]),
    (WHOLE.replace(links=(HALF.replace(gid_index=5), TWIN)), None,
     ["different GID indices (5 on rocep1s0f1, 3 on roceP2p1s0f1), where NCCL takes one"]),
    (WHOLE.replace(links=(HALF.replace(gid_index=5), TWIN.replace(gid_index=5), SLOW.replace(mtu=1000))), None, []),
])  # fmt: skip
def test_what_engines_over_several_boxes_need_is_compared(now: NodeFacts, own: str | None, told: list[str]) -> None:
    """A GID index that moved for all is found anew at each start; in a ring each cable's network chooses."""
    assert list(differences(WHOLE, now, FACTS.replace(driver=own), cabled=False)) == told
    in_a_ring = differences(WHOLE, now, FACTS.replace(driver=own), cabled=True)
    assert list(in_a_ring) == [words for words in told if "GID" not in words]


async def test_a_node_that_is_back_says_what_is_not_as_it_was_until_that_is_mended(
    live: Callable[..., Lived], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_monitor, "MENDED_S", 0.001)
    lived = live()
    lived.facts_now = WHOLE
    await lived.until(NodeStatus.REACHABLE)
    for _ in range(2):  # what it is compared with is what it was at first
        lived.facts_now = WHOLE.replace(links=(HALF.replace(mtu=1500), TWIN, SLOW))
        lived.connection.lose(SILENT)
        await lived.until(NodeStatus.REACHABLE)
        assert lived.link.state.differs == "enp1s0f1np1 has MTU 1500 instead of 9000"
    lived.facts_now = WHOLE
    async with asyncio.timeout(20):
        while lived.link.state.differs:
            lived.changed.clear()
            await lived.changed.wait()
    assert lived.link.state.status is NodeStatus.REACHABLE


async def test_a_stream_of_figures_ends_with_the_connection(live: Callable[..., Lived]) -> None:
    lived = live()
    figures = lived.link.figures
    await asyncio.wait_for(figures.running.wait(), 20)
    lived.connection.ends = [SILENT] * 1000
    lived.connection.lose(SILENT)
    lived.connection.tried.clear()
    await asyncio.wait_for(lived.connection.tried.wait(), 20)
    assert figures.cancelled


async def test_what_others_know_of_a_node_is_part_of_its_state(live: Callable[..., Lived]) -> None:
    lived = live()
    await lived.until(NodeStatus.REACHABLE)
    lived.link.note(owed=("sparkdash-a",))
    lived.link.note(guarded=True)
    assert (lived.link.state.owed, lived.link.state.guarded) == (("sparkdash-a",), True)
    before = len(lived.changes)
    lived.link.note(guarded=True)
    assert len(lived.changes) == before

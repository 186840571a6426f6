"""Life of one node's connection, with a connection in memory: which try follows which end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.domain.node import Node, NodeFacts, NodeStatus
from sparkdash.errors import HostError
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

    def __call__(self, node: Node, *, on_lost: Callable[[HostError], None]) -> ConnectionInMemory:
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
    """A stream that ends with an error each time, until it is cancelled."""

    def __init__(self, _: Any) -> None:
        self.runs = 0
        self.running = asyncio.Event()
        self.cancelled = False

    sample: NodeSample | None = None

    async def fresh_memory(self) -> Memory:
        raise SILENT

    async def run(self) -> None:
        self.runs += 1
        if self.runs == 1:
            raise SILENT
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
        self.changed = asyncio.Event()
        told = (self._changed, self.returned.append, self.restarted.append)
        orders = MonitorInputs(self._read_facts, *told, clock=lambda: 1000.0)
        connect: Any = self.connection
        self.link = NodeMonitor(NODE, orders, FiguresInMemory, connect)

    async def _read_facts(self, _: Any) -> NodeFacts:
        if self.facts:
            raise self.facts.pop(0)
        return FACTS.replace(boot=self.boot)

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


async def test_a_stream_of_figures_that_ends_is_begun_again_and_ends_with_the_connection(
    live: Callable[..., Lived],
) -> None:
    lived = live()
    figures = lived.link.figures
    assert isinstance(figures, FiguresInMemory)
    await asyncio.wait_for(figures.running.wait(), 20)
    assert figures.runs == 2
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

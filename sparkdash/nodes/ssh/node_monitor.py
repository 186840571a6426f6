"""Life of one node's connection: made, lost, refused, and tried again; its state and facts."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from sparkdash.domain.node import Node, NodeFacts, NodeState, NodeStatus
from sparkdash.errors import HostError, SparkdashError
from sparkdash.log import LOG
from sparkdash.nodes.agent.figures import NodeFigures
from sparkdash.nodes.ssh import ssh_errors
from sparkdash.nodes.ssh.connection import NodeConnection

RETRY_S = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Pauses before a silent node is tried again; the last one repeats. A try costs at most ssh_command.CONNECT_S."""
REFUSED_RETRY_S = 60.0
"""Pause before a node that refuses us is tried again, as its guard against guessers may count the tries."""
FACTS_EVERY_S = 300.0
"""Age at which facts, such as free disk space, are read again."""
MENDED_S = 30.0
"""The same for a node that is not as it was before it was away."""

REFUSALS = ssh_errors.REFUSALS | {"node_python_missing", "node_known"}
"""Codes of errors of a node that answers and cannot be used."""


@dataclass(frozen=True)
class MonitorInputs:
    """Dependencies of a NodeMonitor."""

    read_facts: Callable[[NodeConnection], Awaitable[NodeFacts]]
    changed: Callable[[], None]
    returned: Callable[[str], None]
    """Called with the node's name each time it can be reached again, the first time included."""
    restarted: Callable[[str], object] = lambda _: None
    """Called with the node's name when it is back from a restart."""
    differences: Callable[[NodeFacts, NodeFacts], Iterable[str]] = lambda *_: ()
    """Compares the facts of before the node was away with those of now."""
    clock: Callable[[], float] = time.time


class NodeMonitor:
    """Keeps one node connected; `run` it as a task."""

    def __init__(
        self,
        node: Node,
        orders: MonitorInputs,
        figures: Callable[[NodeConnection], NodeFigures] | None = None,
        connect: Callable[..., NodeConnection] = NodeConnection,
    ) -> None:
        self.node = node
        self.connection = connect(node, on_lost=self._lost)
        self.figures = figures(self.connection) if figures else None
        self.reason: HostError | None = None
        """Why the node cannot be used; None while it can, or is not known yet."""
        self._orders = orders
        self.state = NodeState(name=node.name, status=NodeStatus.CONNECTING, since=orders.clock())
        self._failures = 0
        self._before: NodeFacts | None = None
        """Facts of before the node was away, until they are the same again."""
        self._loss = asyncio.Event()
        self._again = asyncio.Event()
        self._stale = asyncio.Event()
        self.settled = asyncio.Event()
        """Set once the first try has ended, well or not, its figures included."""

    @property
    def reachable(self) -> bool:
        return self.state.status is NodeStatus.REACHABLE

    def note(self, *, owed: tuple[str, ...] | None = None, guarded: bool | None = None) -> None:
        """Set what others know of the node; None leaves the value."""
        self._set(
            self.state.replace(
                owed=self.state.owed if owed is None else owed,
                guarded=self.state.guarded if guarded is None else guarded,
            )
        )

    def try_again(self) -> None:
        """Try a node that cannot be reached at once, instead of after its pause."""
        self._again.set()

    def read_facts_again(self) -> None:
        """Read the facts soon, if the node can be reached, instead of at their time."""
        self._stale.set()

    async def run(self) -> None:
        """Connect, and connect again after each loss, until cancelled; then close the connection."""
        try:
            while True:
                self._failed(await self._attended())
                refused = self.state.status is NodeStatus.REFUSED
                pause = REFUSED_RETRY_S if refused else RETRY_S[max(0, min(self._failures, len(RETRY_S)) - 1)]
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._again.wait()
                self._again.clear()
        finally:
            await self.connection.close()

    async def _attended(self) -> HostError:
        """Connect, and stay until the connection is lost; return the reason why there is none."""
        self._loss.clear()
        self._failures += 1
        try:
            await self.connection.open()
            facts = await self._orders.read_facts(self.connection)
        except HostError as error:
            return error
        self._failures = 0
        self.reason = None
        tasks = [asyncio.create_task(self._refresh_facts())]
        try:
            if self.figures is not None:  # a node whose memory is not known is of no use yet
                tasks.append(asyncio.create_task(self.figures.run()))
                with contextlib.suppress(SparkdashError):
                    await self.figures.fresh_memory()
            if not self._loss.is_set():
                self._is_back(facts)
            await self._loss.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self.reason or ssh_errors.unreachable(self.node, "the connection has ended")

    def _is_back(self, facts: NodeFacts) -> None:
        before = self.state.facts and self.state.facts.boot
        self._take(facts)
        if before and facts.boot and facts.boot != before:
            self._orders.restarted(self.node.name)
        LOG.info("a node can be reached", node=self.node.name)
        self._orders.returned(self.node.name)
        self.settled.set()

    def _lost(self, reason: HostError) -> None:
        self.reason = reason
        self._loss.set()
        if self.reachable:
            self._failed(reason)

    def _failed(self, error: HostError) -> None:
        refused = error.code in REFUSALS
        status = NodeStatus.REFUSED if refused else NodeStatus.UNREACHABLE
        if self.state.status is not status:
            LOG.warning("a node cannot be reached", node=self.node.name, why=error.message)
        self.reason = error
        self._before = self._before or self.state.facts
        self._enter(status, error.text(), self.state.facts)
        self.settled.set()

    def _take(self, facts: NodeFacts) -> None:
        """Note new facts, and what differs from before the node was away; nothing: that is over."""
        found = "; ".join(self._orders.differences(self._before, facts)) if self._before else ""
        if not found:
            self._before = None
        elif found != self.state.differs:
            LOG.warning("a node is not as it was", node=self.node.name, why=found)
        self._enter(NodeStatus.REACHABLE, None, facts, found or None)

    def _enter(
        self, status: NodeStatus, reason: str | None, facts: NodeFacts | None, differs: str | None = None
    ) -> None:
        since = self.state.since if status is self.state.status else self._orders.clock()
        self._set(self.state.replace(status=status, since=since, reason=reason, facts=facts, differs=differs))

    def _set(self, state: NodeState) -> None:
        if state != self.state:
            self.state = state
            self._orders.changed()

    async def _refresh_facts(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MENDED_S if self.state.differs else FACTS_EVERY_S):
                    await self._stale.wait()
            self._stale.clear()
            with contextlib.suppress(SparkdashError):
                self._take(await self._orders.read_facts(self.connection))

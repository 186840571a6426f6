"""NodeFigures: the last figures of one other node, and the stream that brings them.

Owns: the stream's rhythm and restart, questions over it, the renewal of the lease of the node's memory guard, and its
reports. Must not know how a node is reached, engines, or who shows the figures.

The stream is a script that the node's Python reads from its input (`program`). It is asked something every HEARTBEAT_S
at least: the question renews the guard's lease, and its answer shows the clock's offset.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.errors import HostError, SparkdashError
from sparkdash.nodes.agent import lease as leases
from sparkdash.nodes.agent.clock_offset import ClockOffset, RoundTrip
from sparkdash.nodes.agent.guard_starter import GuardStarter
from sparkdash.nodes.agent.link_rates import LinkRates
from sparkdash.nodes.agent.stream import FIRST_S, FiguresStream, NodeCommands, silent
from sparkdash.nodes.agent.tick import AgentTick, GuardAct

LOG = structlog.get_logger("sparkdash.nodes")

SILENT_TICKS = 3
"""Ticks without a line after which the stream counts as silent."""
LEAST_SILENCE_S = 3.0
HEARTBEAT_S = 15.0
"""Longest pause between two questions."""
FRESH_S = 3.0
"""Deadline of a question for the memory of now."""
BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Pauses before the stream is begun again; the last one repeats."""
STABLE_S = 60.0
"""Life of a stream after which the pauses begin with the shortest again."""
QUESTIONS_LIMIT = 100
REPORTS_KEPT = 200


class NodeFigures:
    """Figures of one node. `run` is a task of the event loop; all else is answered from what it has heard."""

    def __init__(
        self,
        node: str,
        commands: NodeCommands,
        owner: str,
        *,
        lease: Callable[[Memory], dict[str, Any] | None] = lambda _: None,
        on_kill: Callable[[GuardAct], None] = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`lease` gives the guard's lease by the node's memory, or None for no guard. `on_kill` gets each report of the
        guard once. `on_change` is called when figures begin or end, and when the guard does.
        """
        self.node = node
        self.reason: str | None = None
        """Why there are no figures; None while there are, and before the first try ended."""
        self.sample: NodeSample | None = None
        """Last figures, however old; None before the first."""
        self.guarded = False
        """Whether the node's memory guard ran at the last tick; False while the node is silent."""
        self.cpu_s: float | None = None
        """Processor time that the stream's script has taken on the node."""
        self._stream = FiguresStream(node, commands, owner, self._take)
        self._guard = GuardStarter(node, commands, owner, self.renew)
        self._lease, self._on_kill, self._on_change = lease, on_kill, on_change
        self._every_s = HEARTBEAT_S
        self._offset = ClockOffset()
        self._rates = LinkRates()
        self._asked: dict[int, tuple[float, asyncio.Future[AgentTick | None]]] = {}
        """Time and answer of each open question, by its number."""
        self._number = 0
        self._told: dict[str, None] = {}
        """Reports of the guard that were handed on, the last ones."""
        self._heard = asyncio.Event()
        """Set while figures come."""

    @property
    def is_silent(self) -> bool:
        """Whether no figures come now."""
        return not self._heard.is_set()

    @property
    def memory(self) -> Memory | None:
        """Memory of the node by its last tick; None while it is silent."""
        return None if self.is_silent or self.sample is None else self.sample.memory

    @property
    def clock_offset_s(self) -> float | None:
        """Node's clock less this box's clock; None before the first answer."""
        return self._offset.offset_s

    def age_s(self, now: float) -> float | None:
        """Age of the last figures at `now`, Unix seconds; None without any."""
        return None if self.sample is None else max(now - self.sample.at, 0.0)

    def pace(self, every_s: float) -> None:
        """Set the interval of ticks; a new one begins at once."""
        if every_s != self._every_s:
            self._every_s = every_s
            self.renew()

    def renew(self) -> None:
        """Renew the guard's lease now, after a change of the engines there."""
        if not self.is_silent:
            self._ask()
            self._stream.allow(self._silence_s)

    async def fresh_memory(self) -> Memory:
        """Ask the node for its memory of now. Raises HostError: node_unreachable, memory_unknown."""
        try:
            async with asyncio.timeout(FRESH_S):
                if self.reason is None:
                    await self._heard.wait()
                if self.reason is not None:
                    raise HostError(self.reason, code="node_unreachable")
                tick = await self._ask()
        except TimeoutError:
            raise silent(self.node, FRESH_S) from None
        if tick is None:
            raise HostError(self.reason or f"The figures of {self.node} ended.", code="node_unreachable")
        if tick.memory is None:
            raise HostError(f"{self.node} does not tell how much memory it has.", code="memory_unknown")
        return tick.memory

    async def run(self) -> None:
        """Follow the stream until cancelled, and begin it again whenever it ends."""
        failures = 0
        asking = asyncio.create_task(self._keep_asking(), name="node questions")
        try:
            while True:
                began = time.monotonic()
                self._rates = LinkRates()
                self._stream.allow(FIRST_S)
                try:
                    await self._stream.follow(lambda: self._ask())
                except (SparkdashError, OSError) as error:
                    told = error.text() if isinstance(error, SparkdashError) else f"{self.node}: {error}."
                    self._ended(told)
                failures = 0 if time.monotonic() - began >= STABLE_S else failures + 1
                await asyncio.sleep(BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)])
        finally:
            self._ended(None)
            asking.cancel()
            await asyncio.gather(asking, self._guard.close(), return_exceptions=True)

    @property
    def _silence_s(self) -> float:
        return max(SILENT_TICKS * self._every_s, LEAST_SILENCE_S)

    def _take(self, tick: AgentTick) -> None:
        now = time.time()
        question = None if tick.answers is None else self._asked.pop(tick.answers, None)
        if question is not None:
            self._offset.add(RoundTrip(question[0], now, tick.clock))
        memory = None if tick.memory is None else tick.memory.replace(engines=dict(tick.engines))
        self.sample = NodeSample(at=now, memory=memory, gpu=tick.gpu, links=self._rates.add(tick.at, tick.ports))
        self.cpu_s = tick.cpu_s
        changed = self.is_silent or tick.guarded is not self.guarded
        self.guarded, self.reason = tick.guarded, None
        self._heard.set()
        self._stream.allow(self._silence_s)
        if question is not None:
            _answer(question[1], tick)
        self._hand_on(tick.kills)
        lease = self._lease_now()
        if not tick.guarded and lease is not None and not leases.ends(lease):
            self._guard.keep(lease)
        if changed:
            self._on_change()

    def _hand_on(self, kills: Sequence[GuardAct]) -> None:
        """Report each kill once, and have the node forget those that were read."""
        for act in kills:
            if act.id not in self._told:
                self._told[act.id] = None
                self._on_kill(act)
        while len(self._told) > REPORTS_KEPT:
            self._told.pop(next(iter(self._told)))
        if kills:
            self._ask([act.id for act in kills])

    def _lease_now(self) -> dict[str, Any] | None:
        memory = self.sample.memory if self.sample else None
        return None if memory is None else self._lease(memory)

    async def _keep_asking(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if not self.is_silent:
                self._ask()

    def _ask(self, read: Sequence[str] = ()) -> asyncio.Future[AgentTick | None]:
        """Ask for a tick now. None is its answer when the stream ends; `read` are reports to forget."""
        answer: asyncio.Future[AgentTick | None] = asyncio.get_running_loop().create_future()
        self._number += 1
        self._asked[self._number] = time.time(), answer
        for old in list(self._asked)[:-QUESTIONS_LIMIT]:
            _answer(self._asked.pop(old)[1], None)
        command: dict[str, Any] = {"every": self._every_s, "id": self._number}
        if lease := self._lease_now():
            command["lease"] = lease
        if read:
            command["read"] = list(read)
        self._stream.ask(command)
        return answer

    def _ended(self, reason: str | None) -> None:
        was_silent, before = self.is_silent, self.reason
        self._heard.clear()
        self.guarded, self.reason = False, reason
        for _, answer in self._asked.values():
            _answer(answer, None)
        self._asked.clear()
        if reason is not None and reason != before:
            LOG.info("no figures of a node", node=self.node, why=reason)
        if not was_silent:
            self._on_change()


def _answer(question: asyncio.Future[AgentTick | None], tick: AgentTick | None) -> None:
    if not question.done():
        question.set_result(tick)

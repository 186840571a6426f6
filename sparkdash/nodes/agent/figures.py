"""NodeFigures: the last figures of one other node, and the stream that brings them.

The stream is a program that the node's Python reads from its input. It is asked something every HEARTBEAT_S at least:
the question renews the guard's lease.
"""

import asyncio
import contextlib
import json
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.errors import HostError, SparkdashError
from sparkdash.host.command import LineSplitter
from sparkdash.log import LOG
from sparkdash.nodes.agent.node_guard import GuardStarter
from sparkdash.nodes.agent.tick import LINE_LIMIT, AgentTick, GuardAct, LinkRates, read_tick
from sparkdash.nodes.programs import program_text, stream_argv
from sparkdash.nodes.ssh.connection import NodeConnection
from sparkdash.units import duration, one_line

FIGURES = (
    "pynvml",
    "sparkdash.host.guard_rules",
    "sparkdash.host.kernel_figures",
    "sparkdash.host.nvml_device",
    "sparkdash.host.processes.proc",
    "sparkdash.nodes.agent.engine_processes",
    "sparkdash.nodes.agent.guard_files",
    "sparkdash.nodes.agent.remote_figures",
)
FIRST_S = 12.0
"""Time for the first figures: a new ssh connection, and the start of Python on a busy node."""
END_S = 3.0
STDERR_LIMIT = 2000
_CHUNK = 65536


class FiguresStream:
    """Run of the script on `node`; `take` gets every tick."""

    def __init__(self, node: str, connection: NodeConnection, owner: str, take: Callable[[AgentTick], None]) -> None:
        self._node, self._connection, self._owner, self._take = node, connection, owner, take
        self._process: Process | None = None
        self._limit: asyncio.Timeout | None = None
        self._silence_s = FIRST_S

    async def follow(self, first: Callable[[], object]) -> None:
        """Run the script until it ends; `first` is called once it can be asked.

        Raises:
            HostError: always, with the reason of the end. node_unreachable: silence, or a lost connection.
        """
        async with self._connection.child(stream_argv(FIGURES, self._owner)) as process:
            said = asyncio.create_task(_last_words(process), name="node stderr")
            try:
                self._process = process
                self._write(program_text(*FIGURES))
                first()
                async with asyncio.timeout(self._silence_s) as self._limit:
                    await self._read(process)
                # asyncio.wait_for of Python 3.11 loses a cancellation that arrives with the end
                async with asyncio.timeout(END_S):
                    code, words = await process.wait(), await said
                why = f": {words}" if words else ""
                raise HostError(
                    f"The figures of {self._node} ended with exit code {code}{why}.", code="node_unreachable"
                )
            except TimeoutError:
                raise silent(self._node, self._silence_s) from None
            finally:
                self._process = self._limit = None
                said.cancel()
                await asyncio.gather(said, return_exceptions=True)

    def ask(self, command: dict[str, Any]) -> None:
        """Send one command; nothing happens while the script does not run."""
        self._write(json.dumps(command).encode() + b"\n")

    def allow(self, seconds: float) -> None:
        """Set how long the script may be silent from now on."""
        self._silence_s = seconds
        if self._limit is not None:
            with contextlib.suppress(RuntimeError):  # it has passed already
                self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def _write(self, text: bytes) -> None:
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(text)

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None  # noqa: S101 - `child` makes this pipe
        splitter = LineSplitter(LINE_LIMIT)
        while chunk := await process.stdout.read(_CHUNK):
            for line in splitter.feed(chunk):
                if tick := read_tick(line):
                    self._take(tick)


def silent(node: str, seconds: float) -> HostError:
    return HostError(
        f"{node} does not answer: no figures for {duration(seconds)}.",
        code="node_unreachable",
        hint="Is it on, and its network up? It is tried again.",
    )


async def _last_words(process: Process) -> str:
    assert process.stderr is not None  # noqa: S101 - `child` makes this pipe
    said = b""
    while chunk := await process.stderr.read(_CHUNK):
        said = (said + chunk)[-STDERR_LIMIT:]
    return one_line(said.decode("utf-8", "replace").strip().rpartition("\n")[2])


SILENT_TICKS = 3
"""Ticks without a line after which the stream counts as silent."""
LEAST_SILENCE_S = 3.0
HEARTBEAT_S = 15.0
"""Longest pause between two questions."""
FRESH_S = 3.0
"""Deadline of a question for the memory of now."""
AGAIN_S = 2.0
"""Pause before the stream is begun again."""
QUESTIONS_LIMIT = 100
PROBED_S = 60.0
"""Time after which a peer that nobody asks about is no longer probed."""


class NodeFigures:
    """Figures of one node. `run` is a task of the event loop; all else is answered from what it has heard."""

    def __init__(
        self,
        node: str,
        connection: NodeConnection,
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
        self._stream = FiguresStream(node, connection, owner, self._take)
        self._guard = GuardStarter(node, connection, owner, self.renew)
        self._lease, self._on_kill, self._on_change = lease, on_kill, on_change
        self._every_s = HEARTBEAT_S
        self.clock_offset_s = 0.0
        """Node's clock less this box's, by the last tick: a guard's report needs no more than its second."""
        self._rates = LinkRates()
        self._asked: dict[int, asyncio.Future[AgentTick | None]] = {}
        """Answer of each open question, by its number."""
        self._number = 0
        self.reached: dict[str, int | None] = {}
        """Losses among the last answers of each address that `probe` names; None: silent. Empty with a silent node."""
        self.held: tuple[str, ...] = ()
        """Our containers on the node that are paused, or of which a process is stopped."""
        self._probes: dict[tuple[str, str], float] = {}
        """Own and peer's addresses that are to be probed, with the time when that was last asked for."""
        self._told = set[str]()
        """Reports of the guard that were handed on."""
        self._heard = asyncio.Event()
        """Set while figures come."""
        self._tried = asyncio.Event()
        """Set once figures came, or the reason why they do not."""

    @property
    def is_silent(self) -> bool:
        return not self._heard.is_set()

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

    def probe(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Have the node try these peers from these own addresses, until it is not asked for PROBED_S."""
        now = time.monotonic()
        fresh = dict.fromkeys(pairs, now)
        is_new = not fresh.keys() <= self._probes.keys()
        self._probes = {pair: at for pair, at in (self._probes | fresh).items() if now - at < PROBED_S}
        if is_new and not self.is_silent:
            self._ask()

    async def fresh_memory(self) -> Memory:
        """Ask the node for its memory of now. Raises HostError: node_unreachable, memory_unknown."""
        limit_s = FIRST_S
        try:
            async with asyncio.timeout(limit_s):
                await self._tried.wait()
            if self.reason is not None:
                raise HostError(self.reason, code="node_unreachable")
            limit_s = FRESH_S
            async with asyncio.timeout(limit_s):
                tick = await self._ask()
        except TimeoutError:
            raise silent(self.node, limit_s) from None
        if tick is None:
            raise HostError(self.reason or f"The figures of {self.node} ended.", code="node_unreachable")
        if tick.memory is None:
            raise HostError(f"{self.node} does not tell how much memory it has.", code="memory_unknown")
        return tick.memory

    async def run(self) -> None:
        """Follow the stream until cancelled, and begin it again whenever it ends."""
        asking = asyncio.create_task(self._keep_asking(), name="node questions")
        try:
            while True:
                self._rates = LinkRates()
                self._stream.allow(FIRST_S)
                try:
                    await self._stream.follow(lambda: self._ask())
                except (SparkdashError, OSError) as error:
                    told = error.text() if isinstance(error, SparkdashError) else f"{self.node}: {error}."
                    self._ended(told)
                await asyncio.sleep(AGAIN_S)
        finally:
            self._ended(None)
            asking.cancel()
            await asyncio.gather(asking, self._guard.close(), return_exceptions=True)

    @property
    def _silence_s(self) -> float:
        return max(SILENT_TICKS * self._every_s, LEAST_SILENCE_S)

    def _take(self, tick: AgentTick) -> None:
        now = time.time()
        question = None if tick.id is None else self._asked.pop(tick.id, None)
        self.clock_offset_s = tick.clock - now
        memory = None if tick.memory is None else tick.memory.replace(engines=dict(tick.engines))
        self.sample = NodeSample(
            at=now, memory=memory, gpu=tick.gpu, links=self._rates.add(tick.at, (*tick.interfaces, *tick.rdma))
        )
        changed = self.is_silent or tick.guarded is not self.guarded
        self.guarded, self.reason = tick.guarded, None
        self.held, self.reached = tick.held, tick.reached
        self._heard.set()
        self._tried.set()
        self._stream.allow(self._silence_s)
        if question is not None:
            _answer(question, tick)
        self._hand_on(tick.kills)
        lease = self._lease_now()
        if not tick.guarded and lease is not None and not lease.get("stop"):
            self._guard.keep(lease)
        if changed:
            self._on_change()

    def _hand_on(self, kills: Sequence[GuardAct]) -> None:
        """Report each kill once, and have the node forget those that were read."""
        for act in kills:
            if act.id not in self._told:
                self._told.add(act.id)
                self._on_kill(act)
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
        self._asked[self._number] = answer
        for old in list(self._asked)[:-QUESTIONS_LIMIT]:
            _answer(self._asked.pop(old), None)
        command: dict[str, Any] = {"every": self._every_s, "id": self._number}
        if lease := self._lease_now():
            command["lease"] = lease
        if read:
            command["read"] = list(read)
        if self._probes:
            command["probe"] = list(self._probes)
        self._stream.ask(command)
        return answer

    def _ended(self, reason: str | None) -> None:
        was_silent, before = self.is_silent, self.reason
        self._heard.clear()
        self.guarded, self.reason = False, reason
        self.held, self.reached = (), {}
        for answer in self._asked.values():
            _answer(answer, None)
        self._asked.clear()
        if reason is not None:
            self._tried.set()
        if reason is not None and reason != before:
            LOG.info("no figures of a node", node=self.node, why=reason)
        if not was_silent:
            self._on_change()


def _answer(question: asyncio.Future[AgentTick | None], tick: AgentTick | None) -> None:
    if not question.done():
        question.set_result(tick)

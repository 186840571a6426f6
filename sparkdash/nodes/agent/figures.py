"""NodeFigures: the last figures of one other node, and the stream that brings them.

Owns: the stream's rhythm, its silence and restart, questions over it, and the node's memory guard: its start, the
renewal of its lease, and its reports. Must not know how a node is reached, engines, or who shows the figures.

The stream is a script that the node's Python reads from its input (`program`). It is asked something every HEARTBEAT_S
at least: the question renews the guard's lease, and its answer shows the clock's offset.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import structlog

from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.errors import HostError, SparkdashError
from sparkdash.host.command import CommandResult
from sparkdash.host.files.line_splitter import LineSplitter
from sparkdash.nodes.agent import lease as leases
from sparkdash.nodes.agent.clock_offset import ClockOffset, RoundTrip
from sparkdash.nodes.agent.link_rates import LinkRates
from sparkdash.nodes.agent.program import FIGURES, GUARD, program_argv, program_text
from sparkdash.nodes.agent.tick import LINE_LIMIT, GuardAct, Tick, parse_tick
from sparkdash.printable import one_line
from sparkdash.units import duration

LOG = structlog.get_logger("sparkdash.nodes")

FIRST_S = 12.0
"""Time for the first figures: a new ssh connection, and the start of Python on a busy node."""
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
BAD_LINES = 20
"""Lines in a row that are no ticks, after which a stream is ended; a login script may write some at the start."""
GUARD_S = 15.0
"""Deadline of a guard's start."""
GUARD_AGAIN_S = 30.0
"""Pause before a guard that does not run is started again."""
STDERR_LIMIT = 2000
_CHUNK = 65536
_MISSING = 127


class NodeCommands(Protocol):
    """Protocol of a connection to a node, as far as figures need it. Both raise HostError."""

    async def run(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes | None = None) -> CommandResult:
        """Run a program there to its end."""
        ...

    def child(self, argv: Sequence[str]) -> AbstractAsyncContextManager[Process]:
        """Run a program there for the length of the block, with pipes for all its streams."""
        ...


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
        """Whether the node's memory guard ran at the last tick."""
        self.cpu_s: float | None = None
        """Processor time of the stream's script on the node."""
        self._commands, self._owner = commands, owner
        self._lease, self._on_kill, self._on_change = lease, on_kill, on_change
        self._every_s = HEARTBEAT_S
        self._limit: asyncio.Timeout | None = None
        self._process: Process | None = None
        self._offset = ClockOffset()
        self._rates = LinkRates()
        self._asked: dict[int, tuple[float, asyncio.Future[Tick]]] = {}
        """Time and answer of each open question, by its number."""
        self._number = 0
        self._told: dict[str, None] = {}
        """Reports of the guard that were handed on, the last ones."""
        self._heard = asyncio.Event()
        """Set while figures come."""
        self._starting: asyncio.Task[None] | None = None
        self._guard_at = float("-inf")
        self._guard_failed: str | None = None

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
        """Set the interval of ticks; a shorter one begins at once."""
        if every_s == self._every_s:
            return
        self._every_s = every_s
        if self._process is not None and not self.is_silent:
            self._ask()
            self._allow(self._silence_s())

    def renew(self) -> None:
        """Renew the guard's lease now, after a change of the engines there."""
        if not self.is_silent:
            self._ask()

    async def fresh_memory(self) -> Memory:
        """Ask the node for its memory of now. Raises HostError: node_unreachable, memory_unknown."""
        try:
            async with asyncio.timeout(FRESH_S):
                if self.reason is None:
                    await self._heard.wait()
                if self.is_silent:
                    raise self._unreachable()
                tick = await self._ask()
        except TimeoutError:
            raise self._unreachable() from None
        if tick.memory is None:
            raise HostError(f"{self.node} does not tell how much memory it has.", code="memory_unknown")
        return tick.memory

    async def run(self) -> None:
        """Follow the stream until cancelled, and begin it again whenever it ends."""
        failures = 0
        try:
            while True:
                began = time.monotonic()
                try:
                    await self._follow()
                except SparkdashError as error:
                    self._ended(error.text())
                except OSError as error:
                    self._ended(f"The figures of {self.node} ended: {error}.")
                failures = 0 if time.monotonic() - began >= STABLE_S else failures + 1
                await asyncio.sleep(BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)])
        finally:
            self._ended(None)
            if self._starting is not None:
                self._starting.cancel()
                await asyncio.gather(self._starting, return_exceptions=True)

    async def _follow(self) -> None:
        """Follow one stream to its end. Raises HostError with the reason of the end, OSError."""
        self._rates = LinkRates()
        async with self._commands.child(program_argv(FIGURES, self._owner)) as process:
            said = asyncio.create_task(_last_words(process), name="node stderr")
            asking = asyncio.create_task(self._keep_asking(), name="node questions")
            try:
                assert process.stdin is not None  # noqa: S101 - `child` makes these pipes
                process.stdin.write(program_text(FIGURES, self._owner))
                self._process = process
                self._ask()
                async with asyncio.timeout(FIRST_S) as self._limit:
                    await self._read(process)
                code = await asyncio.wait_for(process.wait(), FRESH_S)
                raise self._over(code, await asyncio.wait_for(said, FRESH_S))
            except TimeoutError:
                raise self._silent() from None
            finally:
                self._process = self._limit = None
                for task in (said, asking):
                    task.cancel()
                await asyncio.gather(said, asking, return_exceptions=True)

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None  # noqa: S101 - `child` makes this pipe
        splitter, bad = LineSplitter(LINE_LIMIT), 0
        while chunk := await process.stdout.read(_CHUNK):
            for line in splitter.feed(chunk):
                try:
                    tick = parse_tick(line)
                except ValueError as error:
                    bad += 1
                    if bad >= BAD_LINES:
                        raise HostError(
                            f"{self.node} sends no figures: {error}.", code="node_unreadable", hint=_SHELL_HINT
                        ) from None
                    continue
                bad = 0
                self._take(tick)
                self._allow(self._silence_s())

    def _take(self, tick: Tick) -> None:
        now = time.time()
        asked, answer = self._asked.pop(tick.answers, (None, None)) if tick.answers is not None else (None, None)
        if asked is not None:
            self._offset.add(RoundTrip(asked, now, tick.clock))
        memory = None if tick.memory is None else tick.memory.replace(engines=dict(tick.engines))
        self.sample = NodeSample(at=now, memory=memory, gpu=tick.gpu, links=self._rates.add(tick.at, tick.ports))
        self.cpu_s = tick.cpu_s
        changed = self.is_silent or tick.guarded is not self.guarded
        self.guarded, self.reason = tick.guarded, None
        self._heard.set()
        if answer is not None and not answer.done():
            answer.set_result(tick)
        self._hand_on(tick.kills)
        self._keep_guard(tick)
        if changed:
            self._on_change()

    def _hand_on(self, kills: Sequence[GuardAct]) -> None:
        if not kills:
            return
        for act in kills:
            if act.id not in self._told:
                self._told[act.id] = None
                self._on_kill(act)
        while len(self._told) > 4 * len(kills) + 100:
            self._told.pop(next(iter(self._told)))
        self._ask(read=[act.id for act in kills])

    def _keep_guard(self, tick: Tick) -> None:
        """Start the node's guard if it should run and does not."""
        lease = self._lease_now()
        now = time.monotonic()
        if tick.guarded or lease is None or leases.ends(lease) or now - self._guard_at < GUARD_AGAIN_S:
            return
        self._guard_at = now
        self._starting = asyncio.create_task(self._start_guard(lease), name="node guard")

    async def _start_guard(self, lease: dict[str, Any]) -> None:
        text = program_text(GUARD, self._owner) + json.dumps(lease).encode() + b"\n"
        try:
            done = await self._commands.run(program_argv(GUARD, self._owner), deadline_s=GUARD_S, stdin=text)
            failed = None if done.code == 0 else one_line((done.out + done.err).strip())[-STDERR_LIMIT:]
        except SparkdashError as error:
            failed = error.text()
        if failed is not None and failed != self._guard_failed:
            LOG.warning("the memory guard of a node could not be started", node=self.node, why=failed)
        self._guard_failed = failed
        self.renew()

    def _lease_now(self) -> dict[str, Any] | None:
        memory = self.sample.memory if self.sample else None
        return None if memory is None else self._lease(memory)

    async def _keep_asking(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self._ask()

    def _ask(self, read: Sequence[str] = ()) -> asyncio.Future[Tick]:
        """Ask for a tick now; the answer never fails, and may never come."""
        answer: asyncio.Future[Tick] = asyncio.get_running_loop().create_future()
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            return answer
        self._number += 1
        self._asked[self._number] = time.time(), answer
        for old in list(self._asked)[:-100]:
            self._asked.pop(old)[1].cancel()
        command: dict[str, Any] = {"every": self._every_s, "id": self._number}
        if lease := self._lease_now():
            command["lease"] = lease
        if read:
            command["read"] = list(read)
        process.stdin.write(json.dumps(command).encode() + b"\n")
        return answer

    def _allow(self, seconds: float) -> None:
        if self._limit is not None:
            with contextlib.suppress(RuntimeError):  # it has passed already
                self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def _silence_s(self) -> float:
        return max(SILENT_TICKS * self._every_s, LEAST_SILENCE_S)

    def _ended(self, reason: str | None) -> None:
        was_silent, before = self.is_silent, self.reason
        self._heard.clear()
        self.guarded, self.reason = False, reason
        for _, answer in self._asked.values():
            answer.cancel()
        self._asked.clear()
        if reason is not None and reason != before:
            LOG.info("no figures of a node", node=self.node, why=reason)
        if not was_silent:
            self._on_change()

    def _unreachable(self) -> HostError:
        return HostError(self.reason, code="node_unreachable") if self.reason else self._silent()

    def _silent(self) -> HostError:
        seconds = FIRST_S if self.is_silent else self._silence_s()
        return HostError(
            f"{self.node} does not answer: no figures for {duration(seconds)}.",
            code="node_unreachable",
            hint="Is it on, and its network up? It is tried again.",
        )

    def _over(self, code: int, said: str) -> HostError:
        if code == _MISSING:
            return HostError(
                f"{self.node} has no python3, which its figures and its memory guard need.",
                code="node_without_python",
                hint=f"Install Python 3.8 or later there: `ssh {self.node} sudo apt install python3`.",
            )
        why = f": {said}" if said else ""
        return HostError(f"The figures of {self.node} ended with exit code {code}{why}.", code="node_unreachable")


_SHELL_HINT = "Does the login shell there print something? `ssh NODE true` must print nothing."


async def _last_words(process: Process) -> str:
    """Return the end of what a process wrote to stderr, on one line."""
    assert process.stderr is not None  # noqa: S101 - `child` makes this pipe
    said = b""
    while chunk := await process.stderr.read(_CHUNK):
        said = (said + chunk)[-STDERR_LIMIT:]
    return one_line(said.decode("utf-8", "replace").strip().rpartition("\n")[2])

"""FiguresStream: one run of the script that sends a node's figures, from its start to its end.

Owns: the script's start, its lines, and how long it may be silent. Must not know what the figures mean, or when another
run begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult, LineSplitter
from sparkdash.nodes.agent.program import FIGURES, program_argv, program_text
from sparkdash.nodes.agent.tick import LINE_LIMIT, AgentTick, parse_tick
from sparkdash.units import duration, one_line

FIRST_S = 12.0
"""Time for the first figures: a new ssh connection, and the start of Python on a busy node."""
END_S = 3.0
"""Time for the end of a process that has closed its output."""
BAD_LINES = 20
"""Lines in a row that are no ticks, after which a stream is ended; a login script may write some at the start."""
STDERR_LIMIT = 2000
_CHUNK = 65536
_MISSING = 127
"""Exit code of a shell for a program that is not there."""


class NodeCommands(Protocol):
    """Protocol of a connection to a node, as far as figures need it. Both raise HostError."""

    async def run(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes | None = None) -> CommandResult:
        """Run a program there to its end."""
        ...

    def child(self, argv: Sequence[str]) -> AbstractAsyncContextManager[Process]:
        """Run a program there for the length of the block, with pipes for all its streams."""
        ...


class FiguresStream:
    """Run of the script on `node`; `take` gets every tick."""

    def __init__(self, node: str, commands: NodeCommands, owner: str, take: Callable[[AgentTick], None]) -> None:
        self._node, self._commands, self._owner, self._take = node, commands, owner, take
        self._process: Process | None = None
        self._limit: asyncio.Timeout | None = None
        self._silence_s = FIRST_S

    async def follow(self, first: Callable[[], object]) -> None:
        """Run the script until it ends; `first` is called once it can be asked.

        Raises:
            HostError: always, with the reason of the end. node_unreachable: silence, or a lost connection;
                node_without_python, node_unreadable.
        """
        async with self._commands.child(program_argv(FIGURES, self._owner)) as process:
            said = asyncio.create_task(_last_words(process), name="node stderr")
            try:
                self._process = process
                self._write(program_text(FIGURES, self._owner))
                first()
                async with asyncio.timeout(self._silence_s) as self._limit:
                    await self._read(process)
                # asyncio.wait_for of Python 3.11 loses a cancellation that arrives with the end
                async with asyncio.timeout(END_S):
                    code, words = await process.wait(), await said
                raise self._end_error(code, words)
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
        splitter, bad = LineSplitter(LINE_LIMIT), 0
        while chunk := await process.stdout.read(_CHUNK):
            for line in splitter.feed(chunk):
                try:
                    tick = parse_tick(line)
                except ValueError as error:
                    bad += 1
                    if bad >= BAD_LINES:
                        raise self._unreadable(error) from None
                else:
                    bad = 0
                    self._take(tick)

    def _unreadable(self, error: ValueError) -> HostError:
        return HostError(
            f"{self._node} sends no figures: {error}.",
            code="node_unreadable",
            hint="A login script there that prints something disturbs them: `ssh HOST true` must print nothing.",
        )

    def _end_error(self, code: int, said: str) -> HostError:
        if code == _MISSING:
            return HostError(
                f"{self._node} has no python3, which its figures and its memory guard need.",
                code="node_without_python",
                hint="Install Python 3.8 or later there: `sudo apt install python3`.",
            )
        why = f": {said}" if said else ""
        return HostError(f"The figures of {self._node} ended with exit code {code}{why}.", code="node_unreachable")


def silent(node: str, seconds: float) -> HostError:
    """Make the error for a node without an answer for this long."""
    return HostError(
        f"{node} does not answer: no figures for {duration(seconds)}.",
        code="node_unreachable",
        hint="Is it on, and its network up? It is tried again.",
    )


async def _last_words(process: Process) -> str:
    """Return the last line of what a process wrote to stderr."""
    assert process.stderr is not None  # noqa: S101 - `child` makes this pipe
    said = b""
    while chunk := await process.stderr.read(_CHUNK):
        said = (said + chunk)[-STDERR_LIMIT:]
    return one_line(said.decode("utf-8", "replace").strip().rpartition("\n")[2])

"""Commands of a node, run on this box: the real scripts, without ssh."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult, begin_child, end_child


class LocalCommands:
    """Runs `python3` as this Python. `program` takes the place of every command, `refuses` of every connection."""

    def __init__(self, program: str | None = None) -> None:
        self.program = program
        """Source of a Python program that stands in for the script of figures."""
        self.refuses: HostError | None = None
        self.children: list[Process] = []
        self.calls: list[Sequence[str]] = []

    async def run(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes | None = None) -> CommandResult:
        self._refuse()
        self.calls.append(argv)
        process = await begin_child([sys.executable, *argv[1:]], stdin=PIPE, stdout=PIPE, stderr=PIPE)
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin), deadline_s)
        finally:
            await end_child(process)
        assert process.returncode is not None
        return CommandResult(process.returncode, out.decode(), err.decode())

    @asynccontextmanager
    async def child(self, argv: Sequence[str]) -> AsyncIterator[Process]:
        """Run a program for the length of the block."""
        self._refuse()
        words = [sys.executable, *argv[1:]] if self.program is None else [sys.executable, "-u", "-c", self.program]
        process = await begin_child(words, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        self.children.append(process)
        try:
            yield process
        finally:
            await end_child(process)

    def _refuse(self) -> None:
        if self.refuses is not None:
            raise self.refuses

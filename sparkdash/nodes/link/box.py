"""Box of a pair, and the commands of this one.

Owns: what a caller needs of a box to run commands there. Must not know ssh, or what the commands are for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from sparkdash.domain.node import LOCAL, NodeFacts
from sparkdash.errors import HostError, SparkdashError
from sparkdash.host.command import CommandResult, begin_child, end_child


class RunsCommands(Protocol):
    """Runs programs on one box, each with a deadline."""

    async def run(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes | None = None) -> CommandResult:
        """Run a program to its end; return its own exit code. Raises HostError: the box is silent, or the deadline."""
        ...


class LocalCommands:
    """Programs of this box."""

    async def run(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes | None = None) -> CommandResult:
        """Run a program here. Exit code 127, as a shell's, stands for a program that does not exist.

        Raises:
            HostError: it did not end within `deadline_s`, and was killed.
        """
        with _in_memory(stdin or b"") as source, _in_memory() as out, _in_memory() as err:
            try:
                process = await begin_child(argv, stdin=source, stdout=out, stderr=err)
            except OSError as error:
                return CommandResult(127, "", f"{argv[0]}: {error.strerror or error}")
            try:
                async with asyncio.timeout(deadline_s):
                    code = await process.wait()
            except TimeoutError:
                raise HostError(
                    f"`{argv[0]}` did not end within {deadline_s:g} s on this box.", code="command_timeout"
                ) from None
            finally:
                await end_child(process)
            return CommandResult(code, _written(out), _written(err))


@dataclass(frozen=True, slots=True)
class Box:
    """One box of a pair. A silent box has the reason, and neither commands nor facts."""

    name: str
    commands: RunsCommands | None = None
    facts: NodeFacts | None = None
    silent: SparkdashError | None = None
    """Why the box can not be asked."""

    @property
    def shown(self) -> str:
        """Name for people: this box's is its host name."""
        return self.facts.hostname if self.name == LOCAL and self.facts else self.name


def _in_memory(content: bytes = b"") -> IO[bytes]:
    file = os.fdopen(os.memfd_create("sparkdash"), "w+b", buffering=0)
    file.write(content)
    file.seek(0)
    return file


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")

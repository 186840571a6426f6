"""Box of a pair, and the commands of this one.

Owns: what a caller needs of a box to run commands there. Must not know ssh, or what the commands are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sparkdash.domain.node import LOCAL, NodeFacts
from sparkdash.errors import HostError, SparkdashError
from sparkdash.host.command import CommandResult, run_command

NOT_FOUND = 127
"""Exit code of a shell for a program that does not exist."""


class RunsCommands(Protocol):
    """Runs programs on one box, each with a deadline."""

    async def run(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes | None = None) -> CommandResult:
        """Run a program to its end; return its own exit code. Raises HostError: the box is silent, or the deadline."""
        ...


class LocalPrograms:
    """Programs of this box."""

    async def run(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes | None = None) -> CommandResult:
        """Run a program here. Exit code 127, as a shell's, stands for a program that does not exist.

        Raises:
            HostError: it did not end within `deadline_s`, and was killed.
        """
        try:
            return await run_command(argv, deadline_s=deadline_s, stdin=stdin)
        except TimeoutError:
            raise HostError(
                f"`{argv[0]}` did not end within {deadline_s:g} s on this box.", code="command_timeout"
            ) from None
        except OSError as error:
            return CommandResult(NOT_FOUND, "", f"{argv[0]}: {error.strerror or error}")


@dataclass(frozen=True, slots=True)
class Box:
    """Box of a pair. A silent box has the reason, and neither commands nor facts."""

    name: str
    commands: RunsCommands | None = None
    facts: NodeFacts | None = None
    silent: SparkdashError | None = None
    """Why the box can not be asked."""

    @property
    def shown(self) -> str:
        """Name for people: this box's is its host name."""
        return self.facts.hostname if self.name == LOCAL and self.facts else self.name

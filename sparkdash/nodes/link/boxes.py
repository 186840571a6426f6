"""Boxes of a command without the daemon: this one and its nodes, connected for its length, and scripts piped to them."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

from sparkdash.domain.node import LOCAL, Node, NodeFacts
from sparkdash.errors import HostError, SparkdashError
from sparkdash.host.command import CommandResult, run_command
from sparkdash.nodes.ssh.connection import NodeConnection
from sparkdash.nodes.ssh.facts import read_facts, read_local_facts

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


PYTHON = "python3"
LINES = 3
"""Lines of a failed script's complaint that are shown."""


async def ask(box: Box, script: ModuleType, request: Mapping[str, object], *, deadline_s: float) -> dict[str, Any]:
    """Run `script` on the box with `request` as its one argument; return the object that it prints.

    Raises:
        HostError: the box is silent or has no python3, or the script failed; `script_failed` with its last lines.
    """
    if box.commands is None:
        raise box.silent or HostError(f"{box.name} cannot be reached.", code="node_unreachable")
    source = inspect.getsource(script).encode()
    done = await box.commands.run((PYTHON, "-", json.dumps(request)), deadline_s=deadline_s, stdin=source)
    if done.code == NOT_FOUND:
        raise HostError(
            f"{box.shown} has no {PYTHON}.", code="python_missing", hint=f"On {box.shown}: sudo apt install python3"
        )
    try:
        answer = json.loads(done.out)
    except (ValueError, RecursionError):
        answer = None
    if done.code or not isinstance(answer, dict):
        said = " ".join(done.err.strip().splitlines()[-LINES:]) or "it printed no answer"
        raise HostError(
            f"A script failed on {box.shown} with exit code {done.code}: {said}.",
            code="script_failed",
            hint=f"`sparkdash doctor --node {box.name}` examines the box.",
        )
    return answer


@dataclass(frozen=True, slots=True)
class OpenBoxes:
    """Boxes of a command: this one, and each node with its connection."""

    here: Box
    nodes: tuple[tuple[Node, Box], ...]
    connections: dict[str, NodeConnection]


@asynccontextmanager
async def open_boxes(nodes: Sequence[Node], program: str, hf_home: str) -> AsyncIterator[OpenBoxes]:
    """Connect to all nodes at once and read the facts of every box; close the connections at the end.

    `program`: container runtime. Never raises for a silent node: its box has the reason.
    """
    async with AsyncExitStack() as stack:
        connections = {node.name: NodeConnection(node) for node in nodes}
        for connection in connections.values():
            stack.push_async_callback(connection.close)
        here, *others = await asyncio.gather(
            _this_box(program, hf_home), *(_connected(connections[node.name], program) for node in nodes)
        )
        yield OpenBoxes(here, tuple(zip(nodes, others, strict=True)), connections)


async def _this_box(program: str, hf_home: str) -> Box:
    try:
        return Box(LOCAL, LocalPrograms(), await read_local_facts(program, hf_home))
    except SparkdashError as error:
        return Box(LOCAL, silent=error)


async def _connected(connection: NodeConnection, program: str) -> Box:
    try:
        facts = await read_facts(connection, program)
    except SparkdashError as error:
        return Box(connection.node.name, silent=error)
    return Box(connection.node.name, connection, facts)

"""Podman of another node: the same runtime as here, with its commands over ssh."""

import errno
import os
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sparkdash.domain.container import ContainerSpec
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.host.podman import argv
from sparkdash.host.podman.podman import Podman
from sparkdash.host.podman.podman_host import SETTLE_S, PodmanHost
from sparkdash.nodes.programs import NOT_FOUND, ask
from sparkdash.nodes.ssh import ssh_command, ssh_errors
from sparkdash.nodes.ssh.connection import NodeConnection

ORDER_S = SETTLE_S + 15.0
"""Deadline of an order to a node's processes. It takes 0.05 s on an idle box, and SETTLE_S where commands hang."""
LEFTOVERS = ("sparkdash.units", "sparkdash.host.processes.proc", "sparkdash.host.processes.leftovers")
_CHUNK = 65536


def remote_podman(connection: NodeConnection, program: str = argv.PODMAN) -> Podman:
    return Podman(program, RemotePodmanHost(connection))


class RemoteCommands:
    """Programs of a node: calls over its connection, and what is followed for ever over another one."""

    def __init__(self, connection: NodeConnection) -> None:
        self._connection = connection

    async def run(
        self, argv: Sequence[str], *, deadline_s: float | None, variables: Mapping[str, str] | None = None
    ) -> CommandResult:
        """Run a program to its end; without a deadline, over the connection for streams.

        Raises:
            TimeoutError, FileNotFoundError: as a local command.
            HostError: the node cannot be reached.
        """
        if any("\0" in word for word in argv):
            raise ValueError("embedded null byte")
        try:
            if deadline_s is None:
                done = await self._followed(argv)
            else:
                done = await self._connection.run(argv, deadline_s=deadline_s, variables=variables)
        except HostError as error:
            if error.code == ssh_errors.TIMEOUT:
                raise TimeoutError from None
            raise
        if done.code == NOT_FOUND and f"{argv[0]}: " in done.err:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        return done

    @asynccontextmanager
    async def child(self, argv: Sequence[str]) -> AsyncIterator[Process]:
        """Run a program for the length of the block; stdout has both output streams. Raises as `run`."""
        command = ssh_command.remote_until_input_ends(argv)
        async with self._connection.stream(command) as process:
            yield process
            if process.returncode == ssh_errors.FAILED:
                assert process.stderr is not None  # noqa: S101 - a stream has pipes
                said = (await process.stderr.read()).decode("utf-8", "replace")
                self._connection.checked(CommandResult(process.returncode, "", said))

    async def _followed(self, argv: Sequence[str]) -> CommandResult:
        """Run a program that may take for ever; both output streams are in `out` and `err` alike."""
        said = bytearray()
        async with self.child(argv) as process:
            assert process.stdout is not None  # noqa: S101 - a stream has pipes
            while chunk := await process.stdout.read(_CHUNK):
                said += chunk
            code = await process.wait()
        text = said.decode("utf-8", "replace")
        return CommandResult(code, text, text)


class RemotePodmanHost(PodmanHost):
    """Another node, whose processes are read by a program that is piped to its Python."""

    is_own = False

    def __init__(self, connection: NodeConnection) -> None:
        super().__init__(RemoteCommands(connection))
        self._connection = connection

    def variables(self, spec: ContainerSpec) -> dict[str, str]:
        """Secret variables, and those that the container takes from the daemon's environment."""
        inherited = {name: os.environ[name] for name in spec.env_from if name in os.environ}
        return {**inherited, **argv.environment(spec)}

    async def _ask(self, *order: str, deadline_s: float | None = None) -> Any:
        node, limit_s = self._connection.node.name, deadline_s or ORDER_S
        try:
            return await ask(node, self._connection.run, LEFTOVERS, *order, deadline_s=limit_s, failed=_unread)
        except HostError as error:
            if error.code == ssh_errors.TIMEOUT:
                raise TimeoutError from None
            raise


def _unread(words: str) -> HostError:
    return HostError(
        f"The processes of engines cannot be read: {words}.",
        code="node_processes_unknown",
        hint="See what `python3 --version` says there.",
    )

"""Podman of another node: the same runtime as here, with its commands over ssh."""

from __future__ import annotations

import errno
import json
import os
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sparkdash.domain.container import (
    LABEL_OWNER,
    ContainerInfo,
    ContainerSpec,
    Leftovers,
    PullProgress,
    engine_mark,
)
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult, Commands
from sparkdash.host.podman import argv
from sparkdash.host.podman.podman import Podman
from sparkdash.host.podman.podman_host import SETTLE_S, PodmanHost, folder_not_made
from sparkdash.host.processes.leftovers import Births
from sparkdash.host.runtime import Runtime
from sparkdash.nodes.ssh import ssh_command, ssh_errors
from sparkdash.nodes.ssh.connection import NodeConnection
from sparkdash.nodes.ssh.facts import script

SCRIPT_S = 15.0
"""Deadline of the script that reads a node's processes. It takes 0.05 s on an idle box."""
_NOT_FOUND = 127
_CHUNK = 65536


def remote_podman(connection: NodeConnection, program: str = argv.PODMAN) -> Runtime:
    return NodeRuntime(connection.node.name, Podman(program, RemotePodmanHost(connection)))


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
        if deadline_s is None:
            done = await self._followed(argv)
        else:
            done = await self._called(argv, deadline_s, variables)
        if done.code == _NOT_FOUND and f"{argv[0]}: " in done.err:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        return done

    async def output(
        self, argv: Sequence[str], *, deadline_s: float, limit: int, variables: Mapping[str, str] | None = None
    ) -> str:
        done = await self.run(argv, deadline_s=deadline_s, variables=variables)
        return (done.out + done.err)[:limit]

    @asynccontextmanager
    async def child(self, argv: Sequence[str]) -> AsyncIterator[Process]:
        """Run a program for the length of the block; stdout has both output streams. Raises as `run`."""
        command = ssh_command.remote_until_input_ends(argv)
        async with self._connection.stream(command) as process:
            yield process
            if process.returncode == ssh_errors.FAILED:
                self._connection.checked(CommandResult(process.returncode, "", await _complaint(process)))

    async def _called(
        self, argv: Sequence[str], deadline_s: float, variables: Mapping[str, str] | None
    ) -> CommandResult:
        try:
            return await self._connection.run(argv, deadline_s=deadline_s, variables=variables)
        except HostError as error:
            if error.code == ssh_errors.TIMEOUT:
                raise TimeoutError from None
            raise

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
    """Another node, whose processes are read by a script that is piped to its Python."""

    def __init__(self, connection: NodeConnection) -> None:
        self.commands: Commands = RemoteCommands(connection)
        self._connection = connection

    def variables(self, spec: ContainerSpec) -> dict[str, str]:
        """Secret variables, and those that the container takes from the daemon's environment."""
        inherited = {name: os.environ[name] for name in spec.env_from if name in os.environ}
        return {**inherited, **argv.environment(spec)}

    async def make_mounts(self, spec: ContainerSpec) -> None:
        wanted = [mount.source for mount in spec.mounts if not mount.read_only and mount.source.startswith("/")]
        failed = await self._ask("folders", *wanted) if wanted else None
        if failed:
            raise folder_not_made(spec, failed[0], failed[1])

    async def members(self, container: ContainerInfo | None) -> Births | None:
        if container is None:
            return {}
        return await self._look(engine_mark(container.labels.get(LABEL_OWNER, ""), container.name), container.id)

    async def members_of_engine(self, mark: str) -> Births | None:
        return await self._look(mark, "")

    async def engines_of(self, owner: str) -> dict[str, Births]:
        found = await self._ask("all", owner)
        return {mark: _births(processes) for mark, processes in found.items()}

    async def end(self, *looks: Births | None) -> Leftovers:
        """Send SIGKILL to processes that still live, and wait for their end; None stands for a late look."""
        found = {pid: birth for look in looks if look for pid, birth in look.items()}
        unseen = None in looks
        if not found:
            return Leftovers(unseen=unseen)
        done = await self._ask("end", json.dumps(found))
        stuck = tuple(done["stuck"])
        how = tuple(f"process {pid} on {self._connection.node.name}" for pid in stuck)
        return Leftovers(ended=tuple(done["ended"]), stuck=stuck, stuck_how=how, unseen=unseen)

    async def settle_commands(self, program: str, owner: str) -> None:
        await self._ask("settle", program, owner, str(SETTLE_S), deadline_s=SETTLE_S + SCRIPT_S)

    async def _look(self, mark: str, container: str) -> Births | None:
        try:
            return _births(await self._ask("of", mark, container))
        except HostError as error:
            if error.code == ssh_errors.TIMEOUT:
                return None
            raise

    async def _ask(self, *words: str, deadline_s: float = SCRIPT_S) -> Any:
        done = await self._connection.run(
            ["python3", "-", *words], deadline_s=deadline_s, stdin=script("cluster/processes_script")
        )
        try:
            return json.loads(done.out)
        except ValueError:
            said = (done.err.strip().splitlines() or ["it said nothing"])[-1]
            raise HostError(
                f"The processes of engines cannot be read: {said}.",
                code="node_processes_unknown",
                hint="See what `python3 --version` says there.",
            ) from None


class NodeRuntime:
    """Runtime of another node: every error begins with the node's name, every container has it."""

    containerised = True

    def __init__(self, node: str, podman: Podman) -> None:
        self.name = podman.name
        self._node = node
        self._podman = podman

    async def version(self) -> str:
        """See Runtime."""
        with self._named():
            return await self._podman.version()

    async def image_id(self, image: str) -> str | None:
        """See Runtime."""
        with self._named():
            return await self._podman.image_id(image)

    async def images(self, names: Collection[str]) -> dict[str, int]:
        """See Runtime."""
        with self._named():
            return await self._podman.images(names)

    async def pull(self, image: str) -> AsyncIterator[PullProgress]:
        """See Runtime."""
        with self._named():
            async for progress in self._podman.pull(image):
                yield progress

    def command(self, spec: ContainerSpec) -> list[str]:
        """See Runtime."""
        return self._podman.command(spec)

    async def output(self, spec: ContainerSpec, *, deadline_s: float) -> str:
        """See Runtime."""
        with self._named():
            return await self._podman.output(spec, deadline_s=deadline_s)

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        """See Runtime."""
        with self._named():
            return self._here(await self._podman.start(spec))

    async def stop(self, name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> Leftovers:
        """See Runtime."""
        with self._named():
            return await self._podman.stop(name, grace_s, before_removal)

    async def inspect(self, name: str) -> ContainerInfo | None:
        """See Runtime."""
        with self._named():
            found = await self._podman.inspect(name)
            return None if found is None else self._here(found)

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        """See Runtime."""
        with self._named():
            return [self._here(each) for each in await self._podman.containers(labels)]

    async def settle(self, owner: str) -> Leftovers:
        """See Runtime."""
        with self._named():
            return await self._podman.settle(owner)

    async def logs(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        """See Runtime."""
        with self._named():
            async for line in self._podman.logs(name, follow=follow, tail=tail):
                yield line

    async def wait(self, name: str) -> int:
        """See Runtime."""
        with self._named():
            return await self._podman.wait(name)

    async def pids(self, name: str) -> set[int]:  # noqa: ARG002 - the protocol's
        """Return an empty set: pids of another node mean nothing here."""
        return set()

    def _here(self, info: ContainerInfo) -> ContainerInfo:
        return info.replace(node=self._node, pid=None)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except HostError as error:
            if self._node not in error.message:
                error.message = f"On {self._node}: {error.message}"
                error.args = (error.message,)
                if error.hint:
                    error.hint = f"On {self._node}: {error.hint}"
            raise


def _births(found: Mapping[str, str]) -> Births:
    return {int(pid): birth for pid, birth in found.items()}


async def _complaint(process: Process) -> str:
    assert process.stderr is not None  # noqa: S101 - a stream has pipes
    return (await process.stderr.read()).decode("utf-8", "replace")

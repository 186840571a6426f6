"""Box that a podman runs on: its commands, and what its kernel tells of containers' processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sparkdash.domain.container import (
    CONTAINER_PREFIX,
    LABEL_OWNER,
    ContainerInfo,
    ContainerSpec,
    Leftovers,
    engine_mark,
)
from sparkdash.errors import HostError
from sparkdash.host import meminfo
from sparkdash.host.command import CommandResult, Commands, LocalPrograms, stdout_lines
from sparkdash.host.podman import answers, argv
from sparkdash.host.processes import leftovers, proc
from sparkdash.host.processes.leftovers import Births
from sparkdash.host.thread import in_thread


def find_abandoned_commands(program: str, owner: str) -> tuple[leftovers.Births, leftovers.Births]:
    """Find commands that start a container of ours, and commands that end one."""

    def of(words: list[str], *verbs: str) -> bool:
        return Path(words[0]).name == program and len(words) > 1 and words[1] in verbs

    label, ours = f"{LABEL_OWNER}={owner}", proc.family(os.getpid())
    runs = leftovers.processes_called(lambda words: of(words, "run") and label in words)
    ends = leftovers.processes_called(lambda words: of(words, "stop", "rm") and words[-1].startswith(CONTAINER_PREFIX))
    return _but(runs, ours), _but(ends, ours)


def _but(processes: leftovers.Births, ours: Collection[int]) -> leftovers.Births:
    return {pid: birth for pid, birth in processes.items() if pid not in ours}


async def read_container_log(
    commands: Commands, program: str, name: str, *, follow: bool, tail: int | None
) -> AsyncIterator[str]:
    """Read lines of both streams, in the order of the program's monitor.

    A missing container shows by a single line of complaint and an exit code, so no check comes first.

    Raises:
        HostError: no_such_container, or runtime_missing.
    """
    complaint, count = "", 0
    try:
        async with commands.child(argv.logs(program, name, follow=follow, tail=tail)) as process:
            async for line in stdout_lines(process):
                count += 1
                if count == 1 and answers.gone(line):
                    complaint = line  # the program's own, unless more lines or success follow
                    continue
                if count == 2 and complaint:
                    yield complaint
                yield line
            code = await process.wait()
    except OSError as error:
        raise answers.not_begun(program, error) from None
    if complaint and count == 1:
        if code:
            raise HostError(f"There is no container {name}.", code="no_such_container")
        yield complaint


SETTLE_S = 30.0
"""Longest wait for commands of an earlier daemon."""


class PodmanHost(Protocol):
    """Box of a podman runtime: its programs, memory, folders and processes.

    What only the kernel of this box tells has a default, for a box that is asked through podman.
    """

    commands: Commands
    """Programs of the box."""

    def variables(self, spec: ContainerSpec) -> dict[str, str]:
        """Variables that `run` and `output` name without a value, for the environment of the command."""
        ...

    def memory_words(self) -> str:
        """Describe the box's memory in a sentence; empty if it is not known at once."""
        return ""

    async def make_mounts(self, spec: ContainerSpec) -> None:
        """Make the missing folders of writable mounts. Raises HostError: mount_missing."""
        ...

    async def pids_of(self, container_id: str) -> set[int]:  # noqa: ARG002
        """Pids on this box of the container's processes; empty if none is found."""
        return set()

    async def just_started(self, spec: ContainerSpec, container_id: str) -> ContainerInfo | None:  # noqa: ARG002
        """Describe a container that has just started without asking podman; None if the kernel does not tell."""
        return None

    async def has_ended(self, container: ContainerInfo) -> bool:  # noqa: ARG002
        """Wait for the end of the container's first process; False at once if the kernel cannot tell."""
        return False

    async def members(self, container: ContainerInfo | None) -> Births | None:
        """Processes of the container, by its control group and its mark; None if the scan took too long."""
        ...

    async def members_of_engine(self, mark: str) -> Births | None:
        """Processes with this engine's mark; None if the scan took too long."""
        ...

    async def engines_of(self, owner: str) -> dict[str, Births]:
        """Living processes of every engine of this owner, by the engine's mark."""
        ...

    async def resume(self, members: Births) -> None:  # noqa: ARG002
        """Let stopped processes run on."""
        return

    async def end(self, *looks: Births | None) -> Leftovers:
        """Send SIGKILL to processes that still live, and wait for their end; None stands for a late scan."""
        ...

    async def still_living(self, processes: Births) -> Births:  # noqa: ARG002
        """Processes that still live."""
        return {}

    async def settle_commands(self, program: str, owner: str) -> None:
        """Wait for podman commands of a killed daemon, and end a hanging `run`."""
        ...


class LocalPodmanHost:
    """The daemon's own box."""

    def __init__(self) -> None:
        self.commands: Commands = LocalPrograms()

    def variables(self, spec: ContainerSpec) -> dict[str, str]:
        return argv.environment(spec)

    def memory_words(self) -> str:
        return meminfo.describe_memory()

    async def make_mounts(self, spec: ContainerSpec) -> None:
        await asyncio.to_thread(_make_writable_mounts, spec)

    async def pids_of(self, container_id: str) -> set[int]:
        return await leftovers.pids_of(container_id)

    async def just_started(self, spec: ContainerSpec, container_id: str) -> ContainerInfo | None:
        return await leftovers.just_started(spec, container_id)

    async def has_ended(self, container: ContainerInfo) -> bool:
        return await leftovers.has_ended(container)

    async def members(self, container: ContainerInfo | None) -> Births | None:
        if container is None:
            return {}
        mark = engine_mark(container.labels.get(LABEL_OWNER, ""), container.name)
        return await leftovers.scan_for_engine(mark, container.id)

    async def members_of_engine(self, mark: str) -> Births | None:
        return await leftovers.scan_for_engine(mark, None)

    async def engines_of(self, owner: str) -> dict[str, Births]:
        return await asyncio.to_thread(leftovers.processes_of_owner, owner)

    async def resume(self, members: Births) -> None:
        await in_thread(lambda: leftovers.resume(members))

    async def end(self, *looks: Births | None) -> Leftovers:
        return await leftovers.end_processes(*looks)

    async def still_living(self, processes: Births) -> Births:
        return leftovers.still_living(processes)

    async def settle_commands(self, program: str, owner: str) -> None:
        runs, ends = await asyncio.to_thread(find_abandoned_commands, program, owner)
        hung = await leftovers.wait_for_all(runs | ends, SETTLE_S)
        await leftovers.end_processes({pid: birth for pid, birth in hung.items() if pid in runs})


def _make_writable_mounts(spec: ContainerSpec) -> None:
    # A cache folder that is not there yet is made as the daemon's user; a missing read-only source is a mistake.
    for mount in spec.mounts:
        source = Path(mount.source)
        if mount.read_only or not source.is_absolute() or source.exists():
            continue
        try:
            source.mkdir(parents=True)
        except OSError as error:
            raise folder_not_made(spec, mount.source, error.strerror or str(error)) from None


def folder_not_made(spec: ContainerSpec, source: str, words: str) -> HostError:
    return HostError(
        f"The folder {source} for {spec.name} cannot be made: {words}.",
        code="mount_missing",
        hint="Correct the path in the profile or config.toml, or make the folder yourself.",
    )


LATE_S = 20.0
"""Time for `stop` beyond its grace; then the processes are killed directly."""
REMOVE_S = 60.0
"""Deadline of `rm`."""
RESUME_S = 10.0
"""Deadline of letting stopped processes run on."""

Call = Callable[[list[str], float], Awaitable[CommandResult]]
"""Runs a command line of the runtime with a deadline. Raises HostError."""


@dataclass(frozen=True)
class ContainerStop:
    """Container to be stopped, and the calls that stop it."""

    call: Call
    host: PodmanHost
    program: str
    name: str
    info: ContainerInfo | None
    """Container as last seen; None if it was never seen."""


async def stop_container(stop: ContainerStop, grace_s: int, before_removal: Awaitable[None] | None) -> Leftovers:
    """Stop and remove a container. See Runtime.stop."""
    host = stop.host
    members = await host.members(stop.info)
    if members:
        with suppress(TimeoutError, HostError):
            async with asyncio.timeout(RESUME_S):  # a stopped process could not receive SIGTERM
                await host.resume(members)
    stopped = await _stop(stop, grace_s)
    if stopped is None:
        return await host.end(members, await host.members(stop.info))
    killed: Births = {}
    if not stopped:
        killed = {**(members or {}), **(await host.members(stop.info) or {})}
        await host.end(killed)
    if before_removal is not None:
        await before_removal
    try:
        await remove_container(stop.call, stop.program, stop.name)
    except HostError as error:
        if left := await host.still_living(killed):
            raise leftovers.unkillable_error(stop.name, left, leftovers.KILLED_S) from None
        if not killed:
            raise
        return Leftovers(unremoved=error.message)
    return await host.end(members, await host.members(stop.info))


async def remove_container(call: Call, program: str, name: str) -> None:
    """Remove the container by force; a missing one is success."""
    done = await call(argv.remove(program, name), REMOVE_S)
    if done.code and not answers.gone(done.err):
        raise answers.failed(program, "rm", done.err)


async def _stop(stop: ContainerStop, grace_s: int) -> bool | None:
    """Return whether the runtime stopped the container; None if it no longer exists."""
    try:
        done = await stop.call(argv.stop(stop.program, stop.name, grace_s), grace_s + LATE_S)
    except HostError as error:
        if error.code != "runtime_timeout":
            raise
        return False
    if done.code and answers.gone(done.err):
        return None
    if done.code:
        with suppress(HostError):  # podman neither stops nor removes a paused container
            await stop.call(argv.unpause(stop.program, stop.name), RESUME_S)
    return not done.code

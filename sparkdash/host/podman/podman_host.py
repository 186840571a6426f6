"""Box that a podman runs on: its commands, and what its kernel tells of containers' processes.

Owns: the contract, and this box. Must not know podman's command lines.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

from sparkdash.domain.container import LABEL_OWNER, ContainerInfo, ContainerSpec, Leftovers, engine_mark
from sparkdash.errors import HostError
from sparkdash.host import meminfo
from sparkdash.host.command import Commands, LocalPrograms
from sparkdash.host.podman import abandoned_commands, argv
from sparkdash.host.processes import in_container, leftovers, suspended
from sparkdash.host.processes.leftovers import Births
from sparkdash.host.thread import in_thread

SETTLE_S = 30.0
"""Longest wait for commands of an earlier daemon."""


class PodmanHost(Protocol):
    """Box of a podman runtime: its programs, memory, folders and processes."""

    @property
    def commands(self) -> Commands:
        """Programs of the box."""
        ...

    def variables(self, spec: ContainerSpec) -> dict[str, str]:
        """Variables that `run` and `output` name without a value, for the environment of the command."""
        ...

    def memory_words(self) -> str:
        """Describe the box's memory in a sentence; empty if it is not known at once."""
        ...

    async def make_mounts(self, spec: ContainerSpec) -> None:
        """Make the missing folders of writable mounts. Raises HostError: mount_missing."""
        ...

    async def pids_of(self, container_id: str) -> set[int]:
        """Pids on this box of the container's processes; empty if none is found."""
        ...

    async def just_started(self, spec: ContainerSpec, container_id: str) -> ContainerInfo | None:
        """Describe a container that has just started without asking podman; None if the kernel does not tell."""
        ...

    async def has_ended(self, container: ContainerInfo) -> bool:
        """Wait for the end of the container's first process; False at once if the kernel cannot tell."""
        ...

    async def members(self, container: ContainerInfo | None) -> Births | None:
        """Processes of the container, by its control group and its mark; None if the scan took too long."""
        ...

    async def members_of_engine(self, mark: str) -> Births | None:
        """Processes with this engine's mark; None if the scan took too long."""
        ...

    async def engines_of(self, owner: str) -> dict[str, Births]:
        """Living processes of every engine of this owner, by the engine's mark."""
        ...

    async def is_frozen(self, container: ContainerInfo, members: Births) -> bool:
        """Whether the container is paused, or one of its processes stopped."""
        ...

    async def resume(self, container: ContainerInfo, members: Births) -> None:
        """Let stopped processes of the container run on."""
        ...

    async def end(self, *looks: Births | None) -> Leftovers:
        """Send SIGKILL to processes that still live, and wait for their end; None stands for a late scan."""
        ...

    async def still_living(self, processes: Births) -> Births:
        """Processes that still live."""
        ...

    async def settle_commands(self, program: str, owner: str) -> None:
        """Wait for podman commands of a killed daemon, and end a hanging `run`."""
        ...


class LocalPodmanHost:
    """The daemon's own box."""

    def __init__(self) -> None:
        self.commands: Commands = LocalPrograms()

    def variables(self, spec: ContainerSpec) -> dict[str, str]:
        """Secret variables; those that the daemon's environment has are inherited."""
        return argv.environment(spec)

    def memory_words(self) -> str:
        """Describe the box's memory in a sentence."""
        return meminfo.describe_memory()

    async def make_mounts(self, spec: ContainerSpec) -> None:
        """Make the missing folders of writable mounts. Raises HostError: mount_missing."""
        await asyncio.to_thread(_make_writable_mounts, spec)

    async def pids_of(self, container_id: str) -> set[int]:
        """Pids of the container's processes, from their control groups."""
        return await in_container.pids_of(container_id)

    async def just_started(self, spec: ContainerSpec, container_id: str) -> ContainerInfo | None:
        """Describe a container that has just started; None if its first process is not found."""
        return await in_container.just_started(spec, container_id)

    async def has_ended(self, container: ContainerInfo) -> bool:
        """Wait for the end of the container's first process; False at once if the kernel cannot tell."""
        return await in_container.has_ended(container)

    async def members(self, container: ContainerInfo | None) -> Births | None:
        """Processes of the container, by its control group and its mark; None if the scan took too long."""
        if container is None:
            return {}
        mark = engine_mark(container.labels.get(LABEL_OWNER, ""), container.name)
        return await leftovers.scan_for_engine(mark, container.id)

    async def members_of_engine(self, mark: str) -> Births | None:
        """Processes with this engine's mark; None if the scan took too long."""
        return await leftovers.scan_for_engine(mark, None)

    async def engines_of(self, owner: str) -> dict[str, Births]:
        """Living processes of every engine of this owner, by the engine's mark."""
        return await asyncio.to_thread(leftovers.processes_of_owner, owner)

    async def is_frozen(self, container: ContainerInfo, members: Births) -> bool:
        """Whether the container is paused, or one of its processes stopped."""
        return await in_thread(lambda: suspended.is_frozen(members, container.id))

    async def resume(self, container: ContainerInfo, members: Births) -> None:
        """Let stopped processes of the container run on."""
        await in_thread(lambda: suspended.resume(members, container.id))

    async def end(self, *looks: Births | None) -> Leftovers:
        """Send SIGKILL to processes that still live, and wait for their end; None stands for a late scan."""
        return await leftovers.end_processes(*looks)

    async def still_living(self, processes: Births) -> Births:
        """Processes that still live."""
        return leftovers.still_living(processes)

    async def settle_commands(self, program: str, owner: str) -> None:
        """Wait for podman commands of a killed daemon, and end a hanging `run`."""
        runs, ends = await asyncio.to_thread(abandoned_commands.find_abandoned_commands, program, owner)
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
    """Make the error for a writable mount whose folder cannot be made."""
    return HostError(
        f"The folder {source} for {spec.name} cannot be made: {words}.",
        code="mount_missing",
        hint="Correct the path in the profile or config.toml, or make the folder yourself.",
    )

"""Runtime: protocol of a program that starts engines (podman, docker, plain processes, a test's fake).

Every call that leaves the process has a deadline of its own, and raises HostError when it passes: podman has blocked
for minutes on a Spark short of memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from typing import Protocol

from sparkdash.domain.container import ContainerInfo, ContainerSpec, Leftovers, PullProgress


class Runtime(Protocol):
    """Starts, watches and ends containers. Safe to call from one event loop; holds no locks between calls."""

    name: str
    """Name of the runtime: podman, docker or process."""
    containerised: bool

    async def version(self) -> str:
        """Return the runtime's version. Raises HostError(code="runtime_missing") if it cannot be run."""
        ...

    async def image_id(self, image: str) -> str | None:
        """Look up the id of a local image; None if it is not on this box, empty for a process runtime."""
        ...

    async def images(self, names: Collection[str]) -> dict[str, int]:
        """Bytes of these images on disk, without missing ones, in one short call; empty for a process runtime."""
        ...

    def pull(self, image: str) -> AsyncIterator[PullProgress]:
        """Fetch an image; the last item has done=True. Raises HostError(code="image_missing")."""
        ...

    def command(self, spec: ContainerSpec) -> list[str]:
        """Return the exact argv that `start` would run, as --dry-run prints it."""
        ...

    async def output(self, spec: ContainerSpec, *, deadline_s: float) -> str:
        """Run the program of `spec` to its end, without GPU and network; return both output streams, cut when long.

        Leaves nothing behind. Raises HostError if the program cannot be run, or does not end in time.
        """
        ...

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        """Create and start, replacing our container of the same name. Raises HostError with the runtime's own words."""
        ...

    async def stop(self, name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> Leftovers:
        """Send SIGTERM, then SIGKILL after `grace_s`, then remove. Idempotent.

        `before_removal` is awaited between the end and the removal, while the log still exists; it may have begun
        before. Surviving processes are ended too, and reported. Raises HostError if the container itself cannot be
        ended.
        """
        ...

    async def inspect(self, name: str) -> ContainerInfo | None:
        """Return the container of that name, running or not; None if there is none."""
        ...

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        """List all containers with these labels, running or not; an empty value matches any."""
        ...

    async def settle(self, owner: str) -> Leftovers:
        """Wait for running commands of an earlier daemon of this owner, and end its orphaned processes.

        Called before its containers are listed, as those commands still change them.
        """
        ...

    def logs(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        """Read lines of both streams, split at newlines and carriage returns; `follow` reads until the end."""
        ...

    async def wait(self, name: str) -> int:
        """Wait for the container's end; return its exit code. Without a deadline: cancel it."""
        ...

    async def pids(self, name: str) -> set[int]:
        """Host process ids of the container; empty if it does not run."""
        ...

"""Runtime: the contract of whatever starts engines (podman, docker, plain processes, a test's fake).

Every call that leaves the process has a deadline of its own and raises HostError when it passes: on a Spark
short of memory, podman has blocked for minutes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from typing import Protocol

from sparkdash.domain.container import ContainerInfo, ContainerSpec, Leftovers, PullProgress


class Runtime(Protocol):
    """Starts, watches and ends containers. Safe to call from one event loop; holds no locks between calls."""

    name: str
    """podman, docker or process."""
    containerised: bool

    async def version(self) -> str:
        """The runtime's version. Raises HostError(code="runtime_missing") when it cannot be run."""
        ...

    async def image_id(self, image: str) -> str | None:
        """Look up the id of a local image; None when it is not on this box. Empty for a process runtime."""
        ...

    async def images(self, names: Collection[str]) -> dict[str, int]:
        """Bytes on disk of those of these images that are on this box, in one short call. Empty for a process runtime."""
        ...

    def pull(self, image: str) -> AsyncIterator[PullProgress]:
        """Fetch an image; the last item has done=True. Raises HostError(code="image_missing") with the runtime's last words."""
        ...

    def command(self, spec: ContainerSpec) -> list[str]:
        """The exact argv that `start` would run: what --dry-run prints."""
        ...

    async def output(self, spec: ContainerSpec, *, deadline_s: float) -> str:
        """Run the program of `spec` to its end, without GPU and network; return both its output streams and leave
        nothing behind.

        Only the beginning of a long text. Raises HostError when it cannot be run, or does not end in time.
        """
        ...

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        """Create and start, replacing a container of ours with the same name. Raises HostError with the runtime's own words."""
        ...

    async def stop(self, name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> Leftovers:
        """SIGTERM, then SIGKILL after `grace_s`, then remove. Idempotent: gone already is success.

        `before_removal` is awaited once it has ended and before it is removed, with its log; it may have begun before.
        What outlived it is ended too, and told. Raises HostError when the container itself cannot be ended.
        """
        ...

    async def inspect(self, name: str) -> ContainerInfo | None:
        """The container of that name, running or not; None when there is none."""
        ...

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        """All containers that carry these labels (an empty value matches any value), running or not."""
        ...

    async def settle(self, owner: str) -> Leftovers:
        """Before the containers of an earlier daemon of this owner are looked at: its commands that still run are waited
        for, since they still change what is there, and processes of engines that no container holds any more are ended."""
        ...

    def logs(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        """Lines of stdout and stderr, split at newlines and carriage returns; ends when the container ends (follow) or at the end."""
        ...

    async def wait(self, name: str) -> int:
        """Wait until the container has ended; its exit code. No deadline: cancel it."""
        ...

    async def pids(self, name: str) -> set[int]:
        """Host process ids that belong to the container; empty when it does not run."""
        ...

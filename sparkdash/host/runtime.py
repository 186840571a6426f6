"""Runtime: protocol of a program that starts engines (podman, docker, plain processes, a test's fake).

Every call that leaves the process has a deadline of its own, and raises HostError when it passes: podman has blocked
for minutes on a Spark short of memory.
"""

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from typing import Protocol

from sparkdash.domain.cluster import Cables
from sparkdash.domain.container import ContainerInfo, ContainerSpec, Leftovers, PullProgress
from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.domain.node import LOCAL, NodeLaunch, NodeState
from sparkdash.errors import HostError, SparkdashError
from sparkdash.host.box import HostReader


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

    async def command(self, spec: ContainerSpec) -> list[str]:
        """Return the exact argv that `start` would run, as --dry-run prints it."""
        ...

    async def check_start(self, spec: ContainerSpec) -> None:
        """Look for what `start` would be refused for, before anything is stopped. Raises HostError as `start`."""
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


class Nodes(Protocol):
    """Boxes that engines may run on, LOCAL first. All but `fresh_memory` is answered at once."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all nodes, LOCAL first, whether they can be reached or not."""
        ...

    @property
    def states(self) -> Mapping[str, NodeState]: ...

    @property
    def samples(self) -> Mapping[str, NodeSample]:
        """Last figures of the other nodes by name, and the link's of LOCAL; empty without other nodes."""
        ...

    @property
    def cables(self) -> Cables:
        """Neighbours of each node, where nodes that can be reached are cabled to each other; else empty."""
        ...

    def memory(self, node: str) -> Memory | None:
        """Return the node's memory, of LOCAL as read now; None while the node is silent or cannot be read."""
        ...

    async def fresh_memory(self, node: str) -> Memory:
        """Read the node's memory now. Raises HostError: node_unreachable, memory_unknown."""
        ...

    def launch_on(self, names: tuple[str, ...]) -> tuple[NodeLaunch, ...]:
        """Return what a launch on these nodes must know, in this order.

        Raises:
            HostError: node_unknown, node_unreachable; no_common_link, when two of them share no network.
        """
        ...


class OneNode:
    """Nodes of a daemon that knows no other box."""

    names = (LOCAL,)
    states: Mapping[str, NodeState] = {}
    samples: Mapping[str, NodeSample] = {}
    cables: Cables = {}

    def __init__(self, reader: HostReader) -> None:
        self._reader = reader

    def memory(self, node: str) -> Memory | None:
        if node != LOCAL:
            return None
        try:
            return self._reader.memory()
        except SparkdashError:
            return None

    async def fresh_memory(self, node: str) -> Memory:
        _refuse_unknown(node)
        return self._reader.memory()

    def launch_on(self, names: tuple[str, ...]) -> tuple[NodeLaunch, ...]:
        for name in names:
            _refuse_unknown(name)
        return ()


def node_unknown(node: str) -> HostError:
    return HostError(
        f"There is no node {node}.",
        code="node_unknown",
        hint=f"`sparkdash nodes add {node} --ssh USER@HOST` adds it; `sparkdash nodes` shows the others.",
    )


def _refuse_unknown(node: str) -> None:
    if node != LOCAL:
        raise node_unknown(node)

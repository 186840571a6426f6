"""Node runtimes: protocol of the containers and forwarded ports on other nodes."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from sparkdash.domain.container import LABEL_OWNER, ContainerInfo
from sparkdash.domain.node import LOCAL, NodeState
from sparkdash.errors import HostError
from sparkdash.host.runtime import Runtime

UNREACHABLE_CODES = frozenset({"node_unreachable", "node_unknown", "host_key_changed", "host_key_unknown"}) | {
    "node_login_refused"
}
"""Codes of a HostError that tells nothing of the containers on the node: the node could not be asked."""


class NodeRuntimes(Protocol):
    """Runtimes of the other nodes. LOCAL is not among them."""

    @property
    def states(self) -> Mapping[str, NodeState]:
        """States of the other nodes by name; changes with the registry."""
        ...

    def reachable(self, name: str) -> bool:
        """Whether calls to the node can be expected to succeed; answered at once."""
        ...

    async def first_tries(self, limit_s: float) -> None:
        """Wait until each node was tried once, `limit_s` at most."""
        ...

    def runtime(self, name: str) -> Runtime:
        """Return the runtime on the node. Raises HostError: node_unknown, node_unreachable."""
        ...

    async def forward(self, name: str, port: int) -> None:
        """Forward this box's 127.0.0.1:`port` to the same port of the node's loopback. Idempotent. Raises HostError."""
        ...

    async def cancel_forward(self, name: str, port: int) -> None:
        """End that forward, if there is one. Raises HostError."""
        ...

    def on_return(self, called: Callable[[str], None]) -> None:
        """Have `called` be told the name of each node that becomes reachable, from now on."""
        ...


@dataclass(frozen=True, slots=True)
class AllRuntimes:
    """Runtimes of this box and of the other nodes."""

    local: Runtime
    others: NodeRuntimes

    def on(self, node: str) -> Runtime:
        """Return the runtime on the node. Raises HostError: node_unknown, node_unreachable."""
        return self.local if node == LOCAL else self.others.runtime(node)

    def is_reachable(self, node: str) -> bool:
        """Whether the node can be asked now; LOCAL always can."""
        return node == LOCAL or self.others.reachable(node)

    def boots(self, nodes: Iterable[str]) -> dict[str, str]:
        """Ids of the boots of other nodes, as last read; unknown ones are left out."""
        facts = {node: state.facts for node, state in self.others.states.items() if node in set(nodes)}
        return {node: found.boot for node, found in facts.items() if found is not None and found.boot is not None}

    async def list_all(self, owner: str) -> dict[str, Sequence[ContainerInfo] | None]:
        """List our containers by node; None for another node that does not tell. Raises HostError for this box."""
        names = (LOCAL, *self.others.states)
        found = await asyncio.gather(*(self._list(name, owner) for name in names))
        return dict(zip(names, found, strict=True))

    async def _list(self, node: str, owner: str) -> Sequence[ContainerInfo] | None:
        if not self.is_reachable(node):
            return None
        try:
            return await self.list_on(node, owner)
        except HostError:
            if node == LOCAL:
                raise
            return None

    async def list_on(self, node: str, owner: str) -> list[ContainerInfo]:
        with naming(node):
            found = await self.on(node).containers({LABEL_OWNER: owner})
        return [placed_on(node, each) for each in found]


def placed_on(node: str, container: ContainerInfo) -> ContainerInfo:
    """Return the container with its node. Another box's pid is left out: here it would be some other process."""
    return container if node == LOCAL else container.replace(node=node, pid=None)


def is_unreachable_error(error: BaseException) -> bool:
    """Whether the error says that the node could not be asked, and nothing of its containers."""
    return isinstance(error, HostError) and error.code in UNREACHABLE_CODES


@contextmanager
def naming(node: str) -> Iterator[None]:
    """Have a HostError out of the block name the node, unless it is this box or is named already."""
    try:
        yield
    except HostError as error:
        if node == LOCAL or node in error.message:
            raise
        hint = error.hint and f"On {node}: {error.hint}"
        raise HostError(f"On {node}: {error.message}", code=error.code, hint=hint) from error

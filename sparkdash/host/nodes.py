"""Nodes: protocol of what the daemon knows of the boxes that engines run on.

Owns: the contract, and the box that has no others. Must not know ssh, engines, profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sparkdash.domain.metric import Memory, NodeSample
from sparkdash.domain.node import LOCAL, NodeLaunch, NodeState
from sparkdash.errors import HostError, SparkdashError
from sparkdash.host.reader import HostReader


class Nodes(Protocol):
    """Boxes that engines may run on, LOCAL first. All but `fresh_memory` is answered at once."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all nodes, LOCAL first, whether they can be reached or not."""
        ...

    @property
    def states(self) -> Mapping[str, NodeState]:
        """States of the other nodes by name."""
        ...

    @property
    def samples(self) -> Mapping[str, NodeSample]:
        """Last figures of the other nodes by name, and the link's of LOCAL; empty without other nodes."""
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

    def __init__(self, reader: HostReader) -> None:
        self._reader = reader

    def memory(self, node: str) -> Memory | None:
        """Return this box's memory, as read now; None where it cannot be read or `node` is another box."""
        if node != LOCAL:
            return None
        try:
            return self._reader.memory()
        except SparkdashError:
            return None

    async def fresh_memory(self, node: str) -> Memory:
        """Read this box's memory. Raises HostError: memory_unknown, node_unknown."""
        _refuse_unknown(node)
        return self._reader.memory()

    def launch_on(self, names: tuple[str, ...]) -> tuple[NodeLaunch, ...]:
        """Return (): a launch on this box alone needs to know nothing. Raises HostError: node_unknown."""
        for name in names:
            _refuse_unknown(name)
        return ()


def node_unknown(node: str) -> HostError:
    """Make the error for a name that no node has."""
    return HostError(
        f"There is no node {node}.",
        code="node_unknown",
        hint=f"`sparkdash nodes add {node} --ssh USER@HOST` adds it; `sparkdash nodes list` shows the others.",
    )


def _refuse_unknown(node: str) -> None:
    if node != LOCAL:
        raise node_unknown(node)

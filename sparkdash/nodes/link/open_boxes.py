"""Connected boxes: this one and its nodes, for the length of one command.

Owns: the connections of a command that works without the daemon, and what becomes of a node that is silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sparkdash.domain.node import LOCAL, Node
from sparkdash.errors import SparkdashError
from sparkdash.nodes.connection import NodeConnection
from sparkdash.nodes.facts import read_facts, read_local_facts
from sparkdash.nodes.link.box import Box, LocalPrograms


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

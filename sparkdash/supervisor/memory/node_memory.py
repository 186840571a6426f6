"""Memory of a node, read when a load needs the figure of this moment.

Owns: the limit of asking another node. Must not decide by the figures.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sparkdash.domain.metric import Memory
from sparkdash.domain.node import LOCAL
from sparkdash.errors import HostError, SparkdashError
from sparkdash.supervisor.tools import Tools
from sparkdash.units import duration

READ_S = 5.0
"""Limit of asking another node: a link that is cut is noticed later than that."""


async def read_memory(tools: Tools, node: str) -> Memory:
    """Read the node's memory now: of this box at once, of another node within READ_S.

    Raises:
        HostError: memory_unknown; node_unreachable.
    """
    if node == LOCAL:
        return tools.reader.memory()
    try:
        async with asyncio.timeout(READ_S):
            return await tools.nodes.fresh_memory(node)
    except TimeoutError as error:
        raise HostError(
            f"{node} did not tell its memory within {duration(READ_S)}.",
            code="node_unreachable",
            hint="`sparkdash nodes list` shows the state of each node.",
        ) from error


def last_memory(tools: Tools, node: str) -> Memory | None:
    """Return the node's memory as known now, without asking it; None while it is silent or cannot be read."""
    if node != LOCAL:
        return tools.nodes.memory(node)
    with suppress(SparkdashError):
        return tools.reader.memory()
    return None


def on_node(node: str) -> str:
    """Word that a figure is another node's: " on spark2"; empty for this box."""
    return "" if node == LOCAL else f" on {node}"

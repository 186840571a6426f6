"""Memory of a node, read when a load needs the figure of this moment.

Owns: the limit of asking another node. Must not decide by the figures.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sparkdash.domain.metric import Memory
from sparkdash.domain.node import LOCAL, NodeStatus
from sparkdash.errors import HostError, SparkdashError
from sparkdash.supervisor.tools import Tools
from sparkdash.units import duration

READ_S = 5.0
"""Limit of asking another node once: a link that is cut is noticed later than that."""
LATE_S = 30.0
"""Time in which a node that can be reached is asked again. A box that ends a large engine was seen to answer late."""
AGAIN_S = 1.0
"""Pause before it is asked again."""


async def read_memory(tools: Tools, node: str) -> Memory:
    """Read the node's memory now: of this box at once; another node that can be reached may answer late.

    Raises:
        HostError: memory_unknown; node_unreachable.
    """
    if node == LOCAL:
        return tools.reader.memory()
    until = tools.clock.monotonic() + LATE_S
    while True:
        try:
            return await _ask(tools, node)
        except HostError as error:
            state = tools.nodes.states.get(node)
            reachable = state is not None and state.status is NodeStatus.REACHABLE
            if error.code != "node_unreachable" or not reachable or tools.clock.monotonic() >= until:
                raise
        await tools.clock.sleep(AGAIN_S)


async def _ask(tools: Tools, node: str) -> Memory:
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

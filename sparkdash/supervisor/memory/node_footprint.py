"""Footprint of an engine on another node: by the fall of that node's MemAvailable, as its processes are not seen.

Owns: when such a figure may be the engine's, and which of several nodes' figures stand for the engine.

Rule: a fall is an engine's only where nothing else of ours was on the node before, meanwhile or after.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from sparkdash.domain.engine import EngineState
from sparkdash.domain.memory.footprint import Measure
from sparkdash.errors import SparkdashError
from sparkdash.natural import natural
from sparkdash.supervisor.memory.node_memory import read_memory
from sparkdash.supervisor.tools import Tools
from sparkdash.units import MIB

CAME_BACK = 256 * MIB
"""Available memory that rises by more than this while an engine loads was somebody else's."""


@dataclass(frozen=True, slots=True)
class NodeWeight:
    """Memory that an engine holds on one node, in bytes; None is unknown, not zero."""

    steady: int | None
    peak: int | None
    measure: Measure | None
    spoilt: str | None
    """Reason why nothing may be learned from the figures, in words."""


def largest_figures(weights: Sequence[NodeWeight]) -> tuple[int | None, int | None]:
    """Return the largest steady and peak figure over an engine's nodes; None while one node's are unknown."""
    steady = [each.steady for each in weights if each.steady is not None]
    if len(steady) < len(weights):
        return None, None
    return max(steady), max(each.peak for each in weights if each.peak is not None)


class NodeMeter:
    """Weighs one bring-up on another node: `before` the start, `note` while it loads, `after` once it is ready."""

    def __init__(self, tools: Tools, profile: str, node: str) -> None:
        self._tools = tools
        self._profile = profile
        self._node = node
        self._beside: set[str] = set()
        """Other engines of ours that were on the node."""
        self._zero: int | None = None
        """Available memory before the start."""
        self._lowest: int | None = None
        self._highest = 0
        self._last: int | None = None
        """Available memory when the engine was weighed last."""

    async def before(self) -> int | None:
        """Read the node's available memory before the start; None where that fails, and nothing is learned then."""
        self._zero = await self._look()
        return self._zero

    def note(self, available: int) -> None:
        """Add a sample of the load."""
        self._meet_neighbours()
        self._lowest = available if self._lowest is None else min(self._lowest, available)
        self._highest = max(self._highest, available)

    async def after(self) -> NodeWeight | None:
        """Measure the ready engine; None without a reading before the start."""
        if self._zero is None:
            return None
        now = self._last = await self._look()
        if now is None or now >= self._zero:
            return NodeWeight(None, None, None, None)
        lowest = now if self._lowest is None else min(now, self._lowest)
        return NodeWeight(self._zero - now, self._zero - lowest, Measure.AVAILABLE, self._spoilt(self._zero))

    async def grown(self) -> int | None:
        """By how much the engine has grown since `after`; None when that cannot be told from others' growth."""
        then, now = self._last, await self._look()
        if then is None or now is None or self._spoilt(then):
            return None
        return max(0, then - now)

    async def _look(self) -> int | None:
        self._meet_neighbours()
        with suppress(SparkdashError):
            return (await read_memory(self._tools, self._node)).available
        return None

    def _meet_neighbours(self) -> None:
        engines = self._tools.books.engines.values()
        there = [each for each in engines if each.container and each.state is not EngineState.FAILED]
        self._beside.update(e.profile for e in there if self._node in e.nodes and e.profile != self._profile)

    def _spoilt(self, then: int) -> str | None:
        if self._beside:
            names = ", ".join(sorted(self._beside, key=natural))
            return f"{names} ran on {self._node} too, and whose memory is whose is not seen there"
        if self._highest > then + CAME_BACK:
            return f"memory of an engine that had left came back meanwhile on {self._node}"
        return None

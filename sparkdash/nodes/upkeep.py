"""Upkeep: each node is rid of what should have ended there, as soon as it can be asked.

Owns: when removals that are owed are carried out, and what else is ended on a node: workers without an engine, heads
that another node's replaced. Must not decide which engine is adopted: `on_swept` lets its owner look.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

import structlog

from sparkdash.domain.container import LABEL_HEAD, Leftovers
from sparkdash.domain.node import LOCAL
from sparkdash.errors import HostError
from sparkdash.nodes.groups import EngineMembers, group_containers
from sparkdash.nodes.node_runtimes import AllRuntimes
from sparkdash.nodes.owed import OwedRemoval, OwedRemovals

LOG = structlog.get_logger("sparkdash.nodes")
GRACE_S = 5.0
"""Time that a container which should have ended long ago has to end by itself."""
AGAIN_S = 10.0
"""Pause before a node on which something is left is tried again."""


class NodeUpkeep:
    """Ends on each node what is owed there or belongs to no engine. `run` until cancelled.

    `engines` are those that this daemon started or adopted. `on_return` is awaited for each node that can be asked
    again, once nothing is owed there; `on_swept` is called after it.
    """

    def __init__(
        self,
        runtimes: AllRuntimes,
        owed: OwedRemovals,
        owner: str,
        engines: Mapping[str, EngineMembers],
        on_return: Callable[[str], Awaitable[None]],
    ) -> None:
        self._runtimes = runtimes
        self._owed = owed
        self._owner = owner
        self._engines = engines
        self._on_return = on_return
        self.on_swept: Callable[[str], object] = lambda _node: None
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._held: set[OwedRemoval] = set()
        self._returned: set[str] = set()
        self._news = asyncio.Event()
        runtimes.others.on_return(self._note_return)

    def _note_return(self, node: str) -> None:
        self._returned.add(node)
        self._news.set()

    def look_soon(self, node: str) -> None:
        """Treat the node like one that just returned, soon: something is left there, or was not seen."""
        self._note_return(node)

    async def run(self) -> None:
        """Clear nodes as they return, and again while something is left."""
        while True:
            await self._until_work()
            waiting = self._returned | (self._owed.nodes - {LOCAL})
            await asyncio.gather(*(self._try(node) for node in waiting if self._runtimes.is_reachable(node)))

    async def _until_work(self) -> None:
        is_pending = bool(self._returned or self._owed.nodes)
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S if is_pending else None):
                await self._news.wait()
        self._news.clear()

    async def _try(self, node: str) -> None:
        returned = node in self._returned
        self._returned.discard(node)
        try:
            await self.clear(node)
            if returned:
                await self._on_return(node)
        except HostError as error:
            LOG.warning("a node could not be cleared", node=node, code=error.code, why=error.text())
            if returned:
                self._returned.add(node)
            return
        if returned:
            self.on_swept(node)

    async def clear(self, node: str) -> None:
        """End what is owed on the node, and what surely belongs to no engine.

        Raises:
            HostError: the node or its runtime does not answer.
        """
        async with self._locks[node]:
            await self._clear_owed(node)
            await self._runtimes.list_on(node, self._owner)
            grouped = group_containers(await self._runtimes.list_all(self._owner), self._engines)
            strays = [each for each in (*grouped.orphans, *grouped.doubles) if each.node == node]
            await self._stop(node, (each.name for each in strays))

    async def clear_owed(self, node: str) -> None:
        """End what is owed on the node. Raises HostError."""
        async with self._locks[node]:
            await self._clear_owed(node)

    async def _clear_owed(self, node: str) -> None:
        for removal in self._owed.on(node):
            if removal not in self._held:
                await self.end(removal)

    @contextmanager
    def held(self, removals: Iterable[OwedRemoval]) -> Iterator[None]:
        """Leave these removals alone for the length of the block: their containers are being stopped with grace."""
        held = set(removals) - self._held
        self._held |= held
        try:
            yield
        finally:
            self._held -= held

    async def end(self, removal: OwedRemoval, grace_s: float = GRACE_S) -> list[Leftovers]:
        """End all containers of the removal's engine on its node, and cross it off. Raises HostError."""
        found = await self._runtimes.list_on(removal.node, self._owner)
        names = [each.name for each in found if removal.head in (each.name, each.labels.get(LABEL_HEAD))]
        left = await self._stop(removal.node, names, grace_s)
        await self._owed.settle(removal)
        return left

    async def _stop(self, node: str, names: Iterable[str], grace_s: float = GRACE_S) -> list[Leftovers]:
        runtime = self._runtimes.on(node)
        left = []
        for name in names:
            left.append(await runtime.stop(name, grace_s))
            LOG.warning("a container that belonged to no engine was ended", node=node, container=name)
        return left

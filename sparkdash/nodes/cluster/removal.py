"""Removal of containers on all nodes: an engine's stop, what waits for a silent node, what belongs to no engine."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from sparkdash.domain.base import Frozen
from sparkdash.domain.container import LABEL_HEAD, Leftovers
from sparkdash.domain.node import LOCAL
from sparkdash.errors import HostError
from sparkdash.host.thread import in_thread
from sparkdash.log import LOG
from sparkdash.nodes.cluster.groups import EngineMembers, Member, group_containers
from sparkdash.nodes.cluster.node_runtimes import AllRuntimes, is_unreachable_error, naming
from sparkdash.paths import read_small_file, replace_file

FILE_NAME = "owed.json"


class PendingRemoval(Frozen):
    """Containers of one engine on one node, to be ended there."""

    node: str
    head: str
    """Name of the engine's head: it and its workers are found by it."""
    container: str


class _Written(Frozen):
    owed: tuple[PendingRemoval, ...] = ()


class PendingRemovals:
    """Removals that wait for their node, on disk and in memory. `on_change` is called after each change."""

    def __init__(self, file: Path, on_change: Callable[[], object] = lambda: None) -> None:
        self._file = file
        self.on_change = on_change
        self._lock = asyncio.Lock()
        self._pending: tuple[PendingRemoval, ...] = _read(file)

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(each.node for each in self._pending)

    def on(self, node: str) -> tuple[PendingRemoval, ...]:
        return tuple(each for each in self._pending if each.node == node)

    def containers(self, node: str) -> tuple[str, ...]:
        """Names of the containers that are to be ended on this node, for NodeState.owed."""
        return tuple(each.container for each in self.on(node))

    async def add(self, *removals: PendingRemoval) -> None:
        """Write these down; returns once they are on the disk, or the disk refused them."""
        await self._change(lambda now: (*(each for each in now if not _same(each, removals)), *removals))

    async def settle(self, *removals: PendingRemoval) -> None:
        await self._change(lambda now: tuple(each for each in now if not _same(each, removals)))

    async def _change(self, change: Callable[[tuple[PendingRemoval, ...]], tuple[PendingRemoval, ...]]) -> None:
        async with self._lock:
            pending = change(self._pending)
            if pending == self._pending:
                return
            self._pending = pending
            try:
                await in_thread(lambda: _write(self._file, pending))
            except OSError:  # a full disk: they are known until the daemon ends
                LOG.exception("the pending removals on other nodes cannot be written down", file=str(self._file))
        self.on_change()


def _same(one: PendingRemoval, others: tuple[PendingRemoval, ...]) -> bool:
    return any((one.node, one.head) == (other.node, other.head) for other in others)


def _read(file: Path) -> tuple[PendingRemoval, ...]:
    try:
        return _Written.model_validate_json(read_small_file(file)).owed
    except FileNotFoundError:
        return ()
    except (OSError, ValidationError):
        LOG.exception("the pending removals on other nodes cannot be read", file=str(file))
        return ()


def _write(file: Path, pending: tuple[PendingRemoval, ...]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, _Written(owed=pending).model_dump_json(indent=2).encode())


GRACE_S = 5.0
"""Time that a container which should have ended long ago has to end by itself."""
AGAIN_S = 10.0
"""Pause before a node on which something is left is tried again."""


class NodeUpkeep:
    """Ends on each node what waits for removal there or belongs to no engine. `run` until cancelled.

    `engines` are those that this daemon started or adopted. `on_return` is awaited for each node that can be asked
    again, once nothing waits for removal there; `on_swept` is called after it.
    """

    def __init__(
        self,
        runtimes: AllRuntimes,
        pending: PendingRemovals,
        owner: str,
        engines: Mapping[str, EngineMembers],
        on_return: Callable[[str], Awaitable[None]],
    ) -> None:
        self._runtimes = runtimes
        self._pending = pending
        self._owner = owner
        self._engines = engines
        self._on_return = on_return
        self.on_swept: Callable[[str], object] = lambda _node: None
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._held: set[PendingRemoval] = set()
        self._returned: set[str] = set()
        self._news = asyncio.Event()
        runtimes.others.on_return(self.look_soon)

    def look_soon(self, node: str) -> None:
        """Treat the node like one that just returned, soon: something is left there, or was not seen."""
        self._returned.add(node)
        self._news.set()

    async def run(self) -> None:
        """Clear nodes as they return, and again while something is left."""
        while True:
            await self._until_work()
            waiting = self._returned | (self._pending.nodes - {LOCAL})
            await asyncio.gather(*(self._try(node) for node in waiting if self._runtimes.is_reachable(node)))

    async def _until_work(self) -> None:
        is_pending = bool(self._returned or self._pending.nodes)
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
        """End what waits for removal on the node, and what surely belongs to no engine. Raises HostError."""
        async with self._locks[node]:
            await self._clear_pending(node)
            await self._runtimes.list_on(node, self._owner)
            grouped = group_containers(await self._runtimes.list_all(self._owner), self._engines)
            strays = [each for each in (*grouped.orphans, *grouped.doubles) if each.node == node]
            await self._stop(node, (each.name for each in strays))

    async def clear_pending(self, node: str) -> None:
        async with self._locks[node]:
            await self._clear_pending(node)

    async def _clear_pending(self, node: str) -> None:
        for removal in self._pending.on(node):
            if removal not in self._held:
                await self.end(removal)

    @contextmanager
    def held(self, removals: Iterable[PendingRemoval]) -> Iterator[None]:
        """Leave these removals alone for the length of the block: their containers are being stopped with grace."""
        held = set(removals) - self._held
        self._held |= held
        try:
            yield
        finally:
            self._held -= held

    async def end(self, removal: PendingRemoval, grace_s: float = GRACE_S) -> list[Leftovers]:
        """End all containers of the removal's engine on its node, and cross it off. Raises HostError."""
        found = await self._runtimes.list_on(removal.node, self._owner)
        names = [each.name for each in found if removal.head in (each.name, each.labels.get(LABEL_HEAD))]
        left = await self._stop(removal.node, names, grace_s)
        await self._pending.settle(removal)
        return left

    async def _stop(self, node: str, names: Iterable[str], grace_s: float = GRACE_S) -> list[Leftovers]:
        runtime = self._runtimes.on(node)
        left = []
        for name in names:
            left.append(await runtime.stop(name, grace_s))
            LOG.warning("a container that belonged to no engine was ended", node=node, container=name)
        return left


class GroupStop:
    """Stops engines whose containers are on several nodes, or on another one."""

    def __init__(self, runtimes: AllRuntimes, pending: PendingRemovals, upkeep: NodeUpkeep) -> None:
        self._runtimes = runtimes
        self._pending = pending
        self._upkeep = upkeep

    async def stop(
        self, engine: EngineMembers, grace_s: float, before_removal: Awaitable[None] | None = None
    ) -> Leftovers:
        """Stop and remove all members at once. Raises HostError for one that could not be ended, after the others."""
        await self._pending.add(*_removals(engine.members))  # before it is tried: a crash in between loses nothing
        before = None if before_removal is None else asyncio.ensure_future(before_removal)
        with self._upkeep.held(_removals(engine.members)):
            stops = (self._stop_one(member, grace_s, before) for member in engine.members)
            results = await asyncio.gather(*stops, return_exceptions=True)
        if before is not None:
            await before
        await self._end_forward(engine)
        left = Leftovers()
        for member, result in zip(engine.members, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            left = merged(left, member.node, result)
        return left

    async def undo(self, engine: EngineMembers, begun: Iterable[Member]) -> None:
        """Remove what a failed start made. Raises nothing: the reason of the failure is worth more."""
        members = tuple(begun)
        await self._pending.add(*_removals(members))
        with self._upkeep.held(_removals(members)):
            await asyncio.gather(*map(self._undo_one, members))
        await self._end_forward(engine)

    async def _undo_one(self, member: Member) -> None:
        try:
            if member.node == LOCAL:
                await self._runtimes.local.stop(member.container or member.head, 0.0)
            else:  # by its label: another owner's container may have the name
                (removal,) = _removals([member])
                await self._upkeep.end(removal, 0.0)
        except HostError as error:
            LOG.warning("a container of a failed start is left", node=member.node, why=error.text())

    async def _stop_one(self, member: Member, grace_s: float, before: asyncio.Future[None] | None) -> Leftovers:
        if member.node == LOCAL:
            return await self._runtimes.local.stop(member.container or member.head, grace_s, before)
        (removal,) = _removals([member])
        left = Leftovers()
        try:
            if member.container is not None:
                with naming(member.node):
                    left = await self._runtimes.on(member.node).stop(member.container, grace_s, before)
                if not left.unremoved:
                    await self._pending.settle(removal)
            else:
                await self._upkeep.end(removal, grace_s)
        except HostError as error:
            if not is_unreachable_error(error) and self._runtimes.is_reachable(member.node):
                raise
            return Leftovers(pending=(member.node,))
        return left

    async def _end_forward(self, engine: EngineMembers) -> None:
        if engine.head_node != LOCAL and engine.port is not None:
            with suppress(HostError):  # it ended with the connection
                await self._runtimes.others.cancel_forward(engine.head_node, engine.port)


def merged(left: Leftovers, node: str, more: Leftovers) -> Leftovers:
    """Join the leftovers of two nodes; texts name the node, and pids are those of their own box."""
    if node == LOCAL:
        how, unremoved = more.stuck_how, more.unremoved
    else:
        how = tuple(f"on {node}, {words}" for words in more.stuck_how)
        unremoved = more.unremoved and f"on {node}, {more.unremoved}"
    return Leftovers(
        ended=left.ended + more.ended,
        stuck=left.stuck + more.stuck,
        stuck_how=left.stuck_how + how,
        unremoved=" ".join(filter(None, (left.unremoved, unremoved))) or None,
        pending=left.pending + more.pending,
    )


def _removals(members: Iterable[Member]) -> tuple[PendingRemoval, ...]:
    return tuple(
        PendingRemoval(node=each.node, head=each.head, container=each.container or each.head)
        for each in members
        if each.node != LOCAL
    )

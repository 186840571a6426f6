"""Group stop: the end of all containers of one engine, at once and on every node.

Owns: that what a silent node has of the engine is owed. Must not know how a container is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import suppress

import structlog

from sparkdash.domain.container import Leftovers
from sparkdash.domain.node import LOCAL
from sparkdash.errors import HostError
from sparkdash.nodes.groups import EngineMembers, Member
from sparkdash.nodes.node_runtimes import AllRuntimes, is_unreachable_error
from sparkdash.nodes.owed import OwedRemoval, OwedRemovals
from sparkdash.nodes.upkeep import NodeUpkeep

LOG = structlog.get_logger("sparkdash.nodes")


class GroupStop:
    """Stops engines whose containers are on several nodes, or on another one."""

    def __init__(self, runtimes: AllRuntimes, owed: OwedRemovals, upkeep: NodeUpkeep) -> None:
        self._runtimes = runtimes
        self._owed = owed
        self._upkeep = upkeep

    async def stop(
        self, engine: EngineMembers, grace_s: float, before_removal: Awaitable[None] | None = None
    ) -> Leftovers:
        """Stop and remove all members at once.

        Raises:
            HostError: a container on a node that answers could not be ended. The other members are ended all the same.
        """
        await self._owed.add(*_removals(engine.members))  # before it is tried: a crash in between loses nothing
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
        await self._owed.add(*_removals(members))
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
                left = await self._runtimes.on(member.node).stop(member.container, grace_s, before)
                if not left.unremoved:
                    await self._owed.settle(removal)
            else:
                await self._upkeep.end(removal, grace_s)
        except HostError as error:
            if not is_unreachable_error(error) and self._runtimes.is_reachable(member.node):
                raise
            return Leftovers(owed=(member.node,))
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
        owed=left.owed + more.owed,
        unseen=left.unseen or more.unseen,
    )


def _removals(members: Iterable[Member]) -> tuple[OwedRemoval, ...]:
    return tuple(
        OwedRemoval(node=each.node, head=each.head, container=each.container or each.head)
        for each in members
        if each.node != LOCAL
    )

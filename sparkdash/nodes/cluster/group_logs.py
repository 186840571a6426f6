"""Group logs: one log of an engine on several nodes; a worker's lines begin with the name of its node in brackets."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import chain
from typing import cast

from sparkdash.errors import HostError
from sparkdash.nodes.cluster.group_end import AGAIN_S, FindContainer, FirstEnd
from sparkdash.nodes.cluster.groups import EngineMembers, Member
from sparkdash.nodes.cluster.node_runtimes import AllRuntimes, naming

LAST_WORDS, LAST_LINES = 8, 10
"""Last lines of each container, and of the one that comes last: the head, or who ended the engine. A failure keeps the
log's last twenty.
"""
AHEAD = 1000
READ_S = 8.0
"""Limit of reading a worker's log, so that a node that falls silent does not cost the head's last words."""


class GroupLogs:
    """Reads the logs of engines whose containers are on several nodes."""

    def __init__(self, runtimes: AllRuntimes, find: FindContainer) -> None:
        self._runtimes = runtimes
        self._find = find

    async def read(
        self, engine: EngineMembers, *, follow: bool, tail: int | None, ended: FirstEnd | None = None
    ) -> AsyncGenerator[str, None]:
        """Read the lines of all members; those of the one that `ended` the engine come last, with a line about it.

        Raises:
            HostError: the head's log cannot be read.
        """
        lines = self._followed(engine, tail) if follow else self._now(engine, tail, ended)
        async with aclosing(lines):
            async for line in lines:
                yield line

    async def _now(self, engine: EngineMembers, tail: int | None, ended: FirstEnd | None) -> AsyncGenerator[str, None]:
        head, *workers = engine.members
        heads = asyncio.ensure_future(self._all_lines(head, tail))
        read = [asyncio.ensure_future(self._of_worker(worker, tail)) for worker in workers]
        try:
            said = [*await asyncio.gather(*read), await heads]
        finally:
            for task in (heads, *read):
                task.cancel()
        last = said.pop(ended.rank - 1 if ended else -1)
        before = (*(lines[:-LAST_WORDS] for lines in said), last[:-LAST_LINES])
        for line in chain(*before, *(lines[-LAST_WORDS:] for lines in said), last[-LAST_LINES:]):
            yield line
        if ended:
            yield ended.line()

    async def _lines(self, member: Member, tail: int | None, *, follow: bool) -> AsyncGenerator[str, None]:
        container = await self._find(member)
        if container is None:
            raise HostError(f"There is no container on {member.node}.", code="no_such_container")
        lines = self._runtimes.on(member.node).logs(container, follow=follow, tail=tail)
        with naming(member.node):
            async with aclosing(cast("AsyncGenerator[str, None]", lines)) as each:
                async for line in each:
                    yield line

    async def _all_lines(self, member: Member, tail: int | None) -> list[str]:
        async with aclosing(self._lines(member, tail, follow=False)) as lines:
            return [line async for line in lines]

    async def _of_worker(self, worker: Member, tail: int | None) -> list[str]:
        try:
            async with asyncio.timeout(READ_S):
                lines = await self._all_lines(worker, tail)
        except (HostError, TimeoutError) as error:
            why = error.message if isinstance(error, HostError) else f"{worker.node} does not answer."
            lines = [f"sparkdash: the last lines of this log cannot be read: {why}"]
        return [_prefixed(worker.node, line) for line in lines]

    async def _followed(self, engine: EngineMembers, tail: int | None) -> AsyncGenerator[str, None]:
        head, *workers = engine.members
        queue: asyncio.Queue[str | None] = asyncio.Queue(AHEAD)
        following = [asyncio.ensure_future(self._follow_worker(each, tail, queue)) for each in workers]
        heads = asyncio.ensure_future(self._follow_head(head, tail, queue))
        try:
            while (heard := await queue.get()) is not None:
                yield heard
            await heads
        finally:
            for task in (heads, *following):
                task.cancel()
            await asyncio.gather(heads, *following, return_exceptions=True)

    async def _follow_head(self, head: Member, tail: int | None, queue: asyncio.Queue[str | None]) -> None:
        """Follow the head to its end: then the whole log has ended."""
        try:
            async with aclosing(self._lines(head, tail, follow=True)) as lines:
                async for line in lines:
                    await queue.put(line)
        finally:
            await queue.put(None)

    async def _follow_worker(self, worker: Member, tail: int | None, queue: asyncio.Queue[str | None]) -> None:
        """Follow a worker, again after its node was silent."""
        is_open = True
        while is_open:
            try:
                async with aclosing(self._lines(worker, tail, follow=True)) as lines:
                    async for line in lines:
                        await queue.put(_prefixed(worker.node, line))
                is_open = False
            except HostError:
                tail = 0  # lines that were read once are not read again
                await asyncio.sleep(AGAIN_S)


def _prefixed(node: str, line: str) -> str:
    return f"[{node}] {line}"

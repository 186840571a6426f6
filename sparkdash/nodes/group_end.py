"""Group end: which of an engine's containers ended first, and when a silent node counts as lost.

Owns: the waits for all members of one engine. Must not know what follows from an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from sparkdash.domain.node import LOCAL
from sparkdash.errors import HostError
from sparkdash.nodes.groups import EngineMembers, Member
from sparkdash.nodes.node_runtimes import AllRuntimes

FindContainer = Callable[[Member], Awaitable[str | None]]
"""Finds the name of a member's container; None when there is none any more. Raises HostError."""
AGAIN_S = 1.0
"""Pause before a node is asked again whose answer broke off: that is no container's end."""
LOOK_EVERY_S = 0.5
"""Seconds between two looks at whether a node can be reached."""
NODE_LOST = "node_unreachable"
"""Code of the error of an engine that lost one of its nodes."""
NODE_RESTARTED = "node_restarted"
"""Code of the error of an engine of which a node was restarted."""
GONE = -1
"""Exit code of a container that is no longer there."""


@dataclass(frozen=True, slots=True)
class FirstEnd:
    """First container of an engine that ended."""

    member: Member
    code: int

    def line(self) -> str:
        """Return a line for the end of the engine's log."""
        host = "this box" if self.member.node == LOCAL else self.member.node
        how = "is gone" if self.code == GONE else f"ended with exit code {self.code}"
        return f"sparkdash: of this engine's containers the one on {host} was the first to end: it {how}."


async def wait_for_first_end(
    runtimes: AllRuntimes,
    engine: EngineMembers,
    find: FindContainer,
    silent_s: Callable[[], float],
    link_loss: Coroutine[Any, Any, HostError] | None = None,
) -> FirstEnd:
    """Wait until any member has ended. `find` resolves a member's container; None: there is none any more.

    `link_loss` returns once the nodes no longer reach each other.

    Raises:
        HostError: node_unreachable, when a member's node could not be reached for longer than `silent_s()`, or was
            removed from the nodes; node_restarted; link_down.
    """
    nodes = {member.node for member in engine.members} - {LOCAL}
    boots = runtimes.boots(nodes)
    ends = [asyncio.ensure_future(_end_of(runtimes, member, find)) for member in engine.members]
    losses = [asyncio.ensure_future(_loss_of(runtimes, node, silent_s, boots)) for node in sorted(nodes)]
    if link_loss is not None:
        losses.append(asyncio.ensure_future(link_loss))
    try:
        await asyncio.wait({*ends, *losses}, return_when=asyncio.FIRST_COMPLETED)
        if restarted := _restarted(runtimes, boots):  # its containers have ended, and this is why
            raise restarted
        for end in filter(asyncio.Future.done, ends):
            return end.result()
        raise next(filter(asyncio.Future.done, losses)).result()
    finally:
        for task in (*ends, *losses):
            task.cancel()
        await asyncio.gather(*ends, *losses, return_exceptions=True)


async def _end_of(runtimes: AllRuntimes, member: Member, find: FindContainer) -> FirstEnd:
    while True:
        try:
            container = await find(member)
            if container is None:
                return FirstEnd(member, GONE)
            return FirstEnd(member, await runtimes.on(member.node).wait(container))
        except HostError:
            if member.node == LOCAL:
                raise
        await asyncio.sleep(AGAIN_S)


def _restarted(runtimes: AllRuntimes, boots: Mapping[str, str]) -> HostError | None:
    """Return the error if a node of these boots is back with another one."""
    now = runtimes.boots(boots)
    restarted = [node for node, boot in boots.items() if now.get(node, boot) != boot]
    return node_restarted(restarted[0]) if restarted else None


async def _loss_of(
    runtimes: AllRuntimes, node: str, silent_s: Callable[[], float], boots: Mapping[str, str]
) -> HostError:
    """Return the error once the node has been silent for too long, was restarted, or is no node any more."""
    loop = asyncio.get_running_loop()
    heard_at = loop.time()
    while loop.time() - heard_at <= silent_s() and node in runtimes.others.states:
        await asyncio.sleep(LOOK_EVERY_S)
        if runtimes.is_reachable(node):
            heard_at = loop.time()
            if restarted := _restarted(runtimes, boots):
                return restarted
    try:
        runtimes.on(node)
    except HostError as error:
        return node_lost(node, silent_s(), error)
    return node_lost(node, silent_s(), None)


def node_restarted(node: str) -> HostError:
    """Return the error of an engine of which a node was restarted."""
    return HostError(
        f"{node} was restarted while the engine ran on it.",
        code=NODE_RESTARTED,
        hint=f"`journalctl -b -1 -e` on {node} shows its last lines before that; start the engine again.",
    )


def node_lost(node: str, silent_s: float, why: HostError | None) -> HostError:
    """Return the error of an engine that lost one of its nodes, with what was found last."""
    if why is not None and why.code == "node_unknown":
        return HostError(
            f"{node} was removed from the nodes while the engine ran on it.",
            code=NODE_LOST,
            hint=f"What still runs there goes on unseen. Add {node} again under this name, and sparkdash ends it.",
        )
    found = f" {why.message}" if why else ""
    ways = f"{why.hint} " if why and why.hint else ""
    return HostError(
        f"{node} has not answered for {silent_s:.0f} s.{found}",
        code=NODE_LOST,
        hint=f"{ways}What still runs on {node} is ended when it answers again.",
    )

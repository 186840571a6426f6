"""End of an engine on several nodes: the first end of its containers, a silent node, a link that is down."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sparkdash.domain.event import Level, Notice
from sparkdash.domain.node import LOCAL
from sparkdash.errors import HostError
from sparkdash.nodes.cluster.groups import EngineMembers, Member
from sparkdash.nodes.cluster.node_runtimes import AllRuntimes
from sparkdash.nodes.link_liveness import LinkTrouble, LookAtLink, called
from sparkdash.units import duration

FindContainer = Callable[[Member], Awaitable[str | None]]
"""Finds the name of a member's container; None when there is none any more. Raises HostError."""
TOGETHER_S = 2.0
"""Time after a first end in which a worker's crash is its reason: the head often ends before its worker's container."""
AGAIN_S = 1.0
"""Pause before a node is asked again whose answer broke off: that is no container's end."""
LOOK_EVERY_S = 0.5
NODE_LOST = "node_unreachable"
GONE = -1


@dataclass(frozen=True, slots=True)
class FirstEnd:
    """End of the container that ended the engine."""

    member: Member
    rank: int
    code: int

    def line(self) -> str:
        how = "is gone" if self.code == GONE else f"ended with exit code {self.code}"
        return f"sparkdash: rank {self.rank} on {called(self.member.node)} ended the engine: its container {how}."


async def wait_for_first_end(
    runtimes: AllRuntimes,
    engine: EngineMembers,
    find: FindContainer,
    silent_s: Callable[[], float],
    *others: Coroutine[Any, Any, HostError],
) -> FirstEnd:
    """Wait until any member has ended; return the end that is the reason.

    `find` resolves a member's container; None: there is none any more.
    `others` return once the nodes no longer reach each other, or a rank is held.
    Raises HostError: node_unreachable, when a member's node could not be reached for longer than `silent_s()`, or was
    removed from the nodes; node_restarted; link_down; rank_held.
    """
    nodes = {member.node for member in engine.members} - {LOCAL}
    boots = runtimes.boots(nodes)
    ends = [asyncio.ensure_future(_end_of(runtimes, member, rank, find)) for rank, member in enumerate(engine.members)]
    losses = [asyncio.ensure_future(_loss_of(runtimes, node, silent_s, boots)) for node in sorted(nodes)]
    losses += [asyncio.ensure_future(each) for each in others]
    try:
        await asyncio.wait({*ends, *losses}, return_when=asyncio.FIRST_COMPLETED)
        if restarted := _restarted(runtimes, boots):  # its containers have ended, and this is why
            raise restarted
        for end in filter(asyncio.Future.done, ends):
            return await _crash_among(ends[1:]) or end.result()
        raise next(filter(asyncio.Future.done, losses)).result()
    finally:
        for task in (*ends, *losses):
            task.cancel()
        await asyncio.gather(*ends, *losses, return_exceptions=True)


async def _crash_among(workers: Sequence[asyncio.Future[FirstEnd]]) -> FirstEnd | None:
    """Return the first worker's end with another code than 0, with which vLLM's ranks end that lost their peer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(TOGETHER_S):
            for each in asyncio.as_completed(workers):
                if (end := await each).code > 0:
                    return end
    return None


async def _end_of(runtimes: AllRuntimes, member: Member, rank: int, find: FindContainer) -> FirstEnd:
    while True:
        try:
            container = await find(member)
            if container is None:
                return FirstEnd(member, rank, GONE)
            return FirstEnd(member, rank, await runtimes.on(member.node).wait(container))
        except HostError:
            if member.node == LOCAL:
                raise
        await asyncio.sleep(AGAIN_S)


def _restarted(runtimes: AllRuntimes, boots: Mapping[str, str]) -> HostError | None:
    """Return the error if a node of these boots is back with another one."""
    now = runtimes.boots(boots)
    restarted = [node for node, boot in boots.items() if now.get(node, boot) != boot]
    if not restarted:
        return None
    return HostError(
        f"{restarted[0]} was restarted while the engine ran on it.",
        code="node_restarted",
        hint=f"`journalctl -b -1 -e` on {restarted[0]} shows its last lines before that; start the engine again.",
    )


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


def node_lost(node: str, silent_s: float, why: HostError | None) -> HostError:
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


RANKS_EVERY_S = 5.0
"""Seconds between two looks at whether a rank is held; two in a row end the engine."""


async def held_rank_of(engine: EngineMembers, is_held: Callable[[Member], Awaitable[bool]]) -> HostError:
    """Return the error once one rank has been held at two looks in a row."""
    before: set[Member] = set()
    while True:
        await asyncio.sleep(RANKS_EVERY_S)
        now = {member for member in engine.members if await is_held(member)}
        if both := sorted(now & before, key=engine.members.index):
            rank, member = engine.members.index(both[0]), both[0]
            return HostError(
                f"Rank {rank} on {called(member.node)} ({member.container}) does not move: its container is paused, or "
                "one of its processes is stopped.",
                code="rank_held",
                hint="See who paused it; the next request starts the engine again.",
            )
        before = now


LINK_EVERY_S = 2.0
TOLD_S = 3.0
"""Seconds after which a link that is down is told: a cable that is moved is back by then."""
LEAST_S = 12.0
"""Shortest time until an engine is lost by its link; where ssh uses the same link, its node is silent before."""
LINK_DOWN = "link_down"

WatchLink = Callable[[tuple[str, ...]], LookAtLink | None]
"""Returns the look at the link between these nodes; None while their links are not known."""
TellLink = Callable[[str, LinkTrouble | None, float], object]
"""Told an engine's head, what is wrong with its link (None: nothing more), and the seconds until its end."""


async def link_loss_of(
    runtimes: AllRuntimes, engine: EngineMembers, watch: WatchLink, tell: TellLink, silent_s: Callable[[], float]
) -> HostError:
    """Return the error once the engine's link has been down for `silent_s()`, while its nodes could be asked."""
    nodes = engine.nodes
    clock = asyncio.get_running_loop().time
    look = watch(nodes)
    since = math.inf
    told: bool | None = None
    while True:
        await asyncio.sleep(LINK_EVERY_S)
        look = look or watch(nodes)
        if look is None or not all(map(runtimes.is_reachable, nodes)):
            since = math.inf
            continue
        began, trouble = clock(), look()
        now = trouble.is_down if trouble else None
        since = min(since, began) if now else math.inf
        limit, down = max(silent_s(), LEAST_S), clock() - since
        if trouble and down >= limit:
            return _link_lost(nodes, trouble.text, down)
        if now != told and (not now or down >= TOLD_S):
            if told is not None and not now:
                tell(engine.head, None, 0.0)
            if trouble:
                tell(engine.head, trouble, limit - down)
            told = now


def _link_lost(nodes: tuple[str, ...], fault: str, down_s: float) -> HostError:
    return HostError(
        f"{link_of(nodes)} has been down for {down_s:.0f} s: {fault}.",
        code=LINK_DOWN,
        hint=f"See whether its cable is in at both ends; `sparkdash doctor --node {nodes[-1]}` examines the link.",
    )


def link_notice(name: str, nodes: tuple[str, ...], trouble: LinkTrouble | None, left_s: float) -> Notice:
    """Word the notice about the link of the engine with this name. See TellLink."""
    about, code = f"{link_of(nodes)}, which {name} uses,", LINK_DOWN
    if trouble is None:
        return Notice(level=Level.INFO, code="link_back", text=f"{link_of(nodes)} is back: {name} goes on.")
    if trouble.is_down:
        text = f"{about} is down: {trouble.text}. See whether its cable is in at both ends. "
        text += f"The engine is ended in {duration(left_s)} unless the link comes back."
    else:
        code = "link_lossy"
        text = f"{about} loses packets: {trouble.text}. `sparkdash doctor --node {nodes[-1]} path` counts them."
    return Notice(level=Level.WARNING, code=code, text=text)


def link_of(nodes: tuple[str, ...]) -> str:
    return f"The link between {' and '.join(map(called, nodes))}"

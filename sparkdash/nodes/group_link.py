"""Group link: when the link between the nodes of an engine counts as lost, though each node can be asked.

Owns: how long it may be down, and when that is told. Must not know how a link is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from sparkdash.domain.event import Level, Notice
from sparkdash.errors import HostError
from sparkdash.nodes.groups import EngineMembers
from sparkdash.nodes.link.liveness import LookAtLink, called
from sparkdash.nodes.node_runtimes import AllRuntimes
from sparkdash.units import duration

LOOK_EVERY_S = 2.0
"""Seconds between two looks."""
TOLD_S = 3.0
"""Seconds after which a link that is down is told: a cable that is moved is back by then."""
LEAST_S = 12.0
"""Shortest time until an engine is lost by its link; where ssh uses the same link, its node is silent before."""
LINK_DOWN = "link_down"
"""Code of the error of an engine whose nodes no longer reach each other."""

WatchLink = Callable[[tuple[str, ...]], LookAtLink | None]
"""Returns the look at the link between these nodes; None while their links are not known."""
TellLink = Callable[[str, str | None, float], object]
"""Told an engine's head, what is wrong with its link (None: it is back), and the seconds until the engine is ended."""


async def link_loss_of(
    runtimes: AllRuntimes, engine: EngineMembers, watch: WatchLink, tell: TellLink, silent_s: Callable[[], float]
) -> HostError:
    """Return the error once the engine's link has been down for `silent_s()`, while its nodes could be asked."""
    nodes = tuple(member.node for member in engine.members)
    clock = asyncio.get_running_loop().time
    look, outage = watch(nodes), _Outage(partial(tell, engine.head))
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        look = look or watch(nodes)
        if look is None or not all(map(runtimes.is_reachable, nodes)):
            outage.since = None
            continue
        began, fault = clock(), await look()
        if fault is None:
            outage.end()
            continue
        limit = max(silent_s(), LEAST_S)
        down = outage.lasts(began, clock())
        if down >= limit:
            return _lost(nodes, fault, down)
        outage.tell_once(fault, down, limit)


class _Outage:
    """A time without the link: when it was first seen, and whether it was told."""

    def __init__(self, tell: Callable[[str | None, float], object]) -> None:
        self.since: float | None = None
        self._tell = tell
        self._told = False

    def end(self) -> None:
        """The link is back."""
        if self._told:
            self._tell(None, 0.0)
        self.since, self._told = None, False

    def lasts(self, began: float, now: float) -> float:
        """Seconds that the link has been down at `now`, by a look that began at `began`."""
        self.since = began if self.since is None else self.since
        return now - self.since

    def tell_once(self, fault: str, down_s: float, limit_s: float) -> None:
        """Tell an outage that has lasted for TOLD_S."""
        if down_s >= TOLD_S and not self._told:
            self._tell(fault, limit_s - down_s)
            self._told = True


def link_notice(name: str, nodes: tuple[str, ...], fault: str | None, left_s: float) -> Notice:
    """Word the notice about the link of the engine with this name. See TellLink."""
    if fault is None:
        return Notice(level=Level.INFO, code="link_back", text=f"{link_of(nodes)} is back: {name} goes on.")
    return Notice(
        level=Level.WARNING,
        code=LINK_DOWN,
        text=f"{link_of(nodes)}, which {name} uses, is down: {fault}. See whether its cable is in at both ends. "
        f"The engine is ended in {duration(left_s)} unless the link comes back.",
    )


def link_of(nodes: tuple[str, ...]) -> str:
    """Return how a sentence calls the link between these nodes."""
    return f"The link between {' and '.join(map(called, nodes))}"


def _lost(nodes: tuple[str, ...], fault: str, down_s: float) -> HostError:
    return HostError(
        f"{link_of(nodes)} has been down for {down_s:.0f} s: {fault}.",
        code=LINK_DOWN,
        hint=f"See whether its cable is in at both ends; `sparkdash nodes check {nodes[-1]}` examines the link.",
    )

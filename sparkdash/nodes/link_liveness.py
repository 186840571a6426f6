"""Liveness of the link between the nodes of one engine: whether both ends have a carrier, and the other end answers.

An engine's own time-out finds a dead link after minutes, and ssh may go over another network. The probe connects to a
port on which nobody listens: the refusal is the answer. Where a firewall swallows it, no answer means nothing, so a
silent end counts only after it has answered once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from sparkdash.domain.metric import NodeSample
from sparkdash.domain.node import LOCAL, Link, NodeLaunch

PROBE_S = 1.5
"""Deadline of a probe. A link answers within milliseconds, and a first lost packet is sent again after a second."""
DISCARD = 9
"""TCP port of the discard protocol, which no box of today offers."""
LookAtLink = Callable[[], Awaitable[str | None]]
"""Says what is wrong with the link; None while nothing is known to be."""
Samples = Callable[[], Mapping[str, NodeSample]]


def look_at_link(launches: Sequence[NodeLaunch], samples: Samples) -> LookAtLink:
    """Return the look at the link of an engine on these nodes."""
    return _EngineLink([(each.name, each.link) for each in launches if each.link is not None], samples).fault


class _EngineLink:
    """Ends of the link that one engine uses."""

    def __init__(self, ends: Sequence[tuple[str, Link]], samples: Samples) -> None:
        self._ends = ends
        self._samples = samples
        self._answered: set[str] = set()
        """Nodes that a probe has reached."""

    async def fault(self) -> str | None:
        """Return what is wrong with the link; None while nothing is known to be."""
        return self._without_carrier() or await self._without_answer()

    def _without_carrier(self) -> str | None:
        samples = self._samples()
        for node, link in self._ends:
            sample = samples.get(node)
            ports = (each for each in sample.links if each.name in (link.interface, link.hca)) if sample else ()
            if any(port.up is False for port in ports):
                return f"{link.interface} of {called(node)} has no carrier"
        return None

    async def _without_answer(self) -> str | None:
        addresses = {node: link.address for node, link in self._ends if link.address is not None}
        own = addresses.pop(LOCAL, None)
        if own is None:
            return None
        answers = await asyncio.gather(*(_answers(own, address) for address in addresses.values()))
        for node, answered in zip(addresses, answers, strict=True):
            if answered:
                self._answered.add(node)
            elif node in self._answered:
                link = dict(self._ends)[node]
                return f"{link.address} ({link.interface} of {node}) does not answer on it"
        return None


def called(node: str) -> str:
    return "this box" if node == LOCAL else node


async def _answers(own: str, address: str) -> bool:
    """Whether a box at that address answers, by a connection or its refusal."""
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(address, DISCARD, local_addr=(own, 0))
    except ConnectionRefusedError:
        return True
    except (TimeoutError, OSError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True

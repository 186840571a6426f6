"""Liveness of the link between the nodes of one engine: whether both ends have a carrier, and the other end answers.

An engine's own time-out finds a dead link after minutes, and ssh may go over another network. This box tries the
others, and each of those the later ones. The probe connects to a port on which nobody listens: the refusal is the
answer. Where a firewall swallows it, no answer means nothing, so a silent end counts only after it has answered once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations, product
from typing import NamedTuple

from sparkdash.domain.metric import NodeSample
from sparkdash.domain.node import LOCAL, Link, NodeLaunch
from sparkdash.nodes.agent.remote_figures import DISCARD, PROBE_S
from sparkdash.nodes.shared_links import network_of

LookAtLink = Callable[[], Awaitable[str | None]]
"""Says what is wrong with the link; None while nothing is known to be."""
Samples = Callable[[], Mapping[str, NodeSample]]
Reached = Callable[[str, Sequence[tuple[str, str]]], Mapping[str, bool]]
"""Tells which peers a node reaches, by pairs of its own and the peer's address."""


class _Path(NamedTuple):
    own: str
    peer: str
    ends: tuple[Link, Link]

    @property
    def addresses(self) -> tuple[str, str]:
        return str(self.ends[0].address), str(self.ends[1].address)


def look_at_link(launches: Sequence[NodeLaunch], samples: Samples, reached: Reached = lambda *_: {}) -> LookAtLink:
    return _EngineLinks(launches, samples, reached).fault


def _paths(launches: Sequence[NodeLaunch]) -> Iterator[_Path]:
    """Yield each link of two nodes once, LOCAL first: over the common network, and every cable."""
    for one, other in combinations(sorted(launches, key=lambda each: each.name != LOCAL), 2):
        pairs = [(one.link, other.link), *product(one.cables.get(other.name, ()), other.cables.get(one.name, ()))]
        for own, peer in pairs:
            if own and peer and own.address and peer.address and network_of(own) == network_of(peer):
                yield _Path(one.name, other.name, (own, peer))


class _EngineLinks:
    def __init__(self, launches: Sequence[NodeLaunch], samples: Samples, reached: Reached) -> None:
        self._paths = list(_paths(launches))
        self._by_node: defaultdict[str, list[_Path]] = defaultdict(list)
        for path in self._paths:
            self._by_node[path.own].append(path)
        self._samples, self._reached = samples, reached
        self._answered: set[_Path] = set()

    async def fault(self) -> str | None:
        return self._without_carrier() or await self._without_answer()

    def _without_carrier(self) -> str | None:
        samples = self._samples()
        for path in self._paths:
            for node, link in zip((path.own, path.peer), path.ends, strict=True):
                sample = samples.get(node)
                ports = (each for each in sample.links if each.name in (link.interface, link.hca)) if sample else ()
                if any(port.up is False for port in ports):
                    return f"{link.interface} of {called(node)} has no carrier"
        return None

    async def _without_answer(self) -> str | None:
        for path, answered in (await self._answers()).items():
            if answered:
                self._answered.add(path)
            elif answered is False and path in self._answered:
                seen_by = "" if path.own == LOCAL else f" to {path.own}"
                return f"{path.addresses[1]} ({path.ends[1].interface} of {path.peer}) does not answer{seen_by} on it"
        return None

    async def _answers(self) -> dict[_Path, bool | None]:
        """Try the paths from this box, and ask the other nodes about theirs; None is not known."""
        from_here = self._by_node[LOCAL]
        answers = await asyncio.gather(*(_answers(*path.addresses) for path in from_here))
        found: dict[_Path, bool | None] = dict(zip(from_here, answers, strict=True))
        for node, paths in self._by_node.items():
            if node == LOCAL:
                continue
            told = self._reached(node, [path.addresses for path in paths])
            found |= {path: told.get(path.addresses[1]) for path in paths}
        return found


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

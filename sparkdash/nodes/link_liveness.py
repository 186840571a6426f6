"""Liveness of the link between the nodes of one engine: a carrier at both ends, an answer of the other end, no losses.

An engine's own time-out finds a dead link after minutes, and ssh may go over another network. This box tries the
others, and each of those the later ones. The probe connects to a port on which nobody listens: the refusal is the
answer. Where a firewall swallows it, no answer means nothing, so a silent end counts only after it has answered once.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import NamedTuple

from sparkdash.domain.metric import NodeSample
from sparkdash.domain.node import LOCAL, Link, NodeLaunch
from sparkdash.nodes.agent.remote_figures import SEEN, Probes
from sparkdash.nodes.shared_links import network_of

LOSSY = 2
"""Losses among the last SEEN probes that are told; one may be a cable that was moved."""


class LinkTrouble(NamedTuple):
    """Trouble of a link: nothing passes, or not every packet."""

    text: str
    is_down: bool = True


LookAtLink = Callable[[], LinkTrouble | None]
"""Says what is wrong with the link; None while nothing is known to be."""
Samples = Callable[[], Mapping[str, NodeSample]]
Reach = Mapping[str, int | None]
"""For each peer's address the losses among its last answers; None for one that does not answer."""
Reached = Callable[[str, Sequence[tuple[str, str]]], Reach]
"""Tells which peers a node reaches, by pairs of its own and the peer's address."""


class _Path(NamedTuple):
    own: str
    peer: str
    ends: tuple[Link, Link]

    @property
    def addresses(self) -> tuple[str, str]:
        return str(self.ends[0].address), str(self.ends[1].address)

    def __str__(self) -> str:
        return f"{self.addresses[1]} ({self.ends[1].interface} of {self.peer})"


def look_at_link(launches: Sequence[NodeLaunch], samples: Samples, reached: Reached = lambda *_: {}) -> LookAtLink:
    return _EngineLinks(launches, samples, reached).trouble


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
        self._from_here = Probes(every_s=0.0)
        self._answered: set[_Path] = set()
        self._lossy: set[_Path] = set()

    def trouble(self) -> LinkTrouble | None:
        answers = self._answers()
        if fault := self._without_carrier() or self._without_answer(answers):
            return LinkTrouble(fault)
        return next(self._losing(answers), None)

    def _without_carrier(self) -> str | None:
        samples = self._samples()
        for path in self._paths:
            for node, link in zip((path.own, path.peer), path.ends, strict=True):
                sample = samples.get(node)
                ports = (each for each in sample.links if each.name in (link.interface, link.hca)) if sample else ()
                if any(port.up is False for port in ports):
                    return f"{link.interface} of {called(node)} has no carrier"
        return None

    def _without_answer(self, answers: Mapping[_Path, int | None]) -> str | None:
        self._answered |= {path for path, lost in answers.items() if lost is not None}
        for path, lost in answers.items():
            if lost is None and path in self._answered:
                seen_by = "" if path.own == LOCAL else f" to {path.own}"
                return f"{path} does not answer{seen_by} on it"
        return None

    def _losing(self, answers: Mapping[_Path, int | None]) -> Iterator[LinkTrouble]:
        """Yield the paths that lose packets, until the last SEEN answers came without a loss."""
        self._lossy = {path for path, lost in answers.items() if (lost or 0) >= (1 if path in self._lossy else LOSSY)}
        for path in self._lossy:
            about = f"of the last {SEEN} probes from {called(path.own)} to {path} {answers[path]} were sent again"
            yield LinkTrouble(about, is_down=False)

    def _answers(self) -> dict[_Path, int | None]:
        """Try the paths from this box, and ask the other nodes about theirs; one that is not known is left out."""
        found: dict[_Path, int | None] = {}
        for node, paths in self._by_node.items():
            pairs = [path.addresses for path in paths]
            if node == LOCAL:
                self._from_here.wanted = pairs
            told = self._from_here.look(time.monotonic()) if node == LOCAL else self._reached(node, pairs)
            found |= {path: told[path.addresses[1]] for path in paths if path.addresses[1] in told}
        return found


def called(node: str) -> str:
    return "this box" if node == LOCAL else node

"""Cluster: how boxes are connected for tensors, and which of them one engine can run on together. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import combinations, pairwise

from sparkdash.domain.node import LOCAL


class Topology(StrEnum):
    """How the boxes of one engine are connected."""

    DIRECT = "direct"
    """Two boxes, by one cable."""
    RING = "ring"
    """Each box has two neighbours; three make a triangle. Opposite boxes have no path of their own."""
    LINE = "line"
    """A ring that is open: boxes in a row."""
    SWITCH = "switch"


Nodes = tuple[str, ...]
Cables = Mapping[str, frozenset[str]]
"""Neighbours of each box that is cabled to others; empty where one network connects all, or none is known."""
ASSUMED = frozenset({Topology.DIRECT, Topology.RING, Topology.SWITCH})
"""Topologies of a profile that names none: stock NCCL closes a ring over any boxes, and a line has no way back."""


def topology_of(nodes: Nodes, cables: Cables) -> Topology | None:
    """Return how these boxes are connected in their order; None where two in a row share no cable."""
    if not cables:
        return Topology.SWITCH if len(nodes) > 2 else Topology.DIRECT
    if any(there not in cables.get(here, ()) for here, there in pairwise(nodes)):
        return None
    if len(nodes) == 2:
        return Topology.DIRECT
    return Topology.RING if nodes[0] in cables[nodes[-1]] else Topology.LINE


def groups(names: Sequence[str], count: int, cables: Cables, topologies: Collection[Topology] = ()) -> list[Nodes]:
    """List the sets of `count` boxes that one engine can run on, in the order of ranks: neighbours are cabled.

    LOCAL is the first where it can be. `topologies`: those that the engine runs on; none stands for ASSUMED.
    """
    ordered = sorted(names, key=lambda name: name != LOCAL)
    found: dict[frozenset[str], Nodes] = {}
    for group in _paths(ordered, count, cables) if cables else combinations(ordered, count):
        topology = topology_of(group, cables)
        is_pair = topology is Topology.DIRECT and Topology.SWITCH in topologies  # for two boxes a switch is a cable
        if is_pair or topology in (topologies or ASSUMED):
            found.setdefault(frozenset(group), group)
    return list(found.values())


def _paths(names: Sequence[str], count: int, cables: Cables, begun: Nodes = ()) -> Iterator[Nodes]:
    """Yield the ways of `count` boxes along the cables that go on from `begun`."""
    if len(begun) == count:
        yield begun
        return
    for name in names:
        if name not in begun and (not begun or name in cables.get(begun[-1], ())):
            yield from _paths(names, count, cables, (*begun, name))

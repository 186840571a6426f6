"""Readings of a pair of boxes, for the checks of nodes.

Rule: a section that could not be read raises Unreadable, which makes the finding "unknown". Pure.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

from sparkdash.doctor.check import CheckResult, Unreadable
from sparkdash.domain.cluster import Cables, Topology
from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts
from sparkdash.domain.profile import Profile
from sparkdash.errors import SparkdashError
from sparkdash.nodes.shared_links import SharedLink, chosen_links, find_cables, shared_links
from sparkdash.settings import Settings


@dataclass(frozen=True, slots=True)
class BoxReadings:
    """Readings of one box. A box that could not be asked has `problem` and nothing else."""

    name: str
    node: Node | None = None
    facts: NodeFacts | None = None
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problem: SparkdashError | None = None
    settings: Settings = field(default_factory=Settings)

    @property
    def shown(self) -> str:
        return self.facts.hostname if self.name == LOCAL and self.facts else self.name

    def known(self) -> NodeFacts:
        """Return the facts of the connection. Raises Unreadable without them."""
        if self.facts is None:
            raise Unreadable(f"{self.shown} was not asked")
        return self.facts

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a section of the readings. Raises Unreadable when it was not read."""
        found = self.sections.get(name)
        if found is None:
            raise Unreadable(f"{self.shown} was not asked for {name}")
        if problem := found.get("problem"):
            raise Unreadable(f"{name} of {self.shown} cannot be read: {problem}")
        return found

    def command(self, words: str) -> str:
        """Shell line that runs `words` on this box, to be typed on the daemon's box."""
        if self.node is None:
            return words
        port = "" if self.node.port == 22 else f"-p {self.node.port} "
        return f"ssh -t {port}{self.node.ssh} {shlex.quote(words)}"


@dataclass(frozen=True, slots=True)
class PairReadings:
    """Readings of this box and another one, or of two neighbours by cable."""

    here: BoxReadings
    there: BoxReadings
    profiles: Sequence[Profile] | Unreadable = ()

    @property
    def settings(self) -> Settings:
        return self.here.settings

    @property
    def boxes(self) -> tuple[BoxReadings, BoxReadings]:
        return self.here, self.there

    def shared(self) -> tuple[SharedLink, ...]:
        """Links between the boxes, the best first; only those that the owner chose, if one was chosen."""
        node = self.there.node
        chosen = (node.address, node.interface) if node else (None, None)
        return shared_links(self.here.known(), self.there.known(), *chosen)

    def link(self) -> SharedLink:
        """Return the best link. Raises Unreadable without one, which the check `link` reports."""
        links = self.shared()
        if not links:
            raise Unreadable("The boxes share no network, see the check link")
        return links[0]

    def wanted(self) -> Sequence[Profile]:
        if isinstance(self.profiles, Unreadable):
            raise self.profiles
        return self.profiles


class ClusterReadings(NamedTuple):
    """All boxes that could be asked, this one first, and how they are connected."""

    boxes: Sequence[BoxReadings] = ()
    declared: Topology | None = None

    @property
    def links(self) -> dict[str, list[Link]]:
        return {box.name: chosen_links(box.facts.links, box.node) for box in self.boxes if box.facts}

    @property
    def cables(self) -> Cables:
        return find_cables(self.links, self.declared) if len(self.links) > 2 else {}

    def cabled(self) -> list[tuple[BoxReadings, BoxReadings]]:
        """Boxes that an engine's ranks join: neighbours by cable, else this box with each other one."""
        here, *others = self.boxes
        if not (cables := self.cables):
            return [(here, each) for each in others]
        return [(one, other) for one, other in combinations(self.boxes, 2) if other.name in cables[one.name]]


BoxLook = Callable[[BoxReadings], Iterator[CheckResult]]
PairLook = Callable[[PairReadings], Iterator[CheckResult]]
ClusterLook = Callable[[ClusterReadings], Iterator[CheckResult]]


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """Check of each box, of each pair or of all, with the sections of `remote_readings` that it needs."""

    name: str
    about: str
    box: BoxLook | None = None
    pair: PairLook | None = None
    cluster: ClusterLook | None = None
    reads: tuple[str, ...] = ()


NODE_CHECKS: dict[str, NodeCheck] = {}
"""Checks of nodes by name, in the order of the report."""


def box_check(name: str, about: str, *, reads: tuple[str, ...] = ()) -> Callable[[BoxLook], BoxLook]:
    def register(look: BoxLook) -> BoxLook:
        NODE_CHECKS[name] = NodeCheck(name, about, box=look, reads=reads)
        return look

    return register


def pair_check(name: str, about: str, *, reads: tuple[str, ...] = ()) -> Callable[[PairLook], PairLook]:
    def register(look: PairLook) -> PairLook:
        NODE_CHECKS[name] = NodeCheck(name, about, pair=look, reads=reads)
        return look

    return register


def cluster_check(name: str, about: str) -> Callable[[ClusterLook], ClusterLook]:
    def register(look: ClusterLook) -> ClusterLook:
        NODE_CHECKS[name] = NodeCheck(name, about, cluster=look)
        return look

    return register


_RATE = re.compile(r"^([\d.]+) *Gb/sec")


class RdmaPort(NamedTuple):
    """Port of an RDMA device."""

    hca: str
    active: bool
    state: str
    """State as sysfs tells it: `4: ACTIVE`."""
    rate_gbit_s: float | None
    netdevs: tuple[str, ...]
    active_mtu: int | None = None


def parse_rdma_ports(section: Mapping[str, Any]) -> tuple[RdmaPort, ...]:
    return tuple(
        RdmaPort(
            hca=str(port["hca"]),
            active="ACTIVE" in str(port["state"]),
            state=str(port["state"]),
            rate_gbit_s=float(found[1]) if (found := _RATE.match(str(port["rate"]))) else None,
            netdevs=tuple(port["netdevs"]),
            active_mtu=port.get("active_mtu"),
        )
        for port in section["ports"]
    )


def parse_route_device(section: Mapping[str, Any], peer: str) -> str | None:
    """Interface over which the section `routes` says that packets to `peer` leave; None without a route."""
    device = (section.get(peer) or {}).get("dev")
    return device if isinstance(device, str) else None


def parse_image(section: Mapping[str, Any], name: str) -> tuple[str, str | None] | None:
    """Id and digest of an image in the section `images`; None when the box lacks it."""
    found = section.get(name)
    return None if found is None else (str(found["id"]).removeprefix("sha256:"), found.get("digest"))


def addresses_of(section: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """IPv4 addresses with their prefixes by interface, from the section `addresses` (`ip -j address`)."""
    return {
        str(each["ifname"]): tuple(
            f"{info['local']}/{info['prefixlen']}" for info in each.get("addr_info", ()) if info.get("family") == "inet"
        )
        for each in section["interfaces"]
        if "ifname" in each
    }

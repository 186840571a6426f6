"""Networks that boxes share, the links by which they reach each other, and what of a box that is back differs. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_interface
from typing import NamedTuple

from sparkdash.domain.cluster import Cables, Topology
from sparkdash.domain.node import Link, Node, NodeFacts
from sparkdash.units import DASH

FAST_GBIT_S = 25.0
"""Rate of a link that was made for tensors; a DGX Spark's other port has 10 Gb/s."""


class SharedLink(NamedTuple):
    """Interfaces of two boxes in one network."""

    here: Link
    there: Link

    @property
    def rate_gbit_s(self) -> float | None:
        """Rate of the slower end; None while unknown."""
        rates = (self.here.rate_gbit_s, self.there.rate_gbit_s)
        return None if None in rates else min(rate for rate in rates if rate is not None)

    @property
    def up(self) -> bool:
        """Whether neither end is known to be down."""
        return self.here.up is not False and self.there.up is not False

    @property
    def fast(self) -> bool:
        """Whether the link is one for tensors: RDMA on both ends, or the rate of one."""
        return bool(self.here.hca and self.there.hca) or (self.rate_gbit_s or 0.0) >= FAST_GBIT_S


def shared_links(
    here: NodeFacts, there: NodeFacts, address: str | None = None, interface: str | None = None
) -> tuple[SharedLink, ...]:
    """Pair interfaces that are in one network, the best first: up, then by rate, then with RDMA.

    `address`, `interface`: those of `there` that the owner chose; other pairs are left out.
    """
    pairs = [
        SharedLink(one, other)
        for one in here.links
        for other in there.links
        if network_of(one) is not None
        and network_of(one) == network_of(other)
        and one.address != other.address
        and address in (None, other.address)
        and interface in (None, other.interface)
    ]
    return tuple(
        sorted(
            pairs, key=lambda pair: (not pair.up, -(pair.rate_gbit_s or 0.0), not (pair.here.hca and pair.there.hca))
        )
    )


def chosen_links(links: Sequence[Link], node: Node | None) -> list[Link]:
    """Return the links that a launch may use on a node: those that its file names, else all with an address that are
    not down.
    """
    address, interface = (node.address, node.interface) if node is not None else (None, None)
    return [
        link
        for link in links
        if link.address is not None
        and link.up is not False
        and address in (None, link.address)
        and interface in (None, link.interface)
    ]


def common_links(of_nodes: Sequence[Sequence[Link]]) -> list[Link] | None:
    """Choose one link for each node, all in one network: the fastest, by its slowest link; None without one.

    A link of unknown rate counts as slower than one of known rate; among equals an RDMA device wins, then the order.
    """
    choices = (_in_network_of(first, of_nodes[1:]) for first in of_nodes[0])

    def rate_and_rdma(links: Sequence[Link]) -> tuple[float, bool]:
        return min(link.rate_gbit_s or 0.0 for link in links), all(link.hca for link in links)

    return max(filter(None, choices), key=rate_and_rdma, default=None)


def _in_network_of(first: Link, others: Sequence[Sequence[Link]]) -> list[Link] | None:
    """Add to `first` one link of each other node in its network; None where a node has none."""
    if (network := network_of(first)) is None:
        return None
    found = [next((link for link in links if network_of(link) == network), None) for links in others]
    return None if None in found else [first, *filter(None, found)]


def twin_devices(chosen: Sequence[Link], of_nodes: Sequence[Sequence[Link]]) -> list[tuple[str, ...]]:
    """Return for each node the other RDMA devices by which it reaches every node as well as by its chosen link.

    NCCL takes one GID index for all devices, so that those with another are left out.
    """
    found = [_in_network_of(first, of_nodes[1:]) for first in of_nodes[0]]
    alike = [links for links in found if links and links != list(chosen) and all(map(_alike, links, chosen))]
    return [tuple(str(links[place].hca) for links in alike) for place in range(len(chosen))]


def find_cables(of_nodes: Mapping[str, Sequence[Link]], declared: Topology | None = None) -> Cables:
    """Find which nodes are cabled to each other: by networks of two, where no fast one has more.

    In a declared ring or line each network of two is a cable, however slow. A node has two cages: with more neighbours
    nothing is concluded.
    """
    is_chain = declared in (Topology.RING, Topology.LINE)
    networks = _nodes_by_network(of_nodes, slow_ones=is_chain)
    if declared is Topology.SWITCH or (not is_chain and any(len(ends) > 2 for ends in networks)):
        return {}
    shared = [ends for ends in networks if len(ends) == 2]
    found = {name: frozenset().union(*(ends for ends in shared if name in ends)) - {name} for name in of_nodes}
    return found if shared and all(len(near) <= 2 for near in found.values()) else {}


def is_fast(link: Link) -> bool:
    return bool(link.hca) or (link.rate_gbit_s or 0.0) >= FAST_GBIT_S


def tensor_links(facts: NodeFacts) -> list[Link]:
    """Return the fast links; where there is none, the fastest."""
    return [link for link in facts.links if is_fast(link)] or list(facts.links[:1])


def _nodes_by_network(of_nodes: Mapping[str, Sequence[Link]], *, slow_ones: bool) -> list[set[str]]:
    """Return the nodes of each network of a fast link, or of any."""
    networks: dict[str, set[str]] = {}
    for name, links in of_nodes.items():
        for link in links:
            if (slow_ones or is_fast(link)) and (network := network_of(link)) is not None:
                networks.setdefault(network, set()).add(name)
    return list(networks.values())


def cable_ends(
    names: Sequence[str], offered: Sequence[Sequence[Link]], cables: Cables
) -> list[dict[str, tuple[Link, ...]]]:
    """Return for each node its ends of the cables to its neighbours among these nodes, without a network of all."""
    networks = [{network: link for link in links if (network := network_of(link))} for links in offered]
    common = set(networks[0]).intersection(*networks)
    return [
        {
            near: tuple(mine[network] for network in mine if network in networks[place] and network not in common)
            for place, near in enumerate(names)
            if near in cables.get(name, ())
        }
        for name, mine in zip(names, networks, strict=True)
    ]


def _alike(link: Link, chosen: Link) -> bool:
    same = (link.rate_gbit_s, link.gid_index) == (chosen.rate_gbit_s, chosen.gid_index)
    return same and link.hca is not None and link.hca != chosen.hca


def network_of(link: Link) -> str | None:
    """Network of the interface's address, such as `192.168.100.0/24`; None without a prefix."""
    if link.address is None or link.prefix is None:
        return None
    try:
        return str(ip_interface(f"{link.address}/{link.prefix}").network)
    except ValueError:
        return None


def crowded_networks(facts: NodeFacts) -> Iterator[tuple[str, tuple[str, ...]]]:
    names: dict[str, list[str]] = {}
    for link in facts.links:
        if (network := network_of(link)) is not None and link.interface not in names.setdefault(network, []):
            names[network].append(link.interface)
    yield from ((network, tuple(each)) for network, each in names.items() if len(each) > 1)


def differences(before: NodeFacts, now: NodeFacts, own: NodeFacts | None, *, cabled: bool) -> Iterator[str]:
    """Say what is not as it was. `own`: this box's facts; `cabled`: each cable's network chooses the RDMA device."""
    yield from _of_version("driver", before.driver, now.driver, own.driver if own else None)
    yield from _of_version("kernel", before.kernel, now.kernel, own.kernel if own else None)
    links = {link.interface: link for link in now.links}
    for was in tensor_links(before):
        yield from _of_link(was, links.get(was.interface))
    if not cabled and len(_gid_indices(before)) == 1 < len(_gid_indices(now)):
        found = ", ".join(f"{link.gid_index} on {link.hca}" for link in now.links if link.hca)
        yield f"different GID indices ({found}), where NCCL takes one"


def _of_version(what: str, was: str | None, now: str | None, own: str | None) -> Iterator[str]:
    if was and now not in (was, own):
        yield f"{what} {now or DASH} instead of {was}"


def _gid_indices(facts: NodeFacts) -> set[int]:
    return {link.gid_index for link in facts.links if link.hca and link.gid_index is not None}


def _of_link(was: Link, now: Link | None) -> Iterator[str]:
    if now is None:
        yield f"{was.interface} has no address instead of {was.address}"
    elif now.up is False:
        yield f"{now.interface} is down"
    elif (network := network_of(now)) != network_of(was):
        yield f"{now.interface} is in {network} instead of {network_of(was)}"
    else:
        yield from _lower(f"{now.interface} has MTU", was.mtu, now.mtu)
        yield from _lower(f"{now.interface} has Gb/s", was.rate_gbit_s, now.rate_gbit_s)
        if now.gid_index is None and was.gid_index is not None:
            yield f"{was.hca} has no RoCEv2 GID"


def _lower(what: str, was: float | None, now: float | None) -> Iterator[str]:
    """Say that a figure is lower, or not known any more."""
    if (now or 0) < (was or 0):
        yield f"{what} {DASH if now is None else f'{now:g}'} instead of {was:g}"

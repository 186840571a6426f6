"""Choice of the links by which several nodes reach each other.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Interface, IPv4Network, ip_interface

from sparkdash.domain.node import Link, Node


def chosen_links(links: Sequence[Link], node: Node | None) -> list[Link]:
    """Links that a launch may use on a node: all with an address that are not down, or those that its file names."""
    found = [link for link in links if link.address is not None and link.up is not False]
    if node is not None and node.address is not None:
        found = [link for link in found if link.address == node.address]
    if node is not None and node.interface is not None:
        found = [link for link in found if link.interface == node.interface]
    return found


def common_links(of_nodes: Sequence[Sequence[Link]]) -> list[Link] | None:
    """Choose one link for each node, all in one network: the fastest, by its slowest link; None without one.

    A link of unknown rate counts as slower than one of known rate; among equals an RDMA device wins, then the order.
    """
    best: tuple[tuple[float, bool], list[Link]] | None = None
    for first in of_nodes[0]:
        network = _network(first)
        others = [next((link for link in links if _network(link) == network), None) for links in of_nodes[1:]]
        found = [first, *(link for link in others if link is not None)]
        if network is None or len(found) < len(of_nodes):
            continue
        rank = (min(link.rate_gbit_s or 0.0 for link in found), all(link.hca for link in found))
        if best is None or rank > best[0]:
            best = (rank, found)
    return best[1] if best else None


def _network(link: Link) -> IPv4Network | None:
    try:
        found = ip_interface(f"{link.address}/{link.prefix}")
    except ValueError:
        return None
    return found.network if isinstance(found, IPv4Interface) else None

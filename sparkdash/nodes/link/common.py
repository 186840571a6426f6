"""Networks that two boxes share.

Owns: which interfaces of two boxes face each other. Must not know how interfaces are found.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import NamedTuple

from sparkdash.domain.node import Link, NodeFacts

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
    return tuple(sorted(pairs, key=_worse))


def network_of(link: Link) -> str | None:
    """Network of the interface's address, such as `192.168.100.0/24`; None without a prefix."""
    found = _interface_address(link)
    return None if found is None else str(found.network)


def crowded_networks(facts: NodeFacts) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Networks in which one box has several interfaces, with the interfaces' names."""
    names: dict[str, list[str]] = {}
    for link in facts.links:
        if (network := network_of(link)) is not None and link.interface not in names.setdefault(network, []):
            names[network].append(link.interface)
    yield from ((network, tuple(each)) for network, each in names.items() if len(each) > 1)


def _interface_address(link: Link) -> IPv4Interface | IPv6Interface | None:
    if link.address is None or link.prefix is None:
        return None
    try:
        return ip_interface(f"{link.address}/{link.prefix}")
    except ValueError:
        return None


def _worse(pair: SharedLink) -> tuple[bool, float, bool]:
    return not pair.up, -(pair.rate_gbit_s or 0.0), not (pair.here.hca and pair.there.hca)

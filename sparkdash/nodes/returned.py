"""A box that is back: what of it that engines over several boxes need is not as it was. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.domain.node import Link, NodeFacts
from sparkdash.nodes.shared_links import network_of, tensor_links
from sparkdash.units import DASH


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

"""Measurement of the link between this box and a node, by the best tool that both have.

Owns: the choice of link and tool, and the record of the run. Must not know ssh.
"""

from __future__ import annotations

import time

from sparkdash.domain.node import Node, NodeFacts
from sparkdash.errors import HostError
from sparkdash.nodes.link.box import Box
from sparkdash.nodes.link.common import SharedLink, shared_links
from sparkdash.nodes.link.measure_rdma import BoxPair, measure_rdma, perftest_version
from sparkdash.nodes.link.measure_tcp import SECONDS, LinkEnd, Progress, measure_tcp
from sparkdash.nodes.link.record import LinkRun, LinkTool


async def measure_link(
    here: Box, there: Box, node: Node, progress: Progress, *, tcp: bool = False, seconds: float = SECONDS
) -> LinkRun:
    """Measure the link by perftest where both boxes have it, by plain TCP elsewhere or with `tcp`.

    Raises:
        HostError: no_common_link, link_lost, link_closed, perftest_failed; node_unreachable.
    """
    links = links_of(here, there, node)
    pair = BoxPair(here, there)
    at = time.time()
    version, why = (None, "TCP was asked for.") if tcp else await _perftest(pair, links)
    best = links[0]
    if why is None:
        rdma = [link for link in links if link.here.hca and link.there.hca]
        best = rdma[0]
        measurements = await measure_rdma(pair, rdma, progress)
    else:
        ends = LinkEnd(here, str(best.here.address)), LinkEnd(there, str(best.there.address))
        measurements = await measure_tcp(*ends, progress, seconds=seconds)
    return LinkRun(
        at=at,
        node=node.name,
        tool=LinkTool.PERFTEST if why is None else LinkTool.TCP,
        version=version,
        why=why,
        here=best.here,
        there=best.there,
        facts={box.name: known_facts(box) for box in pair},
        measurements=measurements,
    )


def links_of(here: Box, there: Box, node: Node) -> tuple[SharedLink, ...]:
    """Links that are up between both boxes, the best first. Raises HostError: no_common_link, node_unreachable."""
    found = shared_links(known_facts(here), known_facts(there), node.address, node.interface)
    up = tuple(link for link in found if link.up)
    if not up:
        raise HostError(
            f"{here.shown} and {there.shown} share no network that is up.",
            code="no_common_link",
            hint=f"`sparkdash nodes check {node.name}` shows the interfaces and what to do.",
        )
    return up


def known_facts(box: Box) -> NodeFacts:
    """Facts of a box that answers. Raises HostError for a silent one."""
    if box.facts is None:
        raise box.silent or HostError(f"{box.name} cannot be reached.", code="node_unreachable")
    return box.facts


async def _perftest(pair: BoxPair, links: tuple[SharedLink, ...]) -> tuple[str | None, str | None]:
    """Version of perftest on both boxes, and why it cannot be used; None if it can."""
    if not any(link.here.hca and link.there.hca for link in links):
        return None, "The link has no RDMA device on both ends, so plain TCP was measured."
    version = await perftest_version(pair)
    if version is None:
        return None, "perftest is not installed on both boxes (sudo apt install perftest), so plain TCP was measured."
    return version, None

"""`sparkdash nodes check`: examine the nodes and their pairing with this box."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.doctor import FAILED, WARNED, WIDEST, check_lines, finding_lines, status_counts
from sparkdash.cli.nodes.known import MaybeNodeName, chosen_nodes
from sparkdash.cli.output.screen import print_json, print_styled, print_text, terminal_width
from sparkdash.cli.parameters import AsJson

if TYPE_CHECKING:
    from sparkdash.doctor.nodes.facts import TwoNodeProfile
    from sparkdash.domain.finding import NodeFinding
    from sparkdash.domain.node import Node


def complete_node_check(incomplete: str) -> list[str]:
    """Complete the name of a check of nodes."""
    from sparkdash.doctor.nodes import NODE_CHECKS

    return [name for name in NODE_CHECKS if name.startswith(incomplete)]


def check(
    name: MaybeNodeName = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="CHECK", help="Only this check.", autocompletion=complete_node_check),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the checks, one sentence each.")] = False,
    as_json: AsJson = False,
) -> None:
    """Examine this box, the node NAME or all nodes, and how they pair.

    Checks podman, images, driver, CUDA, link, MTU, route, RDMA, clocks, memory, disk and firewall. The firewall is
    tried with real TCP connections. Each finding says how to mend it; the line is typed on this box. A silent node is
    one finding. Exits 0 if nothing needs to be done, 1 with a warning, 5 if something keeps engines from running.

    \b
    Examples:
      sparkdash nodes check
      sparkdash nodes check spark2 --only mtu --only route
      sparkdash nodes check --json | jq '.findings[] | select(.status == "fail")'
    """
    import asyncio

    from sparkdash.doctor.nodes import node_checks_named

    chosen = node_checks_named(only or ())
    if list_them:
        told = [{"name": each.name, "about": each.about} for each in chosen]
        return print_json(told) if as_json else print_text("\n".join(check_lines(told)))
    found = asyncio.run(examine_all(chosen_nodes(name), only or ()))
    counts = status_counts(found)
    if as_json:
        print_json({"findings": found, "counts": counts})
    else:
        print_styled("\n".join(finding_lines(with_node_names(found), min(terminal_width(), WIDEST))))
    raise typer.Exit(FAILED if "fail" in counts else WARNED if "warn" in counts else 0)


async def examine_all(nodes: Sequence[Node], only: Sequence[str]) -> tuple[NodeFinding, ...]:
    """Run the checks of nodes. Raises AdmissionError: no check has that name."""
    from sparkdash import settings
    from sparkdash.doctor.nodes import examine_nodes
    from sparkdash.doctor.nodes.probe import NodesProbe
    from sparkdash.nodes.link.open_boxes import open_boxes

    known = settings.load_settings()
    async with open_boxes(nodes, known.runtime, str(known.hf_home.expanduser())) as boxes:
        probe = NodesProbe(settings=known, here=boxes.here, nodes=boxes.nodes, profiles=_two_node_profiles())
        return await examine_nodes(probe, only)


def with_node_names(found: Sequence[NodeFinding]) -> list[NodeFinding]:
    """Copies whose names tell the node too: `spark2: podman`; a pair is `spark2 pair: mtu`, this box `spark1`."""
    here = platform.node()
    return [each.replace(name=f"{_about(each, here)}: {each.name}") for each in found]


def _about(finding: NodeFinding, here: str) -> str:
    from sparkdash.domain.node import LOCAL

    if len(finding.nodes) > 1:
        return f"{finding.nodes[-1]} pair"
    return here if finding.nodes[0] == LOCAL else finding.nodes[0]


def _two_node_profiles() -> Callable[[], Sequence[TwoNodeProfile]]:
    def read() -> list[TwoNodeProfile]:
        from sparkdash.cli.local import configured_catalog
        from sparkdash.doctor.nodes.facts import TwoNodeProfile

        profiles = configured_catalog().profiles.values()
        several = [each for each in profiles if each.nodes > 1 and not each.cannot_run]
        return [TwoNodeProfile(each.name, each.image, each.env) for each in several]

    return read

"""`sparkdash nodes check`: examine the nodes and their pairing with this box."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from sparkdash.cli.doctor import FAILED, WARNED, WIDEST, check_lines, finding_lines, status_counts
from sparkdash.cli.nodes.known import MaybeNodeName, chosen_nodes
from sparkdash.cli.output import print_json, print_styled, print_text, terminal_width
from sparkdash.cli.parameters import AsJson


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

    from sparkdash import settings
    from sparkdash.doctor.nodes import node_checks_named
    from sparkdash.doctor.nodes.examine import examine_registered, with_node_names

    chosen = node_checks_named(only or ())
    if list_them:
        told = [{"name": each.name, "about": each.about} for each in chosen]
        return print_json(told) if as_json else print_text("\n".join(check_lines(told)))
    found = asyncio.run(examine_registered(settings.load_settings(), chosen_nodes(name), only or ()))
    counts = status_counts(found)
    if as_json:
        print_json({"findings": found, "counts": counts})
    else:
        print_styled(
            "\n".join(finding_lines(with_node_names(found, platform.node()), columns=min(terminal_width(), WIDEST)))
        )
    raise typer.Exit(FAILED if "fail" in counts else WARNED if "warn" in counts else 0)

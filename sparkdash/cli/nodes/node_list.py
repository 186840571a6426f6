"""`sparkdash nodes list`: the other boxes, and whether they can be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkdash.cli.output import print_fitting_table, print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson
from sparkdash.units import DASH

if TYPE_CHECKING:
    from sparkdash.domain.node import Node, NodeState

HEAD = ("name", "ssh", "state", "link", "rate", "podman", "driver", "host key")
LEAST = ("host key", "driver", "podman", "rate", "link")
"""Columns that a narrow terminal omits, first to last."""


def list_nodes(as_json: AsJson = False) -> None:
    """Show the other boxes, and whether they can be reached.

    Without a running daemon the states are unknown: `-`.

    \b
    Examples:
      sparkdash nodes list
      sparkdash nodes list --json | jq '.nodes[] | [.name, .state.status]'
    """
    from sparkdash.nodes import node_file
    from sparkdash.nodes.ssh.ssh_command import fingerprint

    nodes = node_file.read_nodes(node_file.nodes_file())
    states = _states()
    if as_json:
        print_json(
            {
                "nodes": [
                    {
                        **node.model_dump(mode="json"),
                        "fingerprint": fingerprint(node.host_key),
                        "state": states[node.name].model_dump(mode="json") if node.name in states else None,
                    }
                    for node in nodes
                ]
            }
        )
    elif not nodes:
        print_text("No other nodes. Add one with `sparkdash nodes add NAME --ssh USER@HOST`.")
    else:
        print_fitting_table(HEAD, [_row(node, states.get(node.name)) for node in nodes], "<<<<><<<", LEAST)
        for node in nodes:
            _print_trouble(states.get(node.name))


def _states() -> dict[str, NodeState]:
    from sparkdash.client.client import Client
    from sparkdash.errors import DaemonError

    try:
        with Client() as client:
            return client.state().nodes
    except DaemonError:
        return {}


def _row(node: Node, state: NodeState | None) -> tuple[str, ...]:
    from sparkdash.nodes.ssh.ssh_command import fingerprint

    facts = state.facts if state else None
    link = next((each for each in facts.links if each.interface == state.link), None) if facts and state else None
    where = node.ssh if node.port == 22 else f"{node.ssh}:{node.port}"
    return (
        node.name,
        where,
        state.status if state else DASH,
        f"{link.interface} {link.address}" if link else node.interface or DASH,
        f"{link.rate_gbit_s:g} Gb/s" if link and link.rate_gbit_s else DASH,
        (facts.runtime_version if facts else None) or DASH,
        (facts.driver if facts else None) or DASH,
        fingerprint(node.host_key),
    )


def _print_trouble(state: NodeState | None) -> None:
    if state is None:
        return
    if state.reason:
        print_note(state.reason)
    if state.owed:
        print_note(f"{state.name} still has to end: {', '.join(state.owed)}.")

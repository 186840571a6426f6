"""Nodes that a command may be about: those of nodes.toml, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sparkdash.domain.node import Node


def complete_node(incomplete: str) -> list[str]:
    """Complete the name of a node of the registry."""
    from sparkdash.nodes import node_file

    try:
        nodes = node_file.read_nodes(node_file.nodes_file())
    except Exception:  # noqa: BLE001 - a Tab that fails must stay silent, whatever the reason
        return []
    return [node.name for node in nodes if node.name.startswith(incomplete)]


NodeName = Annotated[str, typer.Argument(metavar="NAME", help="The node's name.", autocompletion=complete_node)]


MaybeNodeName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="A node's name.", autocompletion=complete_node)
]


def chosen_nodes(name: str | None) -> tuple[Node, ...]:
    """Nodes of that name, or all.

    Raises:
        AdmissionError: node_unknown; no_nodes, when there is none at all.
        ProfileError: nodes_invalid.
    """
    from sparkdash.errors import AdmissionError

    nodes = _read()
    found = tuple(node for node in nodes if name in (None, node.name))
    if not nodes:
        raise AdmissionError(
            "There is no other node.",
            code="no_nodes",
            hint="`sparkdash nodes add NAME --ssh USER@HOST` adds one.",
        )
    if not found:
        raise AdmissionError(
            f"There is no node {name!r}.",
            code="node_unknown",
            hint=f"There {'is' if len(nodes) == 1 else 'are'} {', '.join(node.name for node in nodes)}.",
        )
    return found


def one_node(name: str | None) -> Node:
    """Return the node of that name, or the only one.

    Raises:
        AdmissionError: as `chosen_nodes`; node_unclear, when there are several and none was named.
    """
    from sparkdash.errors import AdmissionError

    found = chosen_nodes(name)
    if len(found) > 1:
        names = ", ".join(node.name for node in found)
        raise AdmissionError(f"There are several nodes: {names}.", code="node_unclear", hint="Name one of them.")
    return found[0]


def _read() -> tuple[Node, ...]:
    from sparkdash.nodes.node_file import nodes_file, read_nodes

    return read_nodes(nodes_file())

"""Arguments that the commands about nodes share."""

from __future__ import annotations

from typing import Annotated

import typer


def complete_node(incomplete: str) -> list[str]:
    """Complete the name of a node of the registry."""
    from sparkdash.nodes import node_file

    try:
        nodes = node_file.read_nodes(node_file.nodes_file())
    except Exception:  # noqa: BLE001 - a Tab that fails must stay silent, whatever the reason
        return []
    return [node.name for node in nodes if node.name.startswith(incomplete)]


NodeName = Annotated[str, typer.Argument(metavar="NAME", help="The node's name.", autocompletion=complete_node)]

"""`sparkdash nodes remove`: forget a box and its host key."""

from __future__ import annotations

from typing import Annotated

import typer

from sparkdash.cli.nodes.known import NodeName
from sparkdash.cli.output import print_json, print_text
from sparkdash.cli.parameters import AsJson


def remove(
    name: NodeName,
    force: Annotated[bool, typer.Option("--force", help="Even while engines run there; they go on unseen.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a box, and the host key that was pinned for it.

    Nothing changes on the box itself. Engines that run there must be stopped first.

    \b
    Examples:
      sparkdash nodes remove spark2
    """
    from sparkdash.cli.running_daemon import reload_daemon
    from sparkdash.errors import AdmissionError
    from sparkdash.nodes import node_file

    engines = [] if force else _engines_on(name)
    if engines:
        raise AdmissionError(
            f"{name} runs {' and '.join(engines)}.",
            code="node_in_use",
            hint=f"Stop it first (`sparkdash stop {engines[0]}`), or add --force to leave it running unseen.",
        )
    left = node_file.remove_node(node_file.nodes_file(), name)
    reload_daemon()
    if as_json:
        print_json({"removed": name, "left": [node.name for node in left]})
        return
    print_text(f"Removed: {name}.")


def _engines_on(name: str) -> list[str]:
    from sparkdash.client.client import Client
    from sparkdash.domain.engine import EngineState
    from sparkdash.errors import DaemonError

    try:
        with Client() as client:
            engines = client.state().engines
    except DaemonError:
        return []
    gone = (EngineState.ABSENT, EngineState.FAILED)
    return [each for each, engine in engines.items() if name in engine.nodes and engine.state not in gone]

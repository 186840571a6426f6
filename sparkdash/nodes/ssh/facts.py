"""Facts of a node, by one program that is piped to its Python."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

from sparkdash.domain.node import LOCAL, NodeFacts
from sparkdash.errors import HostError
from sparkdash.nodes.programs import ask, run_here
from sparkdash.nodes.ssh.connection import NodeConnection

FACTS_S = 30.0
"""Deadline of the program; nvidia-smi takes a second, and podman's first call after a boot several."""
FACTS = ("sparkdash.nodes.ssh.facts_script",)


async def read_facts(connection: NodeConnection, program: str) -> NodeFacts:
    """Read the facts of a node. Raises HostError: node_python_missing, node_facts_failed; those of the connection."""
    node = connection.node
    words, failed = (program, node.hf_home or ""), partial(_failed, node.name)
    return _facts(node.name, await ask(node.name, connection.run, FACTS, *words, deadline_s=FACTS_S, failed=failed))


async def read_local_facts(program: str, hf_home: str) -> NodeFacts:
    """Read the facts of this box, in a process of its own. Raises HostError: node_facts_failed, command_timeout."""
    words, failed = (program, hf_home), partial(_failed, LOCAL)
    found = await ask(LOCAL, run_here, FACTS, *words, deadline_s=FACTS_S, failed=failed, python=sys.executable)
    return _facts(LOCAL, found)


def _facts(name: str, found: Any) -> NodeFacts:
    try:  # the program tells the time as its last act, milliseconds before its answer is here
        offset = float(found.pop("now")) - time.time()
        return NodeFacts.model_validate({**found, "clock_offset_s": round(offset, 2)})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _failed(name, str(error).splitlines()[0]) from None


def _failed(name: str, words: str) -> HostError:
    return HostError(
        f"The facts of {name} cannot be read: {words}.",
        code="node_facts_failed",
        hint="See what `python3 --version` and `podman info` say there.",
    )

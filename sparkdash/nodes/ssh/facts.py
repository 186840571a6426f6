"""Facts of a node, by one script that is piped to its Python."""

from __future__ import annotations

import json
import sys
import time
from importlib import resources
from typing import Any

from sparkdash.domain.node import LOCAL, NodeFacts
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult, run_command
from sparkdash.nodes.ssh.connection import NodeConnection

FACTS_S = 30.0
"""Deadline of the script; nvidia-smi takes a second, and podman's first call after a boot several."""
_NOT_FOUND = 127


async def read_facts(connection: NodeConnection, program: str) -> NodeFacts:
    """Read the facts of a node. Raises HostError: node_python_missing, node_facts_failed; those of the connection."""
    node = connection.node
    argv = ["python3", "-", program, node.hf_home or ""]
    done = await connection.run(argv, deadline_s=FACTS_S, stdin=script("ssh/facts_script"))
    return _facts(node.name, done, time.time())


async def read_local_facts(program: str, hf_home: str) -> NodeFacts:
    """Read the facts of this box, in a process of its own. Raises HostError: node_facts_failed."""
    argv = [sys.executable, "-", program, hf_home]
    try:
        done = await run_command(argv, deadline_s=FACTS_S, stdin=script("ssh/facts_script"))
    except (TimeoutError, OSError) as error:
        raise _failed(LOCAL, str(error) or "no answer") from None
    return _facts(LOCAL, done, time.time())


def script(name: str) -> bytes:
    return resources.files("sparkdash.nodes").joinpath(f"{name}.py").read_bytes()


def _facts(name: str, done: CommandResult, ended_at: float) -> NodeFacts:
    # the script tells the time as its last act, milliseconds before its answer is here
    if done.code == _NOT_FOUND:
        raise HostError(
            f"{name} has no python3, which reads its figures.",
            code="node_python_missing",
            hint="Install it there: `sudo apt-get install python3`.",
        )
    try:
        found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
        offset = float(found.pop("now")) - ended_at
        return NodeFacts.model_validate({**found, "clock_offset_s": round(offset, 2)})
    except (IndexError, KeyError, TypeError, ValueError) as error:
        words = (done.err.strip().splitlines() or [str(error)])[-1]
        raise _failed(name, words) from None


def _failed(name: str, words: str) -> HostError:
    return HostError(
        f"The facts of {name} cannot be read: {words}.",
        code="node_facts_failed",
        hint="See what `python3 --version` and `podman info` say there.",
    )

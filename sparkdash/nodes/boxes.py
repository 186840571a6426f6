"""Boxes: what each tells of itself, and those of a command without the daemon, connected for its length."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparkdash.domain.node import LOCAL, Node, NodeFacts
from sparkdash.errors import AdmissionError, HostError, SparkdashError
from sparkdash.nodes.programs import Modules, RunProgram, ask, run_here
from sparkdash.nodes.shared_links import tensor_links
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


@dataclass(frozen=True, slots=True)
class Box:
    """Box of a pair. A silent box has the reason, and neither programs nor facts."""

    name: str
    run: RunProgram | None = None
    facts: NodeFacts | None = None
    silent: SparkdashError | None = None

    @property
    def shown(self) -> str:
        """Name for people: this box's is its host name."""
        return self.facts.hostname if self.name == LOCAL and self.facts else self.name

    def runs(self) -> RunProgram:
        """Return what runs programs there. Raises SparkdashError for a silent box."""
        if self.run is None:
            raise self._silence()
        return self.run

    def known(self) -> NodeFacts:
        """Return its facts. Raises SparkdashError for a silent box."""
        if self.facts is None:
            raise self._silence()
        return self.facts

    def _silence(self) -> SparkdashError:
        return self.silent or HostError(f"{self.name} cannot be reached.", code="node_unreachable")


def refuse_known_box(new: Box, known: Iterable[Box]) -> NodeFacts:
    """Return the facts of a box that is to be added.

    A box is known by the hardware addresses of its ports: cloned images share host keys, names and machine ids.

    Raises:
        AdmissionError: node_known: it is known by another name, and its memory would count twice.
        SparkdashError: it is silent.
    """
    found = new.known()
    for box in known:
        if box.facts and _is_same(found, box.facts):
            raise AdmissionError(
                f"{new.name} is the box {box.shown}, which is known already.",
                code="node_known",
                hint="Give the address of another box.",
            )
    return found


def _is_same(one: NodeFacts, other: NodeFacts) -> bool:
    theirs = {link.hardware for link in tensor_links(other)} - {None}
    return any(link.hardware in theirs for link in tensor_links(one))


async def ask_box(box: Box, modules: Modules, request: Mapping[str, object], *, deadline_s: float) -> dict[str, Any]:
    """Run a program on the box with `request` as its one argument; return the object that it prints.

    Raises:
        HostError: the box is silent or has no python3, or the program failed; `script_failed` with its last words.
    """

    def failed(words: str) -> HostError:
        return HostError(
            f"A script failed on {box.shown}: {words}.",
            code="script_failed",
            hint=f"`sparkdash doctor --node {box.name}` examines the box.",
        )

    found = await ask(box.shown, box.runs(), modules, json.dumps(request), deadline_s=deadline_s, failed=failed)
    if not isinstance(found, dict):
        raise failed("it printed no object")
    return found


@asynccontextmanager
async def open_boxes(
    nodes: Sequence[Node], program: str, hf_home: str
) -> AsyncIterator[tuple[Box, list[tuple[Node, Box]]]]:
    """Connect to all nodes at once and read the facts of every box, this one first; close the connections at the end.

    `program`: container runtime. Never raises for a silent node: its box has the reason.
    """
    async with AsyncExitStack() as stack:
        connections = {node.name: NodeConnection(node) for node in nodes}
        for connection in connections.values():
            stack.push_async_callback(connection.close)
        here, *others = await asyncio.gather(
            _known(LOCAL, run_here, read_local_facts(program, hf_home)),
            *(_known(name, each.run, read_facts(each, program)) for name, each in connections.items()),
        )
        yield here, list(zip(nodes, others, strict=True))


async def _known(name: str, run: RunProgram, facts: Awaitable[NodeFacts]) -> Box:
    try:
        return Box(name, run, await facts)
    except SparkdashError as error:
        return Box(name, silent=error)
